"""From a recipe to a running operator's logic: one table, by which an operator is loaded when the first of its kind is built.

All of them together are a sixth of the engine, and most networks have three or four kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from millstream.engine.aggregates.table import foldable
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.language import recipes
from millstream.engine.operators.contract import Operator

Deliver = Callable[[Train], None]
ORDERED_WINDOWS = (recipes.WindowKind.SLIDING, recipes.WindowKind.NOW, recipes.WindowKind.ROWS)
ENDLESS_WINDOWS = (recipes.WindowKind.UNBOUNDED, recipes.WindowKind.LANDMARK)
PANE_WINDOWS = (recipes.WindowKind.HOPPING, recipes.WindowKind.CUMULATE)

# Where the logic stands. These take the recipe; those below it the schemas of all inputs, then of the one input, too.
_OF_ANY_INPUT: dict[type[recipes.Recipe], str] = {
    recipes.SelectRecipe: "row_operators:Select",
    recipes.FanOutRecipe: "row_operators:FanOut",
    recipes.PartRecipe: "row_operators:Select",
    recipes.ProjectRecipe: "row_operators:Project",
    recipes.SplitRecipe: "row_operators:Split",
    recipes.UnionRecipe: "row_operators:Union",
    recipes.UnnestRecipe: "row_operators:Unnest",
}
_OF_INPUTS: dict[type[recipes.Recipe], str] = {
    recipes.JoinRecipe: "join:WindowJoin",
    recipes.AsofJoinRecipe: "asof_join:AsofJoin",
    recipes.TableJoinRecipe: "table_join:TableJoin",
    recipes.SubqueryRecipe: "subquery_join:SubqueryJoin",
    recipes.TableSubqueryRecipe: "subquery_join:TableSubquery",
    recipes.ChangeJoinRecipe: "change_join:ChangeJoin",
    recipes.KeyMergeRecipe: "row_operators:KeyMerge",
}
_OF_ONE_INPUT: dict[type[recipes.Recipe], str] = {
    recipes.TableChangesRecipe: "table_changes:TableChanges",
    recipes.ViewChangesRecipe: "table_changes:ViewChanges",
    recipes.StandingRowsRecipe: "table_changes:StandingRows",
    recipes.KeptRowsRecipe: "table_changes:KeptRows",
    recipes.GapFillRecipe: "gap_fill:GapFill",
    recipes.InterpolateRecipe: "interpolate:Interpolate",
    recipes.DistinctRecipe: "distinct:Distinct",
    recipes.TopRecipe: "ordered_rows:Top",
    recipes.LagRecipe: "lag:Lag",
    recipes.OverRecipe: "over_aggregate:OverAggregate",
    recipes.MatchRecipe: "match_recognize:MatchRecognize",
    recipes.RankRecipe: "ordered_rows:Rank",
    recipes.RunningTopRecipe: "running_top:RunningTop",
    recipes.ChangingTopRecipe: "running_top:ChangingTop",
    recipes.RelationToStreamRecipe: "relation_to_stream:RelationToStream",
}

_KINDS: dict[type[recipes.Recipe], str] = {
    recipes.SelectRecipe: "select",
    recipes.PartRecipe: "select",
    recipes.FanOutRecipe: "fan out",
    recipes.KeyMergeRecipe: "key merge",
    recipes.ProjectRecipe: "project",
    recipes.SplitRecipe: "split",
    recipes.UnionRecipe: "union",
    recipes.AggregateRecipe: "aggregate",
    recipes.WindowRecipe: "window",
    recipes.JoinRecipe: "join",
    recipes.DistinctRecipe: "distinct",
    recipes.SinkRecipe: "sink",
}

# Priors until the first receipts: (selectivity, cost per tuple in ns, cost per call in ns), measured on one core.
_PRIORS: dict[str, tuple[float, float, float]] = {
    "select": (0.5, 5.0, 8_000.0),
    "project": (1.0, 3.0, 8_000.0),
    "split": (0.5, 6.0, 10_000.0),
    "union": (1.0, 20.0, 20_000.0),
    "aggregate": (0.1, 20.0, 40_000.0),
    "window": (1.0, 50.0, 40_000.0),
    "join": (1.0, 300.0, 100_000.0),
    "distinct": (0.5, 50.0, 40_000.0),
    "fan out": (1.0, 0.1, 5_000.0),
    "sink": (1.0, 1.0, 3_000.0),
}
_PRIOR_OF_OTHERS = (1.0, 100.0, 50_000.0)


STATELESS_KINDS = ("select", "project", "split", "union", "fan out")  # behind these a row of a stream still is one


def kind_of(recipe: recipes.Recipe) -> str:
    """Return the word for a recipe's operator that people and policies see."""
    return _KINDS.get(type(recipe), type(recipe).__name__.removesuffix("Recipe").lower())


