"""FROM: names to scans, derived tables to plans, windows, joins, UNNEST. Comma joins find their conditions in WHERE.

JOIN … USING (columns) asks for equality of columns of one name, which then stand once, as in PostgreSQL. A column without qualifier is the
merged one: the left's, of a RIGHT JOIN the right's, of a FULL JOIN whichever is not NULL. `*` shows the merged columns first; both sides'
own can still be called by their qualifier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from millstream.engine.data.errors import EngineError, InvalidDefinition, SyntaxProblem, TypeProblem, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.data.types import BIGINT, TEXT, DataType, Kind
from millstream.engine.expressions import build
from millstream.engine.expressions.build import conjunction, conjuncts
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, columns_used
from millstream.engine.language.limits import JOINED_MAX
from millstream.engine.language.recipes import EmitSpec, JoinKind, WindowKind, WindowSpec
from millstream.engine.language.statements import (
    CommonTable,
    FromItem,
    JoinItem,
    MatchItem,
    Name,
    NamedItem,
    SelectQuery,
    SubqueryItem,
    UnnestItem,
)
from millstream.engine.plan.catalog import Catalog, DerivedStream, TimeOffset
from millstream.engine.plan.expression_binder import Around, ExpressionBinder
from millstream.engine.plan.join_binder import JoinRequest, Side, as_changes, as_relation, as_scan, make_join
from millstream.engine.plan.join_conditions import KeyExpressions, analyse, key_type, shifted
from millstream.engine.plan.logical import (
    Attribute,
    Attributes,
    Node,
    Project,
    Role,
    Scan,
    TableChanges,
    TableScan,
    Unnest,
    Window,
    requalified,
)
from millstream.engine.plan.scope import Scope
from millstream.engine.plan.windows import bind_window, bounds_of
from sqlglot import exp


@dataclass(frozen=True, slots=True)
class SharedColumn:
    """A column of USING: its position on either side (the right's in the right's own attributes), and the type both are compared in."""

    name: str
    left: int
    right: int
    type: DataType


def shared_columns(names: Sequence[Name], left: Attributes, right: Attributes) -> list[SharedColumn]:
    """Find the columns of USING on both sides."""
    found = []
    for place, name in enumerate(names):
        try:
            if any(n.text == name.text for n in names[:place]):
                raise SyntaxProblem(f"{name.text} appears twice in USING", hint="name it once")
            one, other = Scope(left).find(name.text), Scope(right).find(name.text)
            key = KeyExpressions(left[one].reference(one), right[other].reference(other), False)
            found.append(SharedColumn(name.text, one, other, key_type(key)))
        except EngineError as problem:
            problem.line, problem.column, problem.token = name.place.line, name.place.column, name.text
            raise
    return found


def equalities(shared: Sequence[SharedColumn], left: Attributes, right: Attributes) -> tuple[Expression, ...]:
    """Return the conditions that USING stands for, over the left's attributes, then the right's."""
    count = len(left)
    return tuple(build.call("=", [left[s.left].reference(s.left), shifted(right[s.right].reference(s.right), count)]) for s in shared)


def before_merging(shared: Sequence[SharedColumn], left: Attributes, right: Attributes) -> Attributes:
    """Return both sides' attributes as an inner join's WHERE may call them: the merged columns are the left's."""
    covered = {s.right for s in shared}
    return left + tuple(replace(a, covered=True) if i in covered else a for i, a in enumerate(right))


def merged(side: Side, shared: Sequence[SharedColumn], count: int, kind: JoinKind) -> Side:
    """Put the merged columns before those of the join, of whose attributes `count` are the left's."""
    attributes = side.node.attributes
    covered = {s.left for s in shared} | {count + s.right for s in shared}
    made = [_merged_column(s, attributes, count, kind) for s in shared]
    words = [a.word for a in attributes]
    own = [
        (replace(a, name=_unique(a, words), covered=a.covered or i in covered, called=a.word), a.reference(i))
        for i, a in enumerate(attributes)
        if a.qualifier is not None or i not in covered  # a column merged before and now again could not be called by any name
    ]
    node = Project(
        attributes=tuple(a for a, _ in (*made, *own)),
        input=side.node,
        expressions=tuple(e for _, e in (*made, *own)),
    )
    return replace(side, node=node)


