"""What the operators of a query remember, and a warning where that has no bound (C41)."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.engine.aggregates.table import foldable
from millstream.engine.data.durations import duration_text
from millstream.engine.data.types import DOUBLE
from millstream.engine.language import recipes
from millstream.engine.language.recipes import EmitKind, Recipe, WindowKind, WindowSpec
from millstream.engine.plan.physical import PhysicalNode, PhysicalQuery, SourceNode
from millstream.engine.sketches.contract import SKETCHED, synopsis_kind
from millstream.engine.windows.early import EMPTY_WINDOWS_MAX

ENDLESS = (WindowKind.UNBOUNDED, WindowKind.LANDMARK)


def operator_name(recipe: Recipe) -> str:
    """Return the word for an operator: `select`, `window join` …"""
    name = type(recipe).__name__.removesuffix("Recipe")
    return "".join(f" {c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _recipes(query: PhysicalQuery) -> Iterator[Recipe]:
    """Yield the recipe of each operator once, inputs first."""
    seen: set[int] = set()  # equal parts of a plan are one node

    def visit(node: PhysicalNode | SourceNode) -> Iterator[Recipe]:
        if isinstance(node, SourceNode) or id(node) in seen:
            return
        seen.add(id(node))
        for ref in node.inputs:
            yield from visit(ref.node)
        yield node.recipe

    yield from visit(query.root)


def state_lines(query: PhysicalQuery) -> list[str]:
    """Return what each operator that remembers anything holds at most."""
    found = [(operator_name(recipe), state_bound(recipe)) for recipe in _recipes(query)]
    return [f"{name}: {held}" for name, held in found if held is not None] or ["none"]


def unbounded_state(query: PhysicalQuery) -> tuple[str, ...]:
    """Return a sentence for each operator whose state may grow for ever."""
    found = []
    for recipe in _recipes(query):
        if isinstance(recipe, recipes.AggregateRecipe) and recipe.keys and recipe.retracts is None and _is_endless(recipe.window):
            found.append("the state of this GROUP BY grows with the number of keys; a window or [UNBOUNDED STATE n ROWS] bounds it")
        elif isinstance(recipe, recipes.AggregateRecipe | recipes.WindowRecipe) and recipe.window is not None and recipe.window.partition:
            found.append("the state of this window grows with the number of partitions")
        elif isinstance(recipe, recipes.RunningTopRecipe) and recipe.partition:
            found.append(f"{_rows(recipe.limit)} of each group are kept, and the groups grow with the number of keys; a window bounds them")
        elif isinstance(recipe, recipes.LagRecipe) and recipe.partition:
            found.append("the state of this LAG grows with the number of partitions")
        elif isinstance(recipe, recipes.OverRecipe) and any(map(_keeps_partitions, recipe.parts)):
            found.append("the state of this OVER grows with the number of partitions; RANGE from so much time PRECEDING bounds it")
        elif isinstance(recipe, recipes.MatchRecipe):
            found += _match_growth(recipe.spec)
        elif isinstance(recipe, recipes.DistinctRecipe) and recipe.window is None:
            found.append("the state of this DISTINCT grows with the number of different rows; a window bounds it")
        elif isinstance(recipe, recipes.JoinRecipe) and recipe.lower_us is recipe.upper_us is None:
            found.append("the state of this join grows with both streams; WITHIN bounds it")
        elif isinstance(recipe, recipes.JoinRecipe) and None in (recipe.lower_us, recipe.upper_us):
            found.append("the state of this join grows on one side, as its bound in time is one-sided; WITHIN bounds both")
    return tuple(dict.fromkeys(found))


def _is_endless(window: WindowSpec | None) -> bool:
    if window is None:
        return True
    return window.kind in ENDLESS and window.state_rows_max is None


def state_bound(recipe: Recipe) -> str | None:
    """Return the bound of an operator's state in words; None when it holds nothing."""
    if isinstance(recipe, recipes.AggregateRecipe):
        return _aggregate_state(recipe)
    if isinstance(recipe, recipes.GapFillRecipe):
        return "each key that ever had a row: GROWS WITH THE NUMBER OF KEYS"
    if isinstance(recipe, recipes.InterpolateRecipe):
        return f"the rows of each key since its last value, of {EMPTY_WINDOWS_MAX:,} windows at most"
    if isinstance(recipe, recipes.WindowRecipe):
        if not recipe.changes and recipe.window.kind is not WindowKind.SESSION:
            return None  # each row leaves at once
        return _window_state(recipe.window)
    if isinstance(recipe, recipes.JoinRecipe):
        return _join_state(recipe)
    if isinstance(recipe, recipes.TableSubqueryRecipe):
        return "the rows of the table, and what the subquery made of them last"
    if isinstance(recipe, recipes.TableJoinRecipe | recipes.TableChangesRecipe):
        return "the rows of the table"
    if isinstance(recipe, recipes.ChangingTopRecipe):
        return "the rows that stand"
    if isinstance(recipe, recipes.ViewChangesRecipe):
        return "the rows of the view, until they have been shown"
    if isinstance(recipe, recipes.ChangeJoinRecipe):
        return "the rows that stand on both sides"
    if isinstance(recipe, recipes.StandingRowsRecipe):
        return "the rows that stand"
    if isinstance(recipe, recipes.KeptRowsRecipe):
        return _rows(recipe.rows_max or 0) if recipe.kept_us is None else f"the rows of {duration_text(recipe.kept_us)} of event time"
    if isinstance(recipe, recipes.SubqueryRecipe):
        return f"the rows of open windows, {_ABOVE}" if recipe.ends is not None else "all rows, until both inputs end"
    if isinstance(recipe, recipes.AsofJoinRecipe):
        return _asof_state(recipe)
    if isinstance(recipe, recipes.DistinctRecipe):
        return "the different rows of open windows" if recipe.window else "every different row ever seen: GROWS WITHOUT BOUND"
    if isinstance(recipe, recipes.TopRecipe):
        ties = " and their ties" if recipe.with_ties else ""
        return f"{recipe.limit} rows an open window{ties}; till the others are dropped at most twice as many and 256"
    if isinstance(recipe, recipes.RankRecipe):
        return f"the rows of open windows, {_ABOVE}"
    if isinstance(recipe, recipes.RunningTopRecipe):
        return f"{_rows(recipe.limit)} of each group ever seen: GROWS WITH THE NUMBER OF KEYS" if recipe.partition else _rows(recipe.limit)
    if isinstance(recipe, recipes.LagRecipe):
        return f"{recipe.offset} rows a partition, {_ABOVE}"
    if isinstance(recipe, recipes.OverRecipe):
        return "; ".join(dict.fromkeys(map(_over_state, recipe.parts)))
    if isinstance(recipe, recipes.MatchRecipe):
        return _match_state(recipe.spec)
    if isinstance(recipe, recipes.RelationToStreamRecipe):
        return f"the relation, {_ABOVE.replace('rows', 'changes')}"
    return None


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _keeps_partitions(part: recipes.OverPart) -> bool:
    return bool(part.partition) and (part.frame.by_rank or part.frame.preceding is None)