def prior_of(kind: str) -> tuple[float, float, float]:
    """Return (selectivity, cost per tuple in ns, cost per call in ns) to believe before anything was measured."""
    return _PRIORS.get(kind, _PRIOR_OF_OTHERS)


@cache
def load(place: str) -> Any:
    """Return the class or function at `module:name` of this room."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"millstream.engine.operators.{module}"), name)


def place_of_aggregate(recipe: recipes.AggregateRecipe) -> str:
    """Return where the logic of an aggregate stands: which one it is depends on the window and on when answers leave."""
    window, changes = recipe.window, recipe.emit.kind is recipes.EmitKind.CHANGES
    if window is not None and window.kind in PANE_WINDOWS:
        return "window_changes:ChangingWindowAggregate" if changes else "window_aggregate:WindowAggregate"
    if window is not None and window.kind in ORDERED_WINDOWS:
        return "ordered_aggregate:OrderedAggregate"
    if window is not None and window.kind is recipes.WindowKind.SESSION:
        return _place_of_session(recipe, window)
    if window is None or window.kind in ENDLESS_WINDOWS:
        if recipe.retracts is None:
            return "running_aggregate:InstantAggregate" if recipe.emit.instants else "running_aggregate:RunningAggregate"
        if recipe.emit.instants:
            message = "ISTREAM, DSTREAM and RSTREAM of an aggregate over a change log are not supported"
            raise Unsupported(message, hint="give the inner aggregate a window, or leave the word out")
        if window is None and recipe.emit.kind is not recipes.EmitKind.EVERY:
            return "retracting_aggregate:RetractingAggregate"
    raise Unsupported("this combination of window and EMIT is not supported")


def _place_of_session(recipe: recipes.AggregateRecipe, window: recipes.WindowSpec) -> str:
    """A session of folds is one state; with MAX, where a row may move a cut, and for other aggregates its rows are kept."""
    if recipe.emit.kind is recipes.EmitKind.CHANGES:
        return "window_changes:ChangingSessionAggregate"
    if window.max_us is None and foldable(recipe.aggregates):
        return "session_folds:FoldedSessions"
    if recipe.emit.kind is recipes.EmitKind.EVERY:
        what = "with MAX" if window.max_us is not None else "of an aggregate that needs all values"
        raise Unsupported(f"EMIT EVERY over a SESSION window {what} is not supported", hint="write EMIT CHANGES, or leave EMIT out")
    return "session_aggregate:SessionAggregate"


def _build_window(recipe: recipes.WindowRecipe, inputs: Schema) -> Operator:
    """Return the logic of a window without an aggregate."""
    if recipe.changes:
        logic: Operator = load("window_rows:window_log")(recipe, inputs)
    elif recipe.window.kind is recipes.WindowKind.SESSION:
        logic = load("session_aggregate:SessionedRows")(recipe, inputs)
    else:
        logic = load("window_rows:WindowRows")(recipe)
    return logic


def build_operator(recipe: recipes.Recipe, inputs: Sequence[Schema], deliver: Deliver | None = None) -> Operator:
    """Return the logic that carries out a recipe over inputs of these schemas. Raises Unsupported when there is none."""
    kind, logic = type(recipe), None
    if isinstance(recipe, recipes.AggregateRecipe):
        logic = load(place_of_aggregate(recipe))(recipe, inputs[0])
    elif isinstance(recipe, recipes.WindowRecipe):
        logic = _build_window(recipe, inputs[0])
    elif isinstance(recipe, recipes.SinkRecipe):
        logic = load("row_operators:Sink")(recipe, deliver)
    elif kind in _OF_ANY_INPUT:
        logic = load(_OF_ANY_INPUT[kind])(recipe)
    elif kind in _OF_INPUTS:
        logic = load(_OF_INPUTS[kind])(recipe, inputs)
    elif kind in _OF_ONE_INPUT:
        logic = load(_OF_ONE_INPUT[kind])(recipe, inputs[0])
    if logic is None:
        raise Unsupported(f"{kind_of(recipe)} is not supported in this place")
    made: Operator = logic
    return made
