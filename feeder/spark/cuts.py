"""Where a plan is cut to run on many machines: each operator gets a label, and the plan is cut where the label or the key changes.

| label | which operators | where they run |
| --- | --- | --- |
| anywhere | selections, projections, unions, rows of hopping windows | where the rows are |
| by key | grouping, equi-joins, DISTINCT, rows PARTITION BY | where all rows of the key are brought |
| mergeable | COUNT, SUM, AVG, MIN, MAX over windows or none | where the rows are; their parts are merged by key |
| one place | the rest, with the reason | in one task |

A plan has at most three stages: parts without a key over each stretch of a stream; after the shuffle one part a bucket of keys; and one
part in one place behind it. Rows that leave the second stage are ordered by three columns behind those asked for (K20).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from millstream.engine.aggregates.table import resolve_aggregate
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, DOUBLE, TIMESTAMP, DataType, Kind
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal, columns_used
from millstream.engine.language import recipes
from millstream.engine.language.recipes import AggregateCall, AggregateRecipe, EmitKind, EmitSpec, JoinKind, WindowKind
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.engine.plan.rules.rewriting import remapped
from millstream.feeder.spark.script import Node

ANYWHERE, BY_KEY, MERGEABLE, ONE_PLACE = "anywhere", "by key", "mergeable", "one place"
PLACE = "_pos"
ORDER = (Field("_order_end", TIMESTAMP), Field("_order_start", TIMESTAMP), Field("_order_first", BIGINT))
ORDER_OF_PAIRS = tuple(Field(f.name, BIGINT) for f in ORDER)
REST = "_rest"


@dataclass(frozen=True, slots=True)
class Exchange:
    """What runs before the shuffle and what is shuffled: a part over `streams`, told apart by the columns at `keys` of its output.

    `windows` are further columns to tell rows apart by, where that only spreads the work. Without either all goes to one bucket.
    """

    name: str
    root: Node
    streams: tuple[str, ...]
    keys: tuple[int, ...] = ()
    needs_place: bool = False


@dataclass(frozen=True, slots=True)
class Labelled:
    """One operator as it is explained."""

    operator: str
    label: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a query is cut. `second` runs after the shuffle over streams named as the exchanges, `rest` in one place over REST.

    `by_window`: rows of the second stage stand in the order of their last three columns; else in order of arrival number, the last
    column breaking ties. `reason` says why it runs in one place, where it does.
    """

    label: str
    exchanges: tuple[Exchange, ...]
    second: Node | None = None
    by_window: bool = False
    rest: Node | None = None
    reason: str = ""
    operators: tuple[Labelled, ...] = field(default=())

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that rows come to, in the order of the exchanges."""
        return tuple(dict.fromkeys(s for e in self.exchanges for s in e.streams))

    @property
    def needs_moves(self) -> bool:
        """Whether an answer, or its place, depends on which row of all moved W: an as-of join, an outer join."""
        return self.second is not None and len(self.exchanges) > 1 and _waits(self.second)


class _Uncut(Exception):
    """A part cannot be spread; the text says why."""


def cut(root: Node, in_batches: bool = False) -> Cut:
    """Return how a plan is cut; with `in_batches` for rows that come in batches, where state is kept by bucket and nothing follows it."""
    labels = _Labels()
    try:
        found = _cut_for_batches(root) if in_batches else _cut(root)
    except _Uncut as reason:
        found = Cut(ONE_PLACE, (), reason=str(reason))
    return replace(found, operators=labels.of(root, found))


def base_streams(node: Node) -> tuple[str, ...]:
    """Return the streams that a part reads, left to right."""
    if isinstance(node, SourceNode):
        return (node.stream,)
    return tuple(dict.fromkeys(s for ref in node.inputs for s in base_streams(ref.node)))


def _cut(root: Node) -> Cut:
    _check_sources(root)
    if _is_anywhere(root):
        return Cut(ANYWHERE, (Exchange("x0", root, base_streams(root)),))
    try:
        return _spread(root)
    except _Uncut as reason:
        lower = _lowest(root)
        if lower is None or lower is root:
            raise
        try:
            below = _spread(lower)
        except _Uncut:
            raise reason from None
        if not below.by_window or not _by_bounds(lower):
            raise
        schema = lower.recipe.schema
        return replace(below, rest=_replaced(root, lower, SourceNode(REST, schema)), reason=str(reason))


def _cut_for_batches(root: Node) -> Cut:
    _check_sources(root)
    if _is_anywhere(root):
        return Cut(ANYWHERE, (Exchange("x0", root, base_streams(root)),))
    return _keyed(root, _top(root))


def _check_sources(node: Node) -> None:
    if isinstance(node, SourceNode):
        if node.table:
            raise _Uncut(f"table {node.stream} is joined as it stands at each row")
        return
    if isinstance(node.recipe, recipes.SplitRecipe) or any(ref.output for ref in node.inputs):
        raise _Uncut("a split has two outputs")
    for ref in node.inputs:
        _check_sources(ref.node)


def is_stateless(recipe: recipes.Recipe) -> bool:
    """Whether an operator looks at one row at a time (and at W, which every row brings along)."""
    if isinstance(recipe, recipes.WindowRecipe):
        return not recipe.changes and recipe.window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE)
    return isinstance(recipe, recipes.SelectRecipe | recipes.ProjectRecipe | recipes.UnionRecipe)


def _waits(node: Node) -> bool:
    if isinstance(node, SourceNode):
        return False
    recipe = node.recipe
    waits = isinstance(recipe, recipes.AsofJoinRecipe) or (
        isinstance(recipe, recipes.KeyedJoinRecipe) and recipe.kind is not JoinKind.INNER
    )
    return waits or any(_waits(ref.node) for ref in node.inputs)


def _is_anywhere(node: Node) -> bool:
    if isinstance(node, SourceNode):
        return True
    return is_stateless(node.recipe) and all(_is_anywhere(ref.node) for ref in node.inputs)


def _lowest(root: Node) -> PhysicalNode | None:
    """Return the lowest operator of the chain above which all may run in one place over rows of closed windows, None if there is none."""
    node: Node = root
    stateful: list[PhysicalNode] = []
    while isinstance(node, PhysicalNode):
        if _is_anywhere(node) or len(node.inputs) != 1:
            break
        if not is_stateless(node.recipe):
            stateful.append(node)
        node = node.inputs[0].node
    if not stateful or not all(_may_follow(above.recipe) for above in stateful[:-1]):
        return None
    return stateful[-1]


def _may_follow(recipe: recipes.Recipe) -> bool:
    """Whether an operator's answer over rows of closed windows depends on their order and times alone, not on who closed them when."""
    if isinstance(recipe, AggregateRecipe):
        closes = recipe.window is None or recipe.window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE)
        return closes and recipe.emit == EmitSpec() and recipe.retracts is None
    return isinstance(recipe, recipes.TopRecipe | recipes.RankRecipe)