def _unique(attribute: Attribute, words: Sequence[str]) -> str:
    """Columns of a projection need different names, whatever they are called by."""
    if attribute.qualifier is None or words.count(attribute.word) == 1:
        return attribute.name
    return f"{attribute.qualifier}.{attribute.word}"


def _merged_column(shared: SharedColumn, attributes: Attributes, count: int, kind: JoinKind) -> tuple[Attribute, Expression]:
    one, other = attributes[shared.left], attributes[count + shared.right]
    left = build.cast(one.reference(shared.left), shared.type)
    right = build.cast(other.reference(count + shared.right), shared.type)
    if kind is JoinKind.FULL:
        return Attribute(shared.name, shared.type, one.nullable and other.nullable), build.call("coalesce", [left, right])
    kept, expression = (other, right) if kind is JoinKind.RIGHT else (one, left)
    attribute = replace(kept, name=shared.name, qualifier=None, type=shared.type, covered=False, called=None)
    same = kept.type == shared.type or (kept.type.is_integer and shared.type.is_integer)
    return (attribute if same else replace(attribute, time=None)), expression


_UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class Environment:
    """What names mean while a query is bound: the catalogue, and common tables with the environment each was defined in.

    `finite`: the inputs are sets of rows that stand now (join_binder.py). `around`: of a subquery, what binds the columns of the query
    around it, as references behind all positions of its own; `shared`: the window whose rows that query reads.
    """

    catalog: Catalog
    tables: tuple[tuple[CommonTable, Environment], ...] = ()
    finite: bool = False
    around: Around | None = None
    shared: WindowSpec | None = None

    def common_table(self, name: str) -> tuple[CommonTable, Environment] | None:
        """Return the innermost common table of this name, or None."""
        return next(((t, e) for t, e in reversed(self.tables) if t.name.text == name), None)


@dataclass(frozen=True, slots=True)
class BoundFrom:
    """The bound FROM and WHERE: node, scope for what stands above, and the conditions still to be applied."""

    node: Node
    scope: Scope
    conditions: tuple[Expression, ...] = field(default=())
    per_window: WindowSpec | None = None


def _check_joined(source: FromItem) -> None:
    """Refuse a FROM of too many items before they are bound, each below the next."""
    pending, found = [source], 0
    while pending:
        item = pending.pop()
        if isinstance(item, JoinItem):
            pending += [item.left, item.right]
            continue
        found += 1
        if found > JOINED_MAX:
            raise Unsupported(f"FROM joins more than {JOINED_MAX} streams and tables", hint="CREATE STREAM name AS SELECT … for some")


QueryBinder = Callable[[SelectQuery, Environment, EmitSpec | None], Node]


