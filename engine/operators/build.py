"""From a recipe to a running operator's logic: one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.engine.errors import Unsupported
from millstream.engine.operators.asof_join import AsofJoin
from millstream.engine.operators.contract import Operator
from millstream.engine.operators.distinct import Distinct
from millstream.engine.operators.instant_aggregate import InstantAggregate
from millstream.engine.operators.join import WindowJoin
from millstream.engine.operators.lag import Lag
from millstream.engine.operators.ordered_aggregate import OrderedAggregate
from millstream.engine.operators.project import Project
from millstream.engine.operators.rank import Rank
from millstream.engine.operators.recipes import (
    AggregateRecipe,
    AsofJoinRecipe,
    DistinctRecipe,
    EmitKind,
    JoinRecipe,
    LagRecipe,
    ProjectRecipe,
    RankRecipe,
    Recipe,
    RelationToStreamRecipe,
    SelectRecipe,
    SinkRecipe,
    SplitRecipe,
    TableJoinRecipe,
    TopRecipe,
    UnionRecipe,
    WindowKind,
    WindowRecipe,
    WindowSpec,
)
from millstream.engine.operators.relation_to_stream import RelationToStream
from millstream.engine.operators.retracting_aggregate import RetractingAggregate
from millstream.engine.operators.running_aggregate import RunningAggregate
from millstream.engine.operators.select import Select
from millstream.engine.operators.session_aggregate import SessionAggregate, SessionedRows
from millstream.engine.operators.session_folds import FoldedSessions
from millstream.engine.operators.shared_aggregate import SharedAggregate
from millstream.engine.operators.sink import Sink
from millstream.engine.operators.split import Split
from millstream.engine.operators.table_join import TableJoin
from millstream.engine.operators.top import Top
from millstream.engine.operators.union import Union
from millstream.engine.operators.window_aggregate import WindowAggregate
from millstream.engine.operators.window_changes import ChangingSessionAggregate, ChangingWindowAggregate
from millstream.engine.operators.window_log import window_log
from millstream.engine.operators.window_rows import WindowRows
from millstream.engine.schema import Schema
from millstream.engine.train import Train
from millstream.engine.windows.folds import foldable

Deliver = Callable[[Train], None]
ORDERED_WINDOWS = (WindowKind.SLIDING, WindowKind.NOW, WindowKind.ROWS)
ENDLESS_WINDOWS = (WindowKind.UNBOUNDED, WindowKind.LANDMARK)
PANE_WINDOWS = (WindowKind.HOPPING, WindowKind.CUMULATE)

_KINDS: dict[type[Recipe], str] = {
    SelectRecipe: "select",
    ProjectRecipe: "project",
    SplitRecipe: "split",
    UnionRecipe: "union",
    AggregateRecipe: "aggregate",
    WindowRecipe: "window",
    JoinRecipe: "join",
    DistinctRecipe: "distinct",
    SinkRecipe: "sink",
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
    "sink": (1.0, 1.0, 3_000.0),
}
_PRIOR_OF_OTHERS = (1.0, 100.0, 50_000.0)


STATELESS_KINDS = ("select", "project", "split", "union")  # behind these a row of a stream still is one


def kind_of(recipe: Recipe) -> str:
    """Return the word for a recipe's operator that people and policies see."""
    return _KINDS.get(type(recipe), type(recipe).__name__.removesuffix("Recipe").lower())


def prior_of(kind: str) -> tuple[float, float, float]:
    """Return (selectivity, cost per tuple in ns, cost per call in ns) to believe before anything was measured."""
    return _PRIORS.get(kind, _PRIOR_OF_OTHERS)