def _by_bounds(node: PhysicalNode) -> bool:
    recipe = node.recipe
    return (
        isinstance(recipe, AggregateRecipe)
        and recipe.window is not None
        and recipe.window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE)
    )


def _replaced(node: Node, old: PhysicalNode, new: SourceNode) -> Node:
    if node is old:
        return new
    assert isinstance(node, PhysicalNode)
    return replace(node, inputs=tuple(InputRef(_replaced(ref.node, old, new), ref.output) for ref in node.inputs))


# -- stateful parts -----------------------------------------------------------------------------------------------------------


def _spread(root: Node) -> Cut:
    """Return how a part whose top operators look at one row at a time, over one that does not, is spread; _Uncut when it cannot be."""
    top = _top(root)
    if isinstance(top.recipe, AggregateRecipe) and _is_mergeable(top):
        return _merged(root, top)
    return _keyed(root, top)


def _top(root: Node) -> PhysicalNode:
    """Return the topmost operator that keeps state."""
    top = root
    while isinstance(top, PhysicalNode) and is_stateless(top.recipe):
        if len(top.inputs) != 1:
            raise _Uncut("a union over operators that keep state")
        top = top.inputs[0].node
    assert isinstance(top, PhysicalNode)
    return top


def _above(node: Node, top: PhysicalNode, made: Node, extra: Sequence[Field]) -> Node:
    """Put `made` (top's columns, then `extra`) in top's place and let what stands above pass the extra columns through."""
    if node is top:
        return made
    assert isinstance(node, PhysicalNode)
    below = _above(node.inputs[0].node, top, made, extra)
    return replace(node, recipe=_passing(node.recipe, _width(node.inputs[0].node), extra), inputs=(InputRef(below),))


def _width(node: Node) -> int:
    return len(schema_of(node))