class FromBinder:
    """Binds FROM and WHERE in one environment. `bind_query` binds a nested query.

    `emit` is the emission of a SELECT that only picks and computes: what it reads, if that is one nested query, answers as it says (K9).
    """

    def __init__(self, environment: Environment, bind_query: QueryBinder, emit: EmitSpec | None = None) -> None:
        self.environment = environment
        self.bind_query = bind_query
        self.emit = emit

    def bind(self, source: FromItem, where: exp.Expr | None) -> BoundFrom:
        """Bind the items and WHERE."""
        _check_joined(source)
        if isinstance(source, JoinItem):
            self._check_aliases(source)
        if not isinstance(source, NamedItem | SubqueryItem) or source.window is not None:
            self.emit = None
        listed = _commas(source)
        unfolded = [item for item in listed[1:] if isinstance(item, UnnestItem)]
        items = [self._side(i, where if i is source else None) for i in listed if i is listed[0] or not isinstance(i, UnnestItem)]
        if self.environment.finite:
            items = [replace(side, node=as_scan(side.node)) for side in items]
        elif len(items) > 1:
            items = [as_relation(side) for side in items]
        if unfolded:
            items = [self._unfolded(items, unfolded)]
        if len(items) == 1:
            node = self._changing(windowed(items[0]))
            scope = self._scope(node, items[0])
            return BoundFrom(node, scope, self._where(where, scope), items[0].per_window)
        return self._comma_join(items, where, source)

    def _changing(self, node: Node) -> Node:
        """Return all of FROM; tables alone, and what is made of such, as what changes of them (K28)."""
        return node if self.environment.finite else as_changes(node)

    def _unfolded(self, items: list[Side], unfolded: list[UnnestItem]) -> Side:
        """Put UNNEST behind a comma on top of the one item before it."""
        if len(items) != 1:
            place = unfolded[0].place
            hint = "write FROM s CROSS JOIN UNNEST(s.list) AS t(item); join others with JOIN … ON"
            message = "UNNEST stands behind the one item whose list it reads"
            raise Unsupported(message, hint=hint, line=place.line, column=place.column, token="UNNEST")
        side = items[0] if self.environment.finite else as_relation(items[0])
        for item in unfolded:
            side = unnested_side(side, item, outer=False)
        return side

    def _where(self, where: exp.Expr | None, scope: Scope) -> tuple[Expression, ...]:
        if where is None:
            return ()
        binder = ExpressionBinder(scope, "an aggregate cannot stand in WHERE; use HAVING", self.environment.around)
        return tuple(conjuncts(binder.condition(where, "WHERE")))

    def _scope(self, node: Node, side: Side) -> Scope:
        if not side.joined:
            return Scope(node.attributes)
        reason = "the bounds of sliding windows are no columns of their join"
        return Scope(node.attributes, (("window_start", reason), ("window_end", reason)))

    def _comma_join(self, items: list[Side], where: exp.Expr | None, source: FromItem) -> BoundFrom:
        attributes: Attributes = tuple(a for side in items for a in side.node.attributes)
        specs = {side.spec for side in items}
        tumbling = len(specs) == 1 and items[0].spec is not None and items[0].spec.kind is WindowKind.HOPPING
        scope = Scope(attributes + bounds_of(None) if tumbling else attributes)
        waiting = [part for condition in self._where(where, scope) for part in _factored(condition)]
        current, width = items[0], len(items[0].node.attributes)
        assert isinstance(source, JoinItem)
        for side in items[1:]:
            width += len(side.node.attributes)
            start = width - len(side.node.attributes)
            mine = [c for c in waiting if _joins(c, start, width)]
            waiting = [c for c in waiting if c not in mine]
            finite = self.environment.finite
            request = JoinRequest(JoinKind.INNER, tuple(mine), None, False, source.place, finite=finite, changes=not finite)
            current = make_join(current, side, request)
        node = self._changing(windowed(current))
        return BoundFrom(node, self._scope(node, current), tuple(waiting))

    # -- items ----------------------------------------------------------------------------------------------------------------

    def _side(self, item: FromItem, where: exp.Expr | None = None) -> Side:
        if isinstance(item, JoinItem):
            return self._join(item, where)
        if isinstance(item, UnnestItem):
            place = item.place
            hint = "write FROM s CROSS JOIN UNNEST(s.list) AS t(item)"
            raise Unsupported("UNNEST reads an item that stands before it", hint=hint, line=place.line, column=place.column, token="UNNEST")
        if isinstance(item, MatchItem):
            return Side(self._row_pattern(item))
        assert isinstance(item, NamedItem | SubqueryItem)
        node = self._named(item) if isinstance(item, NamedItem) else self._subquery(item)
        if item.window is None:
            return Side(node)
        if isinstance(node, TableScan):
            place = item.window.place
            raise Unsupported("a table takes no window", hint="leave it out", line=place.line, column=place.column, token="[")
        qualifier = node.attributes[0].qualifier if node.attributes else None
        window = bind_window(item.window, node, qualifier)
        return Side(node, window.spec)

    def _row_pattern(self, item: MatchItem) -> Node:
        from millstream.engine.plan.match_recognize import bind_match  # few queries have one

        source = item.source
        return bind_match(item, self._named(source) if isinstance(source, NamedItem) else self._subquery(source))

    def _named(self, item: NamedItem) -> Node:
        qualifier = item.alias.text if item.alias else item.name.text
        common = self.environment.common_table(item.name.text)
        if common is not None:
            table, environment = common
            node = self.bind_query(table.query, replace(environment, around=None, shared=None), self.emit)
            node = _renamed(node, table.columns)
            return replace(node, attributes=_as_derived(node.attributes, qualifier))
        return bind_named(item, self.environment)

    def _subquery(self, item: SubqueryItem) -> Node:
        node = self.bind_query(item.query, replace(self.environment, around=None, shared=None), self.emit)
        # Without an alias nobody can call it by name; a name that says where it stands keeps its columns apart all the same.
        alias = item.alias.text if item.alias else f"derived_{item.place.line}_{item.place.column}"
        node = _renamed(node, item.columns)
        return replace(node, attributes=_as_derived(node.attributes, alias))

    def _join(self, item: JoinItem, where: exp.Expr | None = None) -> Side:
        if isinstance(item.right, UnnestItem):
            return self._unnest(item, item.right)
        left, right = self._side(item.left), self._side(item.right)
        if not self.environment.finite:
            left, right = as_relation(left), as_relation(right)
        attributes = left.node.attributes + right.node.attributes
        both = _both_bounds(left, right)
        names = [n for n in item.using if n.text not in {b.name for b in both}]  # the bounds of such windows are equal and stand once
        shared = shared_columns(names, left.node.attributes, right.node.attributes)
        conditions: tuple[Expression, ...] = equalities(shared, left.node.attributes, right.node.attributes)
        if item.on is not None:
            binder = ExpressionBinder(Scope(attributes + both), "an aggregate cannot stand in ON")
            conditions = tuple(conjuncts(binder.condition(item.on, "ON")))
            conditions = tuple(c for c in conditions if not _same_bound(c, len(attributes)))
        nearest = item.asof or item.system_time is not None  # which right row that is, ON says alone
        if where is not None and item.kind is JoinKind.INNER and left.spec is None and right.spec is None and not nearest:
            # WHERE may state the bound in time of an inner join; it stays in WHERE too.
            found = self._where(where, Scope(before_merging(shared, left.node.attributes, right.node.attributes)))
            found = tuple(c for c in found if max(columns_used(c), default=0) < len(attributes))
            conditions += tuple(c for c in found if not analyse([c], attributes, len(left.node.attributes)).bound.is_open)
        asof = item.asof
        if item.system_time is not None:
            asof = self._system_time(item, left, right)
        of_table = isinstance(left.node, TableScan) and not shared
        asked = self._where(where, Scope(attributes + bounds_of(None))) if of_table else ()
        finite = self.environment.finite
        request = JoinRequest(item.kind, conditions, item.within_us, asof, item.place, finite=finite, where=asked, changes=not finite)
        made = make_join(left, right, request)
        return merged(made, shared, len(left.node.attributes), item.kind) if shared else made

    def _unnest(self, item: JoinItem, right: UnnestItem) -> Side:
        """CROSS JOIN UNNEST(…), or LEFT JOIN UNNEST(…) ON TRUE, which keeps rows without items."""
        left = self._side(item.left)
        left = replace(left, node=as_scan(left.node)) if self.environment.finite else as_relation(left)
        plain = item.on is None or (isinstance(item.on, exp.Boolean) and bool(item.on.this))
        if item.kind not in (JoinKind.INNER, JoinKind.LEFT) or not plain or item.using or item.within_us is not None or item.asof:
            place = item.place
            hint = "write CROSS JOIN UNNEST(…), or LEFT JOIN UNNEST(…) ON TRUE; other conditions stand in WHERE"
            raise Unsupported("this join with UNNEST is not supported", hint=hint, line=place.line, column=place.column, token="JOIN")
        return unnested_side(left, right, outer=item.kind is JoinKind.LEFT)

    def _check_aliases(self, item: JoinItem) -> None:
        names = _aliases(item)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            line, column = item.place.line, item.place.column
            raise Unsupported(f"{twice} appears twice in FROM", hint="give each its own alias", line=line, column=column, token=twice)

    def _system_time(self, item: JoinItem, left: Side, right: Side) -> bool:
        """FOR SYSTEM_TIME AS OF left.ts: with a stream on the right that is an as-of join, with a table its current version.

        AS OF PROCTIME() is the version that stands when the row comes, which a table has.
        """
        assert item.system_time is not None
        line, column = item.place.line, item.place.column
        if _is_arrival(item.system_time, left):
            if isinstance(right.node, TableScan):
                return False
            raise Unsupported(
                "AS OF PROCTIME() reads the version that stands when a row comes, and a stream has none",
                hint="write FOR SYSTEM_TIME AS OF left.ts for its last row by event time, or keep the last rows in a table: "
                "CREATE TABLE t (…, PRIMARY KEY (k)), INSERT INTO t SELECT …",
                line=line,
                column=column,
                token="FOR",
            )
        bound = ExpressionBinder(Scope(left.node.attributes)).bind(item.system_time)
        used = columns_used(bound)
        time = left.node.attributes[used.pop()].time if len(used) == 1 else None
        if time != TimeOffset():
            message = "FOR SYSTEM_TIME AS OF takes the event time of the left row, or PROCTIME()"
            raise TypeProblem(message, line=line, column=column, token="FOR")
        return not isinstance(right.node, TableScan)