def _match_growth(spec: recipes.MatchSpec) -> list[str]:
    found = []
    if spec.within_us is None:
        found.append("the state of this MATCH_RECOGNIZE may grow without bound, as a match may take any time; WITHIN bounds it")
    if spec.partition and (spec.back or any(value.word == "number" for value in spec.measures)):
        what = "PREV" if spec.back else "MATCH_NUMBER"
        found.append(f"the state of this MATCH_RECOGNIZE grows with the number of partitions, as {what} needs something of each")
    return found


def _match_state(spec: recipes.MatchSpec) -> str:
    longest = "until they are decided" if spec.within_us is None else f"for {duration_text(spec.lag_us or 0)} at most"
    back = f"; {_rows(spec.back)} a partition before these, for PREV" if spec.back else ""
    return f"the rows of matches that are not decided, {longest}{back}; {_ABOVE}"


def _over_state(part: recipes.OverPart) -> str:
    frame, unit = part.frame, "one cell" if foldable(part.aggregates) else "the values"
    waits = ""
    if frame.following > 0:
        waits = f"{frame.following} rows a partition" if frame.by_rank else f"rows of the last {duration_text(frame.following)}"
        waits = f"; {waits}, whose frames are not complete"
    if frame.preceding is None:
        return f"one cell a partition{waits}, {_ABOVE}"
    if frame.by_rank:
        return f"{unit} of each of {max(0, frame.preceding) + max(0, frame.following) + 1} rows a partition{waits}, {_ABOVE}"
    each = "a partition and instant" if unit == "one cell" else "of each row"
    return f"{unit} {each} of the last {duration_text(max(0, frame.preceding) + max(0, frame.following))}{waits}, {_ABOVE}"