def schema_of(node: Node) -> Schema:
    """Return the columns of a node's output."""
    return node.schema if isinstance(node, SourceNode) else node.recipe.schema


def _passing(recipe: recipes.Recipe, width: int, extra: Sequence[Field]) -> recipes.Recipe:
    schema = Schema((*recipe.schema.fields, *extra))
    if isinstance(recipe, recipes.ProjectRecipe):
        passed = tuple(ColumnRef(f.type, width + i, f.name) for i, f in enumerate(extra))
        return recipes.ProjectRecipe(schema, (*recipe.columns, *passed))
    if isinstance(recipe, recipes.SelectRecipe | recipes.UnionRecipe):
        return replace(recipe, schema=schema)
    raise _Uncut("rows of a window over operators that keep state")


def _projected(node: Node, columns: Sequence[Expression], fields: Sequence[Field]) -> PhysicalNode:
    return PhysicalNode(recipes.ProjectRecipe(Schema(tuple(fields)), tuple(columns)), (InputRef(node),))


def _refs(schema: Schema) -> list[Expression]:
    return [ColumnRef(f.type, i, f.name) for i, f in enumerate(schema.fields)]


# -- mergeable ----------------------------------------------------------------------------------------------------------------

_EXACT = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)


def _is_mergeable(node: PhysicalNode) -> bool:
    recipe = node.recipe
    assert isinstance(recipe, AggregateRecipe)
    window, schema = recipe.window, schema_of(node.inputs[0].node)
    return (
        _is_anywhere(node.inputs[0].node)
        and (window is None or (window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE) and not window.slide_within))
        and recipe.emit == EmitSpec()
        and recipe.live is None
        and recipe.retracts is None
        and bool(recipe.keys or recipe.aggregates)
        and all(_merges(call, schema) for call in recipe.aggregates)
    )


def _merges(call: AggregateCall, schema: Schema) -> bool:
    if call.distinct or len(call.arguments) > 1:
        return False
    kind = schema.fields[call.arguments[0]].type.kind if call.arguments else None
    if call.function == "count" or (call.function in ("min", "max") and kind is not None):
        return True
    if call.function == "sum":
        return kind in _EXACT
    return call.function == "avg" and kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE)


def _merged(root: Node, top: PhysicalNode) -> Cut:
    """Aggregate each stretch by itself, then merge what the stretches gave by key and window."""
    recipe = top.recipe
    assert isinstance(recipe, AggregateRecipe)
    below, keys = top.inputs[0].node, recipe.keys
    schema = schema_of(below)
    calls: dict[AggregateCall, int] = {}
    merges: list[str] = []

    def part(call: AggregateCall, merge: str) -> int:
        if call not in calls:
            calls[call] = len(calls)
            merges.append(merge)
        return calls[call]

    finals: list[tuple[AggregateCall, tuple[int, ...]]] = []
    for call in recipe.aggregates:
        if call.function in ("count", "min", "max"):
            finals.append((call, (part(call, "sum" if call.function == "count" else call.function),)))
            continue
        source = schema.fields[call.arguments[0]].type
        total = replace(call, function="sum", type=resolve_aggregate("sum", [source]).result)
        if call.function == "sum":
            finals.append((call, (part(total, "sum"),)))
        else:
            finals.append((call, (part(total, "sum"), part(replace(call, function="count", type=BIGINT), "sum"))))
    first = part(AggregateCall("min", (len(schema),), BIGINT), "min")
    placed = _with_place(below)
    bounds = () if recipe.window is None else (Field("window_start", TIMESTAMP), Field("window_end", TIMESTAMP))
    key_fields = tuple(schema.fields[k] for k in keys)
    parts = tuple(Field(f"part_{i}", call.type) for i, call in enumerate(calls))
    one = AggregateRecipe(Schema((*key_fields, *parts, *bounds)), recipe.window, keys, tuple(calls))
    width = len(keys) + len(parts)
    groups = (*range(len(keys)), *range(width, width + len(bounds)))
    exchange = Exchange("x0", PhysicalNode(one, (InputRef(placed),)), base_streams(below), groups, needs_place=True)

    merging = []
    for i, (call, merge) in enumerate(zip(calls, merges, strict=True)):
        merging.append(AggregateCall(merge, (len(keys) + i,), resolve_aggregate(merge, [call.type]).result))
    group_fields = tuple(one.schema.fields[g] for g in groups)
    merged_fields = tuple(Field(f"part_{i}", call.type) for i, call in enumerate(merging))
    merger = AggregateRecipe(Schema((*group_fields, *merged_fields)), None, groups, tuple(merging))
    node = PhysicalNode(merger, (InputRef(SourceNode("x0", one.schema)),))
    offset = len(groups)

    def merged(i: int) -> Expression:
        return ColumnRef(merging[i].type, offset + i, f"part_{i}")

    columns: list[Expression] = [ColumnRef(f.type, i, f.name) for i, f in enumerate(key_fields)]
    columns += [_finished(call, [merged(i) for i in places]) for call, places in finals]
    start: Expression = ColumnRef(TIMESTAMP, len(keys), "window_start") if bounds else Literal(TIMESTAMP, None)
    end: Expression = ColumnRef(TIMESTAMP, len(keys) + 1, "window_end") if bounds else Literal(TIMESTAMP, None)
    if bounds:
        columns += [start, end]
    columns += [end, start, merged(first)]
    second = _above(root, top, _projected(node, columns, (*recipe.schema.fields, *ORDER)), ORDER)
    return Cut(MERGEABLE, (exchange,), second, by_window=True)