def _is_arrival(expression: exp.Expr, left: Side) -> bool:
    """Whether it is PROCTIME() or PROCTIME, and no column of the left row is called so."""
    name = expression.name.lower() if isinstance(expression, exp.Anonymous | exp.Column) else ""
    return name == "proctime" and not (isinstance(expression, exp.Column) and any(a.name == name for a in left.node.attributes))


def _both_bounds(left: Side, right: Side) -> Attributes:
    """Return the bounds of two tumbling windows as ON may name them, a.window_start and b.window_start; none of other items."""
    kinds = {side.spec.kind for side in (left, right) if side.spec is not None}
    if left.spec is None or right.spec is None or kinds != {WindowKind.HOPPING}:
        return ()
    return tuple(b for side in (left, right) for b in bounds_of(side.node.attributes[0].qualifier))


def _same_bound(condition: Expression, columns: int) -> bool:
    """The condition says that a bound of one item's window equals the other's, which a join of tumbling windows means anyway."""
    used = sorted(columns_used(condition))
    if not used or used[-1] < columns:
        return False
    names = {a.name for a in condition.arguments if isinstance(a, ColumnRef)} if isinstance(condition, Call) else set()
    plain = isinstance(condition, Call) and all(isinstance(a, ColumnRef) and a.position >= columns for a in condition.arguments)
    if plain and isinstance(condition, Call) and condition.function == "=" and len(names) == 1:
        return True
    raise Unsupported("ON can only compare the windows' bounds for equality", hint="put other conditions on them in WHERE")