def _aggregate_state(recipe: recipes.AggregateRecipe) -> str:
    groups = "one group" if not recipe.keys else "the groups"
    window = recipe.window
    if window is None:
        if recipe.retracts is not None:
            return f"the rows that stand{_values_state(recipe)}"
        bound = "" if not recipe.keys else ": GROWS WITH THE NUMBER OF KEYS"
        return f"{groups} ever seen{bound}{_values_state(recipe)}"
    values, folded = _values_state(recipe), foldable(recipe.aggregates)
    if window.kind in (WindowKind.SLIDING, WindowKind.NOW, WindowKind.ROWS):
        unit = (
            "each row's values" if not folded else ("one cell a row" if window.kind is WindowKind.ROWS else "one cell a group and instant")
        )
        return f"{unit} of {_window_state(window)}{values}"
    if window.kind is WindowKind.SESSION:
        if folded and window.max_us is None and recipe.emit.kind is not EmitKind.CHANGES:
            return f"one state an open session{' and key' if recipe.keys else ''}, {_ABOVE}"
        return f"the rows of open sessions{values}"
    return f"{groups} of {_window_state(window)}{values}"


def holds_rows(recipe: recipes.AggregateRecipe) -> bool:
    """The operator holds its window's rows whatever the aggregates are, so an APPROX_ one is computed exactly."""
    window = recipe.window
    if window is None:
        return recipe.retracts is not None
    return window.kind in (WindowKind.SLIDING, WindowKind.NOW, WindowKind.ROWS, WindowKind.SESSION)


def _values_state(recipe: recipes.AggregateRecipe) -> str:
    """Return what the aggregates keep of each group's values, where that is more than a number."""
    if holds_rows(recipe):
        return " (as rows, so APPROX_ functions are exact)" if any(c.function in SKETCHED for c in recipe.aggregates) else ""
    place = "group" if recipe.window is None or recipe.window.kind in ENDLESS else "group and pane"
    kept = []
    for call in recipe.aggregates:
        if call.function in SKETCHED:
            most = synopsis_kind(call, DOUBLE).nbytes_max
            kept.append(f"for {call.function.upper()} a synopsis of at most {-(-most // 1024)} KB a {place}")
        elif not foldable([call]):
            kept.append(f"for {call.function.upper()} each value")
    return "".join(f"; {k}" for k in dict.fromkeys(kept))


_ABOVE = "rows that the watermark has not passed"


def _window_state(spec: WindowSpec) -> str:
    if spec.kind in (WindowKind.HOPPING, WindowKind.CUMULATE):
        return f"the last {duration_text(spec.range_us)} plus the delay of the watermark"
    if spec.kind in (WindowKind.SLIDING, WindowKind.NOW):
        return f"the last {duration_text(spec.range_us or 1)}, {_ABOVE}"
    if spec.kind is WindowKind.ROWS:
        return f"the last {spec.rows} rows{' of each partition' if spec.partition else ''}, {_ABOVE}"
    if spec.kind is WindowKind.SESSION:
        return "the rows of open sessions"
    if spec.kind is WindowKind.UNBOUNDED:
        most = spec.state_rows_max
        return f"at most {most} rows" if most is not None else "everything: GROWS WITH THE NUMBER OF KEYS"
    return "the landmark's span"


def _join_state(recipe: recipes.JoinRecipe) -> str:
    left = "without bound" if recipe.upper_us is None else duration_text(max(recipe.upper_us, 0))
    right = "without bound" if recipe.lower_us is None else duration_text(max(-recipe.lower_us, 0))
    return f"left rows for {left}, right rows for {right}, plus the delay of the watermarks; till they are dropped at most twice as many"


def _asof_state(recipe: recipes.AsofJoinRecipe) -> str:
    if not recipe.forward:
        return "the versions a left row may still need, and left rows until the right watermark passes them"
    if recipe.within_us is None:
        return "left rows until a right row of their key follows: GROWS WITHOUT BOUND where none does"
    return f"rows of both sides for {duration_text(recipe.within_us)}"
