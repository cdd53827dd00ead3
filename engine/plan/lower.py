"""From the logical plan to recipes. What the engine cannot run is refused here with the clause named.

Operators compare columns, so a key of a join that is an expression is computed by a projection below the join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass, members_of
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import TEXT
from millstream.engine.expressions.ir import ColumnRef, Expression
from millstream.engine.language import recipes
from millstream.engine.plan import logical
from millstream.engine.plan.join_binder import moved
from millstream.engine.plan.logical import walk_plan
from millstream.engine.plan.physical import InputRef, PhysicalNode, PhysicalQuery, SourceNode
from millstream.engine.plan.rules.rewriting import substituted
from millstream.engine.plan.windows import PER_WINDOW, fuse, window_below


@dataclass(frozen=True, slots=True)
class KeyedSides:
    """Both inputs with their key columns, their positions, and which output columns belong to the logical join."""

    left: logical.Node
    right: logical.Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_width: int
    right_width: int

    @property
    def kept(self) -> list[int]:
        """Return the positions of the logical join's attributes among all output columns."""
        start = len(self.left.attributes)
        return [*range(self.left_width), *range(start, start + self.right_width)]

    def residual(self, condition: Expression | None) -> Expression | None:
        """Return the condition over the output columns."""
        return None if condition is None else moved(condition, self.left_width, len(self.left.attributes) - self.left_width)


def keyed(node: logical.KeyedJoin) -> KeyedSides:
    """Return the inputs of the join with all its keys as columns."""
    left, left_keys = _extended(node.left, [key.left for key in node.keys], "left_key")
    right, right_keys = _extended(node.right, [key.right for key in node.keys], "right_key")
    return KeyedSides(left, right, left_keys, right_keys, len(node.left.attributes), len(node.right.attributes))


def _extended(node: logical.Node, keys: list[Expression], name: str) -> tuple[logical.Node, tuple[int, ...]]:
    extra: dict[Expression, int] = {}
    positions = []
    for key in keys:
        if isinstance(key, ColumnRef):
            positions.append(key.position)
            continue
        positions.append(len(node.attributes) + extra.setdefault(key, len(extra)))
    if not extra:
        return node, tuple(positions)
    attributes = node.attributes + tuple(logical.Attribute(f"{name}_{i}", e.type) for i, e in enumerate(extra))
    return logical.Project(attributes=attributes, input=node, expressions=(*logical.passing(node.attributes), *extra)), tuple(positions)


def _keyed_changes(node: logical.Node, keys: list[Expression], name: str) -> tuple[logical.Node, tuple[int, ...]]:
    """Return a change log with its keys as columns, and their positions; the kind of the change stays the last."""
    extended, positions = _extended(node, keys, name)
    if extended is node:
        return node, positions
    assert isinstance(extended, logical.Project)
    last = len(node.attributes) - 1

    def turned(parts: Any) -> Any:
        return (*parts[:last], *parts[last + 1 :], parts[last])

    made = replace(extended, attributes=turned(extended.attributes), expressions=turned(extended.expressions))
    return made, tuple(p - 1 if p > last else p for p in positions)


def lower(query: logical.LogicalQuery) -> PhysicalQuery:
    """Return the physical query. Equal parts of the plan become one node, so that they run once."""
    is_chain = all(len(node.inputs) < 2 for node in walk_plan(query.root))
    root = _Lowering(is_chain=is_chain).lower(query.root)
    if root.output:
        root = _kept(root, query.root)
    if query.options.materialized and not isinstance(query.root, logical.KeptRows):  # which keeps the rows itself
        root = InputRef(PhysicalNode(recipes.StandingRowsRecipe(query.root.schema), (root,)))
    node, splits = root.node, tuple[str, ...]()
    if query.options.split > 1:
        from millstream.engine.plan.splitting import split_by_key  # few are

        node, splits = split_by_key(node, query.options.split)
    return PhysicalQuery(node, query.root.schema, query.emit, query.options, query.change_kind, query.notes, splits)


def _kept(reference: InputRef, node: logical.Node) -> InputRef:
    """A query's root has one output; put a projection behind the second output of a split."""
    expressions = tuple(a.reference(i) for i, a in enumerate(node.attributes))
    return InputRef(PhysicalNode(recipes.ProjectRecipe(node.schema, expressions), (reference,)))


_INPUTS = ("input", "left", "right", "branches")