def _finished(call: AggregateCall, merged: list[Expression]) -> Expression:
    if call.function != "avg":
        return build.cast(merged[0], call.type)
    count = build.cast(merged[1], DOUBLE)
    some = build.call(">", [count, Literal(DOUBLE, 0.0)])
    return build.case([(some, build.call("/", [build.cast(merged[0], DOUBLE), count]))], None)


# -- places -------------------------------------------------------------------------------------------------------------------

_PLACE_FIELD = Field(PLACE, BIGINT)


def _with_place(node: Node) -> Node:
    """Return the node with one more column at the end: the row's place in the order of arrival, of a join that of the later row."""
    if isinstance(node, SourceNode):
        return SourceNode(node.stream, Schema((*node.schema.fields, _PLACE_FIELD)))
    recipe = node.recipe
    inputs = tuple(InputRef(_with_place(ref.node)) for ref in node.inputs)
    if isinstance(recipe, recipes.WindowRecipe):
        width, full = _width(node.inputs[0].node), len(recipe.schema)
        fields = (*recipe.schema.fields[:width], _PLACE_FIELD, *recipe.schema.fields[width:])
        made = PhysicalNode(replace(recipe, schema=Schema(fields)), inputs)
        order = [*range(width), *range(width + 1, full + 1), width]
        columns = [ColumnRef(fields[i].type, i, fields[i].name) for i in order]
        return _projected(made, columns, (*recipe.schema.fields, _PLACE_FIELD))
    if isinstance(recipe, recipes.KeyedJoinRecipe):
        return _joined_with_place(node, recipe, inputs, _later)
    return replace(node, recipe=_passing(recipe, _width(node.inputs[0].node), (_PLACE_FIELD,)), inputs=inputs)


def _joined_with_place(node: PhysicalNode, recipe: recipes.KeyedJoinRecipe, inputs: tuple[InputRef, ...], last: Last) -> PhysicalNode:
    width, full = _width(node.inputs[0].node), len(recipe.schema)
    shift = {i: i if i < width else i + 1 for i in range(full)}
    fields = (*recipe.schema.fields[:width], _PLACE_FIELD, *recipe.schema.fields[width:], _PLACE_FIELD)
    residual = None if recipe.residual is None else remapped(recipe.residual, shift)
    made = PhysicalNode(replace(recipe, schema=Schema(fields), residual=residual), inputs)
    columns: list[Expression] = [ColumnRef(fields[shift[i]].type, shift[i], fields[shift[i]].name) for i in range(full)]
    more, more_fields = last(ColumnRef(BIGINT, width, PLACE), ColumnRef(BIGINT, full + 1, PLACE))
    return _projected(made, [*columns, *more], (*recipe.schema.fields, *more_fields))


Last = Callable[[Expression, Expression], tuple[list[Expression], Sequence[Field]]]
"""Makes the last columns of a join of the places of its two rows."""


def _later(left: Expression, right: Expression) -> tuple[list[Expression], Sequence[Field]]:
    return [build.call("greatest", [left, right])], (_PLACE_FIELD,)


def _pair_order(left: Expression, right: Expression) -> tuple[list[Expression], Sequence[Field]]:
    """Pairs that one item lets go stand in the order of their earlier rows, then of the left ones."""
    return [build.call("least", [left, right]), left, Literal(BIGINT, None)], ORDER_OF_PAIRS