def _joins(condition: Expression, start: int, width: int) -> bool:
    """The condition can be decided once attributes below `width` are joined, and needs the newest item and an older one."""
    used = columns_used(condition)
    return bool(used) and max(used) < width and max(used) >= start > min(used)


def _commas(source: FromItem) -> list[FromItem]:
    if isinstance(source, JoinItem) and source.comma:
        return [*_commas(source.left), source.right]
    return [source]


def _aliases(item: FromItem) -> list[str]:
    if isinstance(item, JoinItem):
        return _aliases(item.left) + _aliases(item.right)
    if isinstance(item, NamedItem):
        return [item.alias.text if item.alias else item.name.text]
    if isinstance(item, UnnestItem | MatchItem):
        return [item.alias.text] if item.alias else []
    assert isinstance(item, SubqueryItem)
    return [item.alias.text] if item.alias else []


def _as_derived(attributes: Attributes, qualifier: str | None) -> Attributes:
    """Seen from outside, the bounds of a derived table's windows are plain columns."""
    plain = (a if a.role is Role.CHANGE else replace(a, role=Role.PLAIN) for a in attributes)
    return requalified(tuple(plain), qualifier)


def _renamed(node: Node, names: Sequence[Name]) -> Node:
    """Return the rows of a derived table with the names of its column list; those that it does not name keep theirs."""
    if not names:
        return node
    shown = [a for a in node.attributes if a.role is not Role.CHANGE]
    if len(names) > len(shown):
        place = names[len(shown)].place
        raise InvalidDefinition(f"the query gives {len(shown)} columns, not {len(names)}", line=place.line, column=place.column)
    twice = next((n for i, n in enumerate(names) if any(n.text == m.text for m in names[:i])), None)
    if twice is not None:
        place = twice.place
        raise InvalidDefinition(f"{twice.text} is named twice", line=place.line, column=place.column, token=twice.text)
    called = (*(n.text for n in names), *(a.name for a in node.attributes[len(names) :]))
    attributes = tuple(replace(a, name=name, called=None) for a, name in zip(node.attributes, called, strict=True))
    return Project(attributes=attributes, input=node, expressions=tuple(a.reference(i) for i, a in enumerate(node.attributes)))