class _Lowering:
    """Lowers the nodes of one query, each different one once."""

    def __init__(self, *, is_chain: bool) -> None:
        self._is_chain = is_chain  # each node stands on the next, so that no two can be equal
        self._done: dict[int, InputRef] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._numbered: dict[int, tuple[int, logical.Node]] = {}
        self._instants = False  # below ISTREAM, DSTREAM or RSTREAM, which look at the relation at every instant
        self._splits: dict[tuple[InputRef, recipes.SplitRecipe], PhysicalNode] = {}
        self._closing: set[int] = set()  # windows of rows above which a Top or a Rank answers when they close

    def lower(self, node: logical.Node) -> InputRef:
        """Return the physical node (and output) that gives this node's rows."""
        if self._is_chain:
            return _METHODS[type(node)](self, node)
        number = self._number(node)
        found = self._done.get(number)
        if found is None:
            found = self._done[number] = _METHODS[type(node)](self, node)
        return found

    def _number(self, node: logical.Node) -> int:
        """Return a number that equal nodes have in common. Each is hashed once, not once more for every node above it."""
        known = self._numbered.get(id(node))
        if known is not None:
            return known[0]
        inputs = tuple(self._number(below) for below in node.inputs)
        own = tuple([getattr(node, name) for name in members_of(type(node)) if name not in _INPUTS])
        number = self._numbers.setdefault((type(node), own, inputs), len(self._numbers))
        self._numbered[id(node)] = number, node
        return number

    def _made(self, recipe: recipes.Recipe, node: logical.Node, *inputs: InputRef) -> InputRef:
        return InputRef(PhysicalNode(recipe, inputs, node.hints.selectivity, node.hints.cost_us))

    # -- sources and stateless steps ------------------------------------------------------------------------------------------

    def _scan(self, node: logical.Scan) -> InputRef:
        return InputRef(SourceNode(node.stream, node.schema))

    def _table(self, node: logical.TableScan) -> InputRef:
        return InputRef(SourceNode(node.table, Schema((*node.schema.fields, Field("op", TEXT, False))), table=True))

    def _table_changes(self, node: logical.TableChanges) -> InputRef:
        if isinstance(node.input, logical.Scan):
            return self._made(recipes.ViewChangesRecipe(node.schema), node, self.lower(node.input))
        assert isinstance(node.input, logical.TableScan)
        return self._made(recipes.TableChangesRecipe(node.schema, node.input.key), node, self.lower(node.input))

    def _filter(self, node: logical.Filter) -> InputRef:
        return self._made(recipes.SelectRecipe(node.schema, node.condition), node, self.lower(node.input))

    def _project(self, node: logical.Project) -> InputRef:
        below = self.lower(node.input)
        schema = node.schema
        if all(isinstance(e, ColumnRef) and e.position == i for i, e in enumerate(node.expressions)) and schema == node.input.schema:
            return below
        recipe = recipes.ProjectRecipe(schema, node.expressions)
        return self._picked(PhysicalNode(recipe, (below,), node.hints.selectivity, node.hints.cost_us))

    def _picked(self, made: PhysicalNode) -> InputRef:
        """A projection of which either half only picks columns becomes one with the projection below it."""
        upper, under = made.recipe, made.inputs[0].node
        assert isinstance(upper, recipes.ProjectRecipe)
        if not isinstance(under, PhysicalNode) or not isinstance(under.recipe, recipes.ProjectRecipe):
            return InputRef(made)
        lower_columns = under.recipe.columns
        if not all(isinstance(e, ColumnRef) for e in upper.columns) and not all(isinstance(e, ColumnRef) for e in lower_columns):
            return InputRef(made)
        columns = tuple(substituted(e, lower_columns) for e in upper.columns)
        return InputRef(replace(made, recipe=recipes.ProjectRecipe(upper.schema, columns), inputs=under.inputs))

    def _split(self, node: logical.Split) -> InputRef:
        below = self.lower(node.input)
        recipe = recipes.SplitRecipe(node.schema, node.condition)
        physical = self._splits.get((below, recipe))
        if physical is None:
            physical = PhysicalNode(recipe, (below,), node.hints.selectivity, node.hints.cost_us)
            self._splits[(below, recipe)] = physical
        return InputRef(physical, 0 if node.keep else 1)

    def _union(self, node: logical.Union) -> InputRef:
        inputs = [self.lower(branch) for branch in node.branches]
        return self._made(recipes.UnionRecipe(node.schema, len(inputs)), node, *inputs)

    # -- windows and aggregates -----------------------------------------------------------------------------------------------

    def _window(self, node: logical.Window) -> InputRef:
        kind = node.spec.kind
        if node.changes:
            return self._made(recipes.WindowRecipe(node.schema, node.spec, changes=True), node, self.lower(node.input))
        if kind in PER_WINDOW:
            spec, keys = replace(node.spec, partition=()), node.spec.partition
            closes = id(node) in self._closing and kind is not recipes.WindowKind.SESSION
            return self._made(recipes.WindowRecipe(node.schema, spec, keys, closes=closes), node, self.lower(node.input))
        raise Unsupported(
            f"window_start and window_end of a [{kind.value.upper()}] window without an aggregate are not supported",
            hint="select the event time instead",
        )

    def _aggregate(self, node: logical.Aggregate) -> InputRef:
        if not node.windowed:
            recipe = recipes.AggregateRecipe(node.schema, None, node.keys, node.items, self._emit(node), retracts=node.retracts)
            return self._made(recipe, node, self.lower(node.input))
        if window_below(node.input) is None:
            raise AssertionError("a windowed aggregate without a window below")
        fused = fuse(node)
        keys = tuple(fused.mapping[k] for k in node.keys)
        spec = self._session_keys(fused.spec, keys)
        calls = tuple(item.moved(fused.mapping) for item in node.items)
        emit = self._emit(node)
        if not (emit.empty and (keys or any(call.carried or call.interpolated for call in calls))):
            return self._made(recipes.AggregateRecipe(node.schema, spec, keys, calls, emit, fused.live), node, self.lower(fused.node))
        plain = tuple(replace(call, carried=False, interpolated=False) for call in calls)  # so that others can share it
        recipe = recipes.AggregateRecipe(node.schema, spec, keys, plain, replace(emit, empty=not keys), fused.live)
        carrying = tuple(replace(call, interpolated=False) for call in calls)
        filled = recipes.GapFillRecipe(node.schema, spec, len(keys), carrying)
        made = self._made(filled, node, self._made(recipe, node, self.lower(fused.node)))
        between = tuple(len(keys) + place for place, call in enumerate(calls) if call.interpolated)
        return self._made(recipes.InterpolateRecipe(node.schema, len(keys), between), node, made) if between else made

    def _emit(self, node: logical.Aggregate) -> recipes.EmitSpec:
        endless = not node.windowed or (found := window_below(node.input)) is None or found.spec.kind is recipes.WindowKind.UNBOUNDED
        return replace(node.emit, instants=True) if self._instants and endless and node.emit.kind is recipes.EmitKind.CHANGES else node.emit

    def _session_keys(self, spec: recipes.WindowSpec, keys: tuple[int, ...]) -> recipes.WindowSpec:
        """Sessions are formed per GROUP BY key; PARTITION BY may only say the same."""
        if spec.kind is not recipes.WindowKind.SESSION or not spec.partition:
            return spec
        if set(spec.partition) != set(keys):
            raise Unsupported(
                "SESSION with PARTITION BY other than the keys of GROUP BY is not supported", hint="name the same columns in both"
            )
        return replace(spec, partition=())

    def _distinct(self, node: logical.Distinct) -> InputRef:
        for rows in node.input.inputs if node.window is not None and isinstance(node.input, logical.Union) else ():
            self._answers_at_close(rows)
        end = next((i for i, attribute in enumerate(node.attributes) if attribute.role is logical.Role.WINDOW_END), None)
        window = None if end is None else node.window
        return self._made(recipes.DistinctRecipe(node.schema, window, end if window is not None else None), node, self.lower(node.input))

    def _answers_at_close(self, below: logical.Node) -> None:
        """Note that the rows of a window are answered when it closes: those that come after that are late (K4)."""
        while isinstance(below, logical.Project | logical.Filter | logical.Distinct):
            below = below.input
        self._closing.add(id(below))

    def _top(self, node: logical.Top) -> InputRef:
        self._answers_at_close(node.input)
        recipe = recipes.TopRecipe(node.schema, node.order, node.limit, node.with_ties, node.partition)
        return self._made(recipe, node, self.lower(node.input))

    def _rank(self, node: logical.Rank) -> InputRef:
        self._answers_at_close(node.input)
        recipe = recipes.RankRecipe(node.schema, node.function, node.order, node.partition, node.closing, node.shift_us)
        return self._made(recipe, node, self.lower(node.input))

    def _running_top(self, node: logical.RunningTop) -> InputRef:
        assert node.limit is not None
        if self._instants:
            message = "ISTREAM, DSTREAM and RSTREAM of the first rows without a window are not supported"
            raise Unsupported(message, hint="write EMIT CHANGES, or number the rows of a window")
        common = node.schema, node.order, node.limit, node.partition, node.numbered
        recipe: recipes.Recipe = recipes.RunningTopRecipe(*common)
        if node.retracts is not None:
            recipe = recipes.ChangingTopRecipe(*common, node.retracts)
        return self._made(recipe, node, self.lower(node.input))

    def _lag(self, node: logical.Lag) -> InputRef:
        values, below = [node.value], node.input
        reads = max(node.value, *node.partition, 0)
        # Several that look equally far back are one operator, as none of them reads what another one adds.
        while isinstance(below, logical.Lag) and (below.offset, below.partition) == (node.offset, node.partition):
            reads = max(reads, below.value)
            if reads >= len(below.input.attributes):
                break
            values.append(below.value)
            below = below.input
        return self._made(recipes.LagRecipe(node.schema, tuple(reversed(values)), node.offset, node.partition), node, self.lower(below))

    def _over(self, node: logical.Over) -> InputRef:
        return self._made(recipes.OverRecipe(node.schema, node.parts), node, self.lower(node.input))

    def _match(self, node: logical.Match) -> InputRef:
        return self._made(recipes.MatchRecipe(node.schema, node.spec), node, self.lower(node.input))

    def _unnest(self, node: logical.Unnest) -> InputRef:
        return self._made(recipes.UnnestRecipe(node.schema, node.items, node.numbered, node.outer), node, self.lower(node.input))

    def _kept_rows(self, node: logical.KeptRows) -> InputRef:
        return self._made(recipes.KeptRowsRecipe(node.schema, node.rows_max, node.kept_us), node, self.lower(node.input))

    def _relation_to_stream(self, node: logical.RelationToStream) -> InputRef:
        change = next(i for i, a in enumerate(node.input.attributes) if a.role.value == "op")
        recipe = recipes.RelationToStreamRecipe(node.schema, node.stream, change, node.every_us)
        self._instants = node.stream != "f"
        return self._made(recipe, node, self.lower(node.input))

    # -- joins ----------------------------------------------------------------------------------------------------------------

    def _join(self, node: logical.KeyedJoin) -> InputRef:
        """Make the join; drop key columns that were computed for it. The schema takes the logical node's names and nullability."""
        sides = keyed(node)
        full = [*sides.left.schema.fields, *sides.right.schema.fields]
        kept = sides.kept
        for position, outer in zip(kept, node.schema.fields, strict=True):
            full[position] = outer
        safe = tuple(key.null_safe for key in node.keys)
        common = Schema(tuple(full)), node.kind, sides.left_keys, sides.right_keys, safe, sides.residual(node.residual)
        if isinstance(node, logical.Join):
            recipe: recipes.Recipe = recipes.JoinRecipe(*common, node.lower_us, node.upper_us)
        elif isinstance(node, logical.AsofJoin):
            recipe = recipes.AsofJoinRecipe(*common, node.strict, node.forward, node.within_us)
        else:
            assert isinstance(node.right, logical.TableScan)
            recipe = recipes.TableJoinRecipe(*common, node.right.key)
        made = self._made(recipe, node, self.lower(sides.left), self.lower(sides.right))
        if len(kept) == len(full):
            return made
        columns = tuple(ColumnRef(full[i].type, i, full[i].name) for i in kept)
        return self._picked(PhysicalNode(recipes.ProjectRecipe(node.schema, columns), (made,)))

    def _change_join(self, node: logical.ChangeJoin) -> InputRef:
        """Make the join; keys that are computed for it stand before the kind of the change, and are dropped."""
        left, left_keys = _keyed_changes(node.left, [key.left for key in node.keys], "left_key")
        right, right_keys = _keyed_changes(node.right, [key.right for key in node.keys], "right_key")
        widths = len(node.left.attributes) - 1, len(node.right.attributes) - 1
        start = len(left.attributes) - 1
        kept = [*range(widths[0]), *range(start, start + widths[1])]
        full = [*left.schema.fields[:-1], *right.schema.fields[:-1], node.schema.fields[-1]]
        for position, outer in zip(kept, node.schema.fields[:-1], strict=True):
            full[position] = outer
        safe = tuple(key.null_safe for key in node.keys)
        residual = None if node.residual is None else moved(node.residual, widths[0], start - widths[0])
        recipe = recipes.ChangeJoinRecipe(Schema(tuple(full)), node.kind, left_keys, right_keys, safe, residual)
        made = self._made(recipe, node, self.lower(left), self.lower(right))
        if len(kept) + 1 == len(full):
            return made
        columns = tuple(ColumnRef(full[i].type, i, full[i].name) for i in (*kept, len(full) - 1))
        return self._picked(PhysicalNode(recipes.ProjectRecipe(node.schema, columns), (made,)))

    def _subquery(self, node: logical.SubqueryJoin) -> InputRef:
        """Make the join; drop key columns of the left that were computed for it."""
        compared = () if node.compared is None else (node.compared,)
        left, positions = _extended(node.left, [k.left for k in (*node.keys, *compared)], "left_key")
        width, added = len(node.left.attributes), len(left.attributes) - len(node.left.attributes)
        rights = [k.right.position for k in (*node.keys, *compared) if isinstance(k.right, ColumnRef)]
        number = len(node.keys)
        own = node.schema.fields
        schema = Schema((*own[:width], *left.schema.fields[width:], *own[width:]))
        residual = None if node.residual is None else moved(node.residual, width, added)
        safe = tuple(k.null_safe for k in node.keys)
        common = schema, node.kind, positions[:number], tuple(rights[:number]), safe, residual
        pair = (positions[number], rights[number]) if compared else None
        table = logical.table_below(node.right)
        if table is None:
            if node.ends is not None:
                self._answers_at_close(node.left)
                self._answers_at_close(node.right)
            recipe: recipes.Recipe = recipes.SubqueryRecipe(*common, pair, node.ends)
            right = self.lower(node.right)
        else:
            recipe = recipes.TableSubqueryRecipe(*common, table.key, pair, _steps(node.right))
            right = self.lower(table)
        made = self._made(recipe, node, self.lower(left), right)
        if not added:
            return made
        kept = [*range(width), *range(width + added, len(schema))]
        columns = tuple(ColumnRef(schema.fields[i].type, i, schema.fields[i].name) for i in kept)
        return self._picked(PhysicalNode(recipes.ProjectRecipe(node.schema, columns), (made,)))