def _left_order(left: Expression, right: Expression) -> tuple[list[Expression], Sequence[Field]]:
    return [left, Literal(BIGINT, None), Literal(BIGINT, None)], ORDER_OF_PAIRS


# -- by key -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Key:
    """A value by which rows are brought together: where it stands in the output, and in each exchange."""

    shown: frozenset[int]
    sent: tuple[tuple[int, int], ...]


class _Keying:
    """Finds the exchanges below a part and the keys that all its operators have in common."""

    def __init__(self) -> None:
        self.roots: list[Node] = []

    def keys(self, node: Node) -> list[_Key]:
        """Return the keys of a node's rows; of one that looks at single rows any column may be one."""
        if _is_anywhere(node):
            number = len(self.roots)
            self.roots.append(node)
            return [_Key(frozenset((i,)), ((number, i),)) for i in range(_width(node))]
        assert isinstance(node, PhysicalNode)
        recipe = node.recipe
        if isinstance(recipe, recipes.KeyedJoinRecipe):
            return self._joined(node, recipe)
        if len(node.inputs) != 1:
            raise _Uncut("a union over operators that keep state")
        keys = self.keys(node.inputs[0].node)
        if isinstance(recipe, recipes.SelectRecipe):
            return keys
        if isinstance(recipe, recipes.ProjectRecipe):
            return _picked(keys, [c.position if isinstance(c, ColumnRef) else None for c in recipe.columns])
        kept = _picked(keys, list(_own_keys(recipe)))
        if not kept:
            raise _Uncut(f"{name_of(recipe)} has no key in common with what is below it")
        return kept

    def _joined(self, node: PhysicalNode, recipe: recipes.KeyedJoinRecipe) -> list[_Key]:
        if isinstance(recipe, recipes.TableJoinRecipe):
            raise _Uncut("a table is joined as it stands at each row")
        left, right = (self.keys(ref.node) for ref in node.inputs)
        width = _width(node.inputs[0].node)
        pairs = []
        for at_left, at_right in zip(recipe.left_keys, recipe.right_keys, strict=True):
            ours = next((k for k in left if at_left in k.shown), None)
            theirs = next((k for k in right if at_right in k.shown), None)
            if ours is not None and theirs is not None:
                shown: frozenset[int] = frozenset()
                if recipe.kind in (JoinKind.INNER, JoinKind.LEFT):
                    shown |= ours.shown
                if recipe.kind in (JoinKind.INNER, JoinKind.RIGHT):
                    shown |= {width + i for i in theirs.shown}
                pairs.append(_Key(shown, (*ours.sent, *theirs.sent)))
        if not pairs:
            raise _Uncut("the join has no equality between its sides")
        return pairs


def _picked(keys: list[_Key], places: Sequence[int | None]) -> list[_Key]:
    found = []
    for key in keys:
        shown = frozenset(i for i, p in enumerate(places) if p in key.shown)
        if shown:
            found.append(_Key(shown, key.sent))
    return found


def _own_keys(recipe: recipes.Recipe) -> Sequence[int | None]:
    """Return the positions in the input of the columns of which an operator keeps each value's state apart, in order of its output."""
    if isinstance(recipe, recipes.DistinctRecipe):
        return range(len(recipe.schema))
    assert isinstance(recipe, AggregateRecipe)
    if recipe.window is not None and recipe.window.kind is WindowKind.ROWS:
        return [k if k in recipe.window.partition else None for k in recipe.keys]
    return recipe.keys


_WHOLE_WINDOWS = (WindowKind.HOPPING, WindowKind.CUMULATE, WindowKind.SESSION, WindowKind.SLIDING, WindowKind.NOW, WindowKind.ROWS)