def _factored(condition: Expression) -> list[Expression]:
    """Return (a AND b) OR (a AND c) as a AND (b OR c): what all arms ask can be the key of a join."""
    if not isinstance(condition, Call) or condition.function != "or":
        return [condition]
    arms = [conjuncts(arm) for arm in condition.arguments]
    common = [c for c in arms[0] if all(c in arm for arm in arms[1:])]
    if not common:
        return [condition]
    left = [conjunction([c for c in arm if c not in common]) for arm in arms]
    rest = [c for c in left if c is not None]
    return [*common, build.call("or", rest)] if len(rest) == len(arms) else common


def windowed(side: Side) -> Node:
    """Put the window of a joined or single item on top again."""
    if side.spec is None:
        return side.node
    qualifiers = {a.qualifier for a in side.node.attributes}
    qualifier = qualifiers.pop() if len(qualifiers) == 1 else None
    return Window(attributes=side.node.attributes + bounds_of(qualifier), input=side.node, spec=side.spec)


def bind_named(item: NamedItem, environment: Environment) -> Node:
    """Return the scan of a stream, derived stream or table of the catalogue; of a view its changes."""
    qualifier = item.alias.text if item.alias else item.name.text
    try:
        relation = environment.catalog.readable(item.name.text)
    except EngineError as problem:
        problem.line, problem.column = item.name.place.line, item.name.place.column
        raise
    if isinstance(relation, StreamDefinition):
        return Scan(attributes=stream_attributes(relation, qualifier), stream=relation.name)
    if isinstance(relation, DerivedStream) and relation.view:
        attributes = tuple(replace(a, time=None, time_unit_us=1) for a in derived_attributes(relation, qualifier))
        return TableChanges(attributes=attributes, input=Scan(attributes=attributes, stream=relation.name))
    if isinstance(relation, DerivedStream):
        return Scan(attributes=derived_attributes(relation, qualifier), stream=relation.name)
    return _table(relation, qualifier)