_METHODS: dict[type[logical.Node], Callable[[_Lowering, Any], InputRef]] = {
    logical.Scan: _Lowering._scan,
    logical.TableScan: _Lowering._table,
    logical.Filter: _Lowering._filter,
    logical.Project: _Lowering._project,
    logical.Split: _Lowering._split,
    logical.Window: _Lowering._window,
    logical.Aggregate: _Lowering._aggregate,
    **dict.fromkeys((logical.Join, logical.TableJoin, logical.AsofJoin), _Lowering._join),
    logical.SubqueryJoin: _Lowering._subquery,
    logical.ChangeJoin: _Lowering._change_join,
    logical.TableChanges: _Lowering._table_changes,
    logical.Union: _Lowering._union,
    logical.Distinct: _Lowering._distinct,
    logical.Top: _Lowering._top,
    logical.Lag: _Lowering._lag,
    logical.Over: _Lowering._over,
    logical.Match: _Lowering._match,
    logical.Unnest: _Lowering._unnest,
    logical.Rank: _Lowering._rank,
    logical.RunningTop: _Lowering._running_top,
    logical.RelationToStream: _Lowering._relation_to_stream,
    logical.KeptRows: _Lowering._kept_rows,
}


def _steps(node: logical.Node) -> tuple[recipes.Recipe, ...]:
    """Return what is to be done with a table's rows, one step after the other."""
    made, steps = _Lowering(is_chain=False).lower(_read_as_stream(node)).node, []
    while isinstance(made, PhysicalNode):
        steps.append(made.recipe)
        made = made.inputs[0].node
    return tuple(reversed(steps))


def _read_as_stream(node: logical.Node) -> logical.Node:
    if isinstance(node, logical.TableScan):
        return logical.Scan(attributes=node.attributes, stream=node.table)
    return logical.with_inputs(node, tuple(map(_read_as_stream, node.inputs)))