def _check_kept(recipe: recipes.Recipe) -> None:
    """Raise _Uncut for operators whose answers would depend on rows of other keys, or stand in an order that only one place can give."""
    if isinstance(recipe, AggregateRecipe):
        if recipe.retracts is not None:
            raise _Uncut("an aggregate over changes")
        window = recipe.window
        if window is None:
            if not recipe.keys:
                raise _Uncut("an aggregate without a key")
            if recipe.emit.kind is EmitKind.EVERY or recipe.emit.instants:
                raise _Uncut("changes of the whole relation at each instant")
            return
        if recipe.emit != EmitSpec():
            raise _Uncut("early answers of windows")
        if not recipe.keys:
            raise _Uncut(f"{', '.join(c.function.upper() for c in recipe.aggregates) or 'GROUP BY'} without a key, which does not merge")
        if window.slide_within or window.rows_slide or window.kind not in _WHOLE_WINDOWS:
            raise _Uncut(f"the window {window.kind.value.upper()} with what it is asked for here")
        if window.kind is WindowKind.ROWS and not set(window.partition) <= set(recipe.keys):
            raise _Uncut("a window of rows over all keys")
        return
    if isinstance(recipe, recipes.DistinctRecipe) and (recipe.window is None or recipe.window.kind is not WindowKind.SESSION):
        return
    if isinstance(recipe, recipes.JoinRecipe | recipes.AsofJoinRecipe):
        return
    raise _Uncut(f"{name_of(recipe)} answers in an order over all keys")


def _keyed(root: Node, top: PhysicalNode) -> Cut:
    below = [ref.node for ref in top.inputs]
    _check_kept(top.recipe)
    for node in below:
        _check_below(node, top.recipe)
    keying = _Keying()
    keys = keying.keys(top)
    exchanges = []
    for number, part in enumerate(keying.roots):
        places = tuple(dict(key.sent)[number] for key in keys)
        exchanges.append(Exchange(f"x{number}", part, base_streams(part), places, needs_place=False))
    second = _on_exchanges(root, count())
    top_there = second
    while isinstance(top_there, PhysicalNode) and is_stateless(top_there.recipe):
        top_there = top_there.inputs[0].node
    assert isinstance(top_there, PhysicalNode)
    made, by_window = _ordered(top_there)
    extra = schema_of(made).fields[-len(ORDER) :]
    return Cut(BY_KEY, tuple(exchanges), _above(second, top_there, made, extra), by_window)


def _check_below(node: Node, above: recipes.Recipe) -> None:
    """Below an aggregate or DISTINCT an inner join may stand: its rows come when their later row does, wherever that is."""
    if _is_anywhere(node):
        return
    assert isinstance(node, PhysicalNode)
    if is_stateless(node.recipe):
        for ref in node.inputs:
            _check_below(ref.node, above)
        return
    inner = isinstance(node.recipe, recipes.JoinRecipe) and node.recipe.kind is JoinKind.INNER
    if not inner or not isinstance(above, AggregateRecipe):
        raise _Uncut(f"{name_of(above)} over {name_of(node.recipe)}")
    for ref in node.inputs:
        _check_below(ref.node, node.recipe)


def _on_exchanges(node: Node, numbers: Iterator[int]) -> Node:
    """Put exchanges in the place of what runs before the shuffle, numbered as `_Keying` met them: a part read twice is sent twice."""
    if _is_anywhere(node):
        return SourceNode(f"x{next(numbers)}", schema_of(node))
    assert isinstance(node, PhysicalNode)
    return replace(node, inputs=tuple(InputRef(_on_exchanges(ref.node, numbers)) for ref in node.inputs))


def _ordered(top: PhysicalNode) -> tuple[Node, bool]:
    """Return the operator with the three columns of its order, and whether these alone order its rows."""
    recipe = top.recipe
    if isinstance(recipe, AggregateRecipe) and recipe.emit.kind is EmitKind.FINAL:
        return _aggregate_ordered(top, recipe), True
    nothing = Literal(TIMESTAMP, None)
    if isinstance(recipe, recipes.KeyedJoinRecipe):
        inputs = tuple(InputRef(_with_place(ref.node)) for ref in top.inputs)
        return _joined_with_place(top, recipe, inputs, _left_order if isinstance(recipe, recipes.AsofJoinRecipe) else _pair_order), False
    columns = _refs(recipe.schema)
    return _projected(top, [*columns, nothing, nothing, Literal(BIGINT, None)], (*recipe.schema.fields, *ORDER)), False