def _table(relation: TableDefinition, qualifier: str) -> TableScan:
    attributes = tuple(Attribute(f.name, f.type, f.nullable, qualifier) for f in relation.schema.fields)
    key = tuple(p for p in (relation.schema.position(name) for name in relation.key) if p is not None)
    return TableScan(attributes=attributes, table=relation.name, key=key)


def stream_attributes(stream: StreamDefinition, qualifier: str | None) -> Attributes:
    """Return the attributes of a stream; its time column is known as the event time."""
    found = []
    for f in stream.schema.fields:
        unit = None
        if f.name == stream.time.column:
            unit = 1 if f.type.kind is Kind.TIMESTAMP else _UNITS_US.get(stream.time.unit or "")
        if unit is None:
            found.append(Attribute(f.name, f.type, f.nullable, qualifier))
        else:
            found.append(Attribute(f.name, f.type, False, qualifier, TimeOffset(), unit))
    return tuple(found)


def derived_attributes(stream: DerivedStream, qualifier: str | None) -> Attributes:
    """Return the attributes of a derived stream."""
    attributes = [
        Attribute(f.name, f.type, f.nullable, qualifier, time=stream.times.get(f.name), time_unit_us=stream.units.get(f.name, 1))
        for f in stream.schema.fields
    ]
    if stream.changes:
        attributes[-1] = replace(attributes[-1], role=Role.CHANGE)
    return tuple(attributes)


def unnested(node: Node, items: Expression, called: str | None, columns: Sequence[str], *, numbered: bool, outer: bool) -> Unnest:
    """Return the node that unfolds `items`. TypeProblem unless these are a list or a map; InvalidDefinition for too many names.

    A list gives one column: the first name, else the alias, else `unnest`. A map gives `key` and `value`; the number is `ordinality`.
    """
    type_ = items.type
    if type_.element is None:
        hint = "write UNNEST(CAST(j AS JSON[]))" if type_.kind is Kind.JSON else "the type of a list is t[], of a map MAP(TEXT, t)"
        raise TypeProblem(f"UNNEST takes a list or a map, not {type_}", hint=hint)
    is_map = type_.kind is Kind.MAP
    names = ["key", "value"] if is_map else [called or "unnest"]
    types = [TEXT, type_.element] if is_map else [type_.element]
    if numbered:
        names, types = [*names, "ordinality"], [*types, BIGINT]
    if len(columns) > len(names):
        raise InvalidDefinition(f"UNNEST gives {len(names)} columns here, not {len(columns)}")
    names[: len(columns)] = columns
    made = tuple(Attribute(name, t, True, called) for name, t in zip(names, types, strict=True))
    return Unnest(attributes=(*node.attributes, *made), input=node, items=items, numbered=numbered, outer=outer)


def unnested_side(left: Side, item: UnnestItem, *, outer: bool) -> Side:
    """Return the items before UNNEST with it on top. Its rows are in the windows of the rows that they come from."""
    bound = ExpressionBinder(Scope(left.node.attributes)).bind(item.expression)
    called = item.alias.text if item.alias else None
    columns = [name.text for name in item.columns]
    try:
        _check_unfolds(left)
        node = unnested(left.node, bound, called, columns, numbered=item.numbered, outer=outer)
    except EngineError as problem:
        problem.line, problem.column, problem.token = item.place.line, item.place.column, "UNNEST"
        raise
    return Side(node, left.spec, joined=left.joined)


def _check_unfolds(left: Side) -> None:
    if left.spec is not None and left.spec.kind is WindowKind.ROWS:
        hint = "write FROM (SELECT … FROM s CROSS JOIN UNNEST(…) AS t(item)) [ROWS n] to count items"
        raise Unsupported("UNNEST behind a window of [ROWS n] is not supported", hint=hint)