def build_aggregate(recipe: AggregateRecipe, inputs: Schema) -> Operator:
    """Return the logic of an aggregate: which one depends on the window and on when answers leave."""
    window = recipe.window
    if window is not None and window.kind in PANE_WINDOWS:
        return ChangingWindowAggregate(recipe, inputs) if recipe.emit.kind is EmitKind.CHANGES else WindowAggregate(recipe, inputs)
    if window is not None and window.kind in ORDERED_WINDOWS:
        return OrderedAggregate(recipe, inputs)
    if window is not None and window.kind is WindowKind.SESSION:
        return _session_aggregate(recipe, window, inputs)
    if window is None or window.kind in ENDLESS_WINDOWS:
        if recipe.retracts is None:
            return InstantAggregate(recipe, inputs) if recipe.emit.instants else RunningAggregate(recipe, inputs)
        if recipe.emit.instants:
            message = "ISTREAM, DSTREAM and RSTREAM of an aggregate over a change log are not supported"
            raise Unsupported(message, hint="give the inner aggregate a window, or leave the word out")
        if window is None and recipe.emit.kind is not EmitKind.EVERY:
            return RetractingAggregate(recipe, inputs)
    raise Unsupported("this combination of window and EMIT is not supported")


def _session_aggregate(recipe: AggregateRecipe, window: WindowSpec, inputs: Schema) -> Operator:
    """A session of folds is one state; with MAX, where a row may move a cut, and for other aggregates its rows are kept."""
    if recipe.emit.kind is EmitKind.CHANGES:
        return ChangingSessionAggregate(recipe, inputs)
    if window.max_us is None and foldable(recipe.aggregates):
        return FoldedSessions(recipe, inputs)
    if recipe.emit.kind is EmitKind.EVERY:
        what = "with MAX" if window.max_us is not None else "of an aggregate that needs all values"
        raise Unsupported(f"EMIT EVERY over a SESSION window {what} is not supported", hint="write EMIT CHANGES, or leave EMIT out")
    return SessionAggregate(recipe, inputs)


def build_window(recipe: WindowRecipe, inputs: Schema) -> Operator:
    """Return the logic of a window without an aggregate."""
    if recipe.changes:
        return window_log(recipe, inputs)
    if recipe.window.kind is WindowKind.SESSION:
        return SessionedRows(recipe, inputs)
    return WindowRows(recipe)


def build_operator(recipe: Recipe, inputs: Sequence[Schema], deliver: Deliver | None = None, *, shared: bool = False) -> Operator:
    """Return the logic that carries out a recipe over inputs of these schemas. Unsupported when there is none.

    `shared`: an aggregate over panes that other queries may join.
    """
    if shared and isinstance(recipe, AggregateRecipe):
        return SharedAggregate(recipe, inputs[0])
    if isinstance(recipe, SelectRecipe):
        return Select(recipe)
    if isinstance(recipe, ProjectRecipe):
        return Project(recipe)
    if isinstance(recipe, SplitRecipe):
        return Split(recipe)
    if isinstance(recipe, UnionRecipe):
        return Union(recipe)
    if isinstance(recipe, SinkRecipe):
        return Sink(recipe, deliver)
    if isinstance(recipe, JoinRecipe):
        return WindowJoin(recipe, inputs)
    if isinstance(recipe, AsofJoinRecipe):
        return AsofJoin(recipe, inputs)
    if isinstance(recipe, TableJoinRecipe):
        return TableJoin(recipe, inputs)
    if isinstance(recipe, WindowRecipe):
        return build_window(recipe, inputs[0])
    if isinstance(recipe, DistinctRecipe):
        return Distinct(recipe, inputs[0])
    if isinstance(recipe, TopRecipe):
        return Top(recipe, inputs[0])
    if isinstance(recipe, LagRecipe):
        return Lag(recipe, inputs[0])
    if isinstance(recipe, RankRecipe):
        return Rank(recipe, inputs[0])
    if isinstance(recipe, RelationToStreamRecipe):
        return RelationToStream(recipe, inputs[0])
    if isinstance(recipe, AggregateRecipe):
        return build_aggregate(recipe, inputs[0])
    raise Unsupported(f"{kind_of(recipe)} is not supported in this place")