def _aggregate_ordered(top: PhysicalNode, recipe: AggregateRecipe) -> Node:
    below = _with_place(top.inputs[0].node)
    width = _width(top.inputs[0].node)
    rows = recipe.window is not None and recipe.window.kind is WindowKind.ROWS
    first = AggregateCall("last" if rows else "min", (width,), BIGINT)
    at = len(recipe.keys) + len(recipe.aggregates)
    fields = (*recipe.schema.fields[:at], ORDER[2], *recipe.schema.fields[at:])
    made = replace(recipe, schema=Schema(fields), aggregates=(*recipe.aggregates, first))
    node = PhysicalNode(made, (InputRef(below),))
    columns: list[Expression] = [ColumnRef(f.type, i if i < at else i + 1, f.name) for i, f in enumerate(recipe.schema.fields)]
    bounds: list[Expression] = [Literal(TIMESTAMP, None)] * 2
    if recipe.window is not None:
        bounds = [ColumnRef(TIMESTAMP, at + 2, "window_end"), ColumnRef(TIMESTAMP, at + 1, "window_start")]
    return _projected(node, [*columns, *bounds, ColumnRef(BIGINT, at, ORDER[2].name)], (*recipe.schema.fields, *ORDER))


# -- what is read, and what is told -------------------------------------------------------------------------------------------


def columns_read(node: Node, wanted: set[int] | None = None) -> dict[str, set[int]]:
    """Return which columns of each stream a part reads, by position; `wanted` are those of its own output, None: all."""
    wanted = set(range(_width(node))) if wanted is None else wanted
    if isinstance(node, SourceNode):
        return {node.stream: set(wanted)}
    recipe = node.recipe
    asked: set[int] | None = None
    if isinstance(recipe, recipes.ProjectRecipe):
        asked = set[int]().union(*(columns_used(recipe.columns[i]) for i in wanted))
    elif isinstance(recipe, recipes.SelectRecipe):
        asked = wanted | columns_used(recipe.condition)
    elif isinstance(recipe, recipes.UnionRecipe):
        asked = wanted
    elif isinstance(recipe, AggregateRecipe):
        asked = {*recipe.keys, *(a for c in recipe.aggregates for a in c.arguments)}
        asked |= {c.filter for c in recipe.aggregates if c.filter is not None}
        asked |= set() if recipe.window is None else set(recipe.window.partition)
        asked |= {p for p in (recipe.live, recipe.retracts) if p is not None}
    found: dict[str, set[int]] = {}
    for ref in node.inputs:
        for stream, columns in columns_read(ref.node, asked).items():
            found.setdefault(stream, set()).update(columns)
    return found


def name_of(recipe: recipes.Recipe) -> str:
    """Return what people call an operator."""
    if isinstance(recipe, AggregateRecipe):
        calls = ", ".join(c.function.upper() for c in recipe.aggregates) or "GROUP BY"
        return f"{calls} {'' if recipe.window is None else recipe.window.kind.value + ' window '}".strip()
    words = {
        recipes.SelectRecipe: "WHERE",
        recipes.ProjectRecipe: "columns",
        recipes.UnionRecipe: "UNION ALL",
        recipes.JoinRecipe: "JOIN",
        recipes.AsofJoinRecipe: "ASOF JOIN",
        recipes.TableJoinRecipe: "table JOIN",
        recipes.DistinctRecipe: "DISTINCT",
        recipes.UnnestRecipe: "UNNEST",
        recipes.TopRecipe: "ORDER BY LIMIT",
        recipes.RankRecipe: "rank",
        recipes.LagRecipe: "LAG",
        recipes.RelationToStreamRecipe: "a relation's stream",
        recipes.WindowRecipe: "rows of a window",
        recipes.SplitRecipe: "split",
    }
    return words[type(recipe)]


class _Labels:
    """Labels each operator of a plan as the cut has it."""

    def of(self, root: Node, found: Cut) -> tuple[Labelled, ...]:
        """Return the operators, the streams first."""
        lines: list[Labelled] = []
        seen: set[int] = set()
        lowest = _lowest(root) if found.rest is not None else None

        def visit(node: Node, above: bool) -> None:
            if id(node) in seen:
                return
            seen.add(id(node))
            if isinstance(node, SourceNode):
                lines.append(Labelled(f"read {node.stream}", ANYWHERE if found.label != ONE_PLACE else ONE_PLACE))
                return
            here = above and node is not lowest
            for ref in node.inputs:
                visit(ref.node, here)
            if found.label == ONE_PLACE or here:
                label, reason = ONE_PLACE, found.reason
            elif _is_anywhere(node):
                label, reason = ANYWHERE, ""
            else:
                label, reason = found.label, ""
            lines.append(Labelled(name_of(node.recipe), label, reason))

        visit(root, lowest is not None)
        return tuple(lines)


def type_names(types: Sequence[DataType]) -> str:
    """Return types as text."""
    return ", ".join(map(str, types))
