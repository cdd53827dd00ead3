"""Subqueries in expressions (K25): IN, EXISTS and one value, by themselves or correlated, as joins that keep each row once.

    x IN (SELECT y FROM t WHERE t.k = s.k)          ->  SubqueryJoin MARK  keys s.k = t.k, compared x = y
    (SELECT AVG(y) FROM t WHERE t.k = s.k)          ->  SubqueryJoin SINGLE with AVG(y) of t by k; keys s.k = t.k

A correlated condition of the subquery's WHERE that is an equality becomes a key, any other a residual. An aggregate without GROUP BY is
grouped by the keys, and what is made of it is computed above the join, where a group that is not there is an empty one: COUNT is 0.
While a SELECT is bound, what its subqueries give has positions that no column has; `attached` puts the joins in and says which they get.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from millstream.engine.aggregates.table import aggregate_of
from millstream.engine.data.errors import TypeProblem, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import TableDefinition
from millstream.engine.data.types import BIGINT, BOOLEAN
from millstream.engine.expressions import build
from millstream.engine.expressions.build import conjunction
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal, columns_used, transform
from millstream.engine.language.dialect import EXISTS, QUERY, is_subquery, walked
from millstream.engine.language.recipes import JoinKind, WindowKind, WindowSpec
from millstream.engine.language.statements import (
    FromItem,
    JoinItem,
    MatchItem,
    NamedItem,
    SelectBody,
    SelectQuery,
    SubqueryItem,
    UnionBody,
)
from millstream.engine.plan.aggregate_binder import AggregateBinder, projected
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.expression_binder import ExpressionBinder, flattened
from millstream.engine.plan.from_binder import Environment, QueryBinder
from millstream.engine.plan.join_binder import table_of_rows
from millstream.engine.plan.join_conditions import KeyExpressions, key_type
from millstream.engine.plan.logical import (
    Attribute,
    Attributes,
    Filter,
    JoinKey,
    Node,
    Project,
    Role,
    Scan,
    SubqueryJoin,
    TableScan,
    Window,
    check_append_only,
    table_below,
    with_inputs,
)
from millstream.engine.plan.steps import WINDOW_ROLES, Output, filtered
from millstream.engine.plan.windows import output_time_known
from sqlglot import exp

PLACE = 10_000_000  # what subqueries give has positions from here on, until it is attached
OUTER = 100_000_000  # and a column of the query around one, seen from inside, that many more than there
ONE_TABLE = "a subquery of a continuous query reads one table, or the window that the query reads"


_COMMON_WINDOWS = (WindowKind.HOPPING, WindowKind.CUMULATE)  # whose bounds depend on no row


@dataclass(frozen=True, slots=True)
class Inner:
    """A subquery, bound: its plan, of whose columns `value` is what it gives, and how it hangs together with the query around it.

    Keys and residual name the columns around it from OUTER on, and its own by their position. `combined`: what it gives is to be computed
    above the join, of the columns of the plan; `kept` is then whether HAVING keeps the row.
    """

    node: Node
    value: Expression | None
    keys: tuple[JoinKey, ...] = ()
    residual: Expression | None = None
    combined: bool = False
    kept: Expression | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class _Pending:
    kind: JoinKind
    inner: Inner
    compared: JoinKey | None
    first: int


InnerBinder = Callable[[SelectQuery, Environment, bool], Inner]


class SubqueryStage:
    """The subqueries that stand over one node: in WHERE, or in the clauses above it. `inner` binds one (select_binder.py)."""

    def __init__(self, environment: Environment, bind_query: QueryBinder, inner: InnerBinder, source: Node) -> None:
        self.environment = environment
        self.bind_query = bind_query
        self.inner = inner
        while isinstance(source, SubqueryJoin | Filter):  # those that stand in WHERE
            source = source.inputs[0]
        window = source if isinstance(source, Window) and source.spec.kind in _COMMON_WINDOWS else None
        self.window = window.spec if window is not None else None
        self.pending: list[_Pending] = []
        self._width = 0

    # -- binding --------------------------------------------------------------------------------------------------------------

    def value(self, node: exp.Anonymous, binder: ExpressionBinder) -> Expression:
        """Return one value, or whether there is a row."""
        if node.name == EXISTS:
            return self._exists(node.meta[QUERY], binder)
        inner = self._bound(node.meta[QUERY], binder)
        return self._one(inner)

    def contains(self, value: exp.Expr, node: exp.Anonymous, binder: ExpressionBinder) -> Expression:
        """Return whether a value is among those of a subquery."""
        left = binder.bind(value)
        inner = self._bound(node.meta[QUERY], binder)
        assert inner.value is not None
        if inner.combined:  # one row at most, which HAVING may drop
            equal = build.call("=", [left, self._one(replace(inner, kept=None))])
            return equal if inner.kept is None else build.case([(self._above(inner), equal)], Literal(BOOLEAN, False))
        common = key_type(KeyExpressions(left, inner.value, False))
        node_, position = _with_column(inner.node, build.cast(inner.value, common))
        right = node_.attributes[position].reference(position)
        return self._mark(replace(inner, node=node_), JoinKey(build.cast(left, common), right))

    def _exists(self, query: SelectQuery, binder: ExpressionBinder) -> Expression:
        inner = self._bound(query, binder, exists=True)
        if inner.combined:
            return Literal(BOOLEAN, True) if inner.kept is None else build.call("is_true", [self._above(inner)])
        return self._mark(inner, None)

    def _mark(self, inner: Inner, compared: JoinKey | None) -> Expression:
        self.pending.append(_Pending(JoinKind.MARK, inner, compared, self._width))
        self._width += 1
        return ColumnRef(BOOLEAN, PLACE + self._width - 1, "found")

    def _one(self, inner: Inner) -> Expression:
        first = self._single(inner)
        assert inner.value is not None
        given = _moved_in(inner.value, first)
        return given if inner.kept is None else build.case([(_moved_in(inner.kept, first), given)], None)

    def _above(self, inner: Inner) -> Expression:
        assert inner.kept is not None
        return _moved_in(inner.kept, self._single(inner))

    def _single(self, inner: Inner) -> int:
        known = next((p for p in self.pending if p.kind is JoinKind.SINGLE and p.inner.node is inner.node), None)
        if known is not None:
            return PLACE + known.first
        self.pending.append(_Pending(JoinKind.SINGLE, inner, None, self._width))
        self._width += len(inner.node.attributes)
        return PLACE + self.pending[-1].first

    def _bound(self, query: SelectQuery, binder: ExpressionBinder, *, exists: bool = False) -> Inner:
        if isinstance(query.body, SelectBody) and exists and (query.limit or 1) > 0:
            query = replace(query, limit=None, order_by=(), with_ties=False)
        environment = replace(self.environment, around=_around(binder), shared=self.window)
        tables = not self.environment.finite and _reads_tables(query, environment)
        if tables:
            environment = replace(environment, finite=True)
        inner = self.inner(query, environment, exists)
        if tables:
            inner = replace(inner, node=_of_tables(inner.node, environment))
        if not self.environment.finite and inner.end is None and table_below(inner.node) is None:
            same = "give both the same window, as in s [RANGE w SLIDE w]"
            hint = f"{same}; put the values into a table; or JOIN … WITHIN. FETCH takes any subquery"
            raise Unsupported(ONE_TABLE, hint=hint)
        return inner

    # -- the plan -------------------------------------------------------------------------------------------------------------

    @property
    def at_close(self) -> bool:
        """Whether rows wait until their window is complete."""
        return any(p.inner.end is not None for p in self.pending)

    def attached(self, node: Node, resolve: Callable[[Expression], Expression] = lambda e: e) -> tuple[Node, int]:
        """Return the node with all joins on top, and where their columns begin. `resolve` gives columns of the node their positions."""
        if self.pending:
            check_append_only(node, "a subquery")
        base = len(node.attributes)
        for pending in self.pending:
            node = self._join(node, pending, lambda e: resolve(placed(e, base)))
        return node, base

    def _join(self, left: Node, pending: _Pending, resolve: Callable[[Expression], Expression]) -> Node:
        inner, right = pending.inner, pending.inner.node
        width = len(left.attributes)

        def key(one: JoinKey) -> JoinKey:
            return replace(one, left=resolve(one.left))

        def both(e: Expression) -> Expression:
            if not isinstance(e, ColumnRef):
                return e
            if e.position < OUTER:
                return replace(e, position=e.position + width)
            return resolve(replace(e, position=e.position - OUTER))

        keys = tuple(key(replace(k, left=_seen_outside(k.left))) for k in inner.keys)
        residual = None if inner.residual is None else transform(inner.residual, both)
        ends = None
        attributes = left.attributes
        if inner.end is not None:
            own = next(i for i, a in enumerate(left.attributes) if a.role is Role.WINDOW_END)
            ends = own, inner.end
            attributes = at_close(left.attributes, self.window)
        if pending.kind is JoinKind.MARK:
            made: Attributes = (found_column(),)
        else:
            made = tuple(_hidden(replace(a, nullable=True, time=None, time_unit_us=1)) for a in right.attributes)
        compared = None if pending.compared is None else key(pending.compared)
        return SubqueryJoin(
            attributes=(*attributes, *made),
            left=left,
            right=right,
            kind=pending.kind,
            keys=keys,
            compared=compared,
            residual=residual,
            ends=ends,
        )


def found_column() -> Attribute:
    """Return the column that a SubqueryJoin of kind MARK appends."""
    return _hidden(Attribute("found", BOOLEAN))


def at_close(attributes: Attributes, spec: WindowSpec | None) -> Attributes:
    """Rows that wait for their window's end have the time of its answers: window_end - 1 µs."""
    known = spec is not None and output_time_known(spec)

    def time(a: Attribute) -> TimeOffset | None:
        if spec is None or not known or a.role not in WINDOW_ROLES:
            return None
        return TimeOffset(1, 1) if a.role is Role.WINDOW_END else TimeOffset(1 - spec.range_us, 1 - spec.range_us)

    return tuple(replace(a, time=time(a), time_unit_us=1) for a in attributes)


def _hidden(attribute: Attribute) -> Attribute:
    """No name finds it, nor `*`."""
    return replace(attribute, name=f"({attribute.name})", qualifier=None, covered=True, called=None, role=Role.PLAIN)


def placed(expression: Expression, base: int) -> Expression:
    """Return the expression with what subqueries give at its positions, which begin at `base`."""

    def change(e: Expression) -> Expression:
        return replace(e, position=e.position - PLACE + base) if isinstance(e, ColumnRef) and PLACE <= e.position < OUTER else e

    return transform(expression, change)


def _moved_in(expression: Expression, first: int) -> Expression:
    return transform(expression, lambda e: replace(e, position=e.position + first) if isinstance(e, ColumnRef) else e)


def _seen_outside(expression: Expression) -> Expression:
    return transform(expression, lambda e: replace(e, position=e.position - OUTER) if isinstance(e, ColumnRef) else e)


def _around(binder: ExpressionBinder) -> Callable[[exp.Column], Expression]:
    def bind(node: exp.Column) -> Expression:
        bound = binder.bind(node)
        if any(p >= OUTER for p in columns_used(bound)):
            hint = "name it in the query between them, or join instead"
            raise Unsupported(f"{node.sql()} belongs to a query further out than the one around the subquery", hint=hint)
        return transform(bound, lambda e: replace(e, position=e.position + OUTER) if isinstance(e, ColumnRef) else e)

    return bind


def _with_column(node: Node, expression: Expression) -> tuple[Node, int]:
    """Return the node, perhaps with a column more, and where the expression is among its columns."""
    if isinstance(expression, ColumnRef):
        return node, expression.position
    attributes = (*node.attributes, Attribute("compared", expression.type))
    expressions = (*(a.reference(i) for i, a in enumerate(node.attributes)), expression)
    return Project(attributes=attributes, input=node, expressions=expressions), len(attributes) - 1


def under_window(stage: SubqueryStage, window: Window, conditions: Sequence[Expression]) -> tuple[Window, list[Expression]]:
    """Put the joins below a window: return it, and the conditions over it with columns where they then are."""
    for pending in stage.pending:
        outer = {p for k in pending.inner.keys for p in columns_used(_seen_outside(k.left))}
        if any(p >= len(window.input.attributes) for p in outer):
            raise Unsupported("a subquery that names the window's bounds is not supported here", hint="give it the same window")
    below, base = stage.attached(window.input)
    added = len(below.attributes) - base

    def change(e: Expression) -> Expression:
        if not isinstance(e, ColumnRef) or not base <= e.position < PLACE:
            return e
        return replace(e, position=e.position + added)

    made = replace(window, input=below, attributes=below.attributes + window.attributes[base:])
    return made, [placed(transform(c, change), base) for c in conditions]


# -- which tables -----------------------------------------------------------------------------------------------------------------


def _reads_tables(query: SelectQuery, environment: Environment) -> bool:
    """Whether all that a query names in FROM are tables."""
    own = {table.name.text: table.query for table in query.common_tables}
    pending, bodies = [query.body], []
    while pending:
        body = pending.pop()
        if isinstance(body, SelectBody):
            bodies.append(body)
        else:
            pending += [b.body for b in (body.branches if isinstance(body, UnionBody) else (body.left, body.right))]
    return all(_is_of_tables(b.source, environment, own) for b in bodies)


def _is_of_tables(item: FromItem, environment: Environment, own: dict[str, SelectQuery]) -> bool:
    if isinstance(item, JoinItem):
        return _is_of_tables(item.left, environment, own) and _is_of_tables(item.right, environment, own)
    if isinstance(item, SubqueryItem):
        return _reads_tables(item.query, environment)
    if isinstance(item, MatchItem):
        return False
    if not isinstance(item, NamedItem):
        return True
    if item.name.text in own:
        return _reads_tables(own[item.name.text], environment)
    common = environment.common_table(item.name.text)
    if common is not None:
        return _reads_tables(common[0].query, common[1])
    return isinstance(environment.catalog.find(item.name.text), TableDefinition)


def _of_tables(node: Node, environment: Environment) -> Node:
    """Return a plan over the rows of tables as one over the tables."""
    if isinstance(node, Scan):
        name = table_of_rows(node.stream)
        relation = environment.catalog.find(name or node.stream)
        assert isinstance(relation, TableDefinition)
        key = tuple(p for p in (relation.schema.position(k) for k in relation.key) if p is not None)
        return TableScan(attributes=node.attributes, table=relation.name, key=key)
    return with_inputs(node, tuple(_of_tables(below, environment) for below in node.inputs)) if node.inputs else node


# -- what hangs together with the query around ------------------------------------------------------------------------------------


def correlated(conditions: Sequence[Expression]) -> tuple[list[Expression], list[Expression]]:
    """Return the conditions that name columns of the query around, and the others."""
    found = [c for c in conditions if max(columns_used(c), default=0) >= OUTER]
    return found, [c for c in conditions if c not in found]


def equality(condition: Expression) -> JoinKey | None:
    """Return a correlated condition as a key: an expression over the query around, then one over the subquery's own; None for others."""
    if not isinstance(condition, Call) or condition.function not in ("=", "is_not_distinct_from"):
        return None
    first, second = condition.arguments
    if max(columns_used(first), default=0) < OUTER:
        first, second = second, first
    outer, own = columns_used(first), columns_used(second)
    if not outer or min(outer) < OUTER or not own or max(own) >= OUTER:
        return None
    common = key_type(KeyExpressions(first, second, False))
    return JoinKey(build.cast(first, common), build.cast(second, common), condition.function == "is_not_distinct_from")


class InnerColumns:
    """The columns of a subquery's plan: what it gives, keys, what a residual reads, the window's end."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []

    def position(self, expression: Expression) -> int:
        """Return where an expression over the node below is, adding a column if it is not there yet."""
        for i, output in enumerate(self.outputs):
            if output.expression == expression:
                return i
        self.outputs.append(Output(f"column_{len(self.outputs)}", expression))
        return len(self.outputs) - 1

    def reference(self, expression: Expression) -> ColumnRef:
        """Return the reference to it."""
        return ColumnRef(expression.type, self.position(expression), "")

    def project(self, node: Node) -> Node:
        """Return the plan with these columns; one where there would be none."""
        outputs = self.outputs or [Output("column_0", Literal(BIGINT, 1))]
        attributes = tuple(replace(projected(node, o.expression, o.name), role=Role.PLAIN) for o in outputs)
        return Project(attributes=attributes, input=node, expressions=tuple(o.expression for o in outputs))

    def residual(self, conditions: Sequence[Expression]) -> Expression | None:
        """Return what is left of correlated conditions over these columns."""

        def change(e: Expression) -> Expression:
            if not isinstance(e, ColumnRef) or e.position >= OUTER:
                return e
            return replace(e, position=self.position(e))

        return conjunction([transform(c, change) for c in conditions])


def inner_rows(node: Node, value: Expression | None, related: Sequence[Expression], shared: Sequence[JoinKey]) -> Inner:
    """Return a subquery that gives rows of `node`: `related` are its correlated conditions, `shared` the bounds of a common window."""
    columns = InnerColumns()
    given = None if value is None else columns.reference(value)
    found = [equality(c) for c in related]
    keys = [k for k in found if k is not None]
    rest = [c for c, k in zip(related, found, strict=True) if k is None]
    made = tuple(replace(k, right=columns.reference(k.right)) for k in (*keys, *shared))
    residual = columns.residual(rest)
    return Inner(columns.project(node), given, made, residual, end=made[-1].right.position if shared else None)  # type: ignore[attr-defined]


def inner_groups(
    binder: AggregateBinder,
    node: Node,
    value: Expression | None,
    having: Expression | None,
    keys: Sequence[JoinKey],
    shared: Sequence[JoinKey],
    *,
    implicit: bool,
) -> Inner:
    """Return a subquery that gives groups. `keys` hold source expressions that are keys of the grouping; `implicit`: it has no GROUP BY."""
    columns = InnerColumns()
    if implicit:
        for i, pending in enumerate(binder.pending):
            columns.position(ColumnRef(pending.signature.result, len(binder.keys) + i, pending.name))

        def above(e: Expression) -> Expression:
            if not isinstance(e, ColumnRef):
                return e
            place = e.position - len(binder.keys)
            if not 0 <= place < len(binder.pending):
                raise Unsupported("the window's bounds beside an aggregate in a subquery are not supported", hint="leave them out")
            reference = replace(e, position=place)
            zero = aggregate_of(binder.pending[place].function).zero_if_empty
            return build.call("coalesce", [reference, build.cast(Literal(BIGINT, 0), e.type)]) if zero else reference

        value = None if value is None else transform(binder.resolved(value), above)
        kept = None if having is None else transform(binder.resolved(having), above)
    else:
        node = filtered(node, [] if having is None else [binder.resolved(having)])
        value = None if value is None else columns.reference(binder.resolved(value))
        kept = None

    def grouped(key: JoinKey) -> JoinKey:
        found = binder.over_group(key.right)
        assert found is not None
        return replace(key, right=columns.reference(binder.resolved(found)))

    made = (*map(grouped, keys), *(replace(k, right=columns.reference(binder.resolved(_bound_of(binder, k)))) for k in shared))
    return Inner(
        columns.project(node),
        value,
        made,
        None,
        implicit,
        kept,
        made[-1].right.position if shared else None,  # type: ignore[attr-defined]
    )


def _bound_of(binder: AggregateBinder, key: JoinKey) -> Expression:
    found = binder.over_group(key.right)
    assert found is not None
    return found


def shared_window(source: Node, environment: Environment) -> list[JoinKey]:
    """Return as keys the bounds of the window that a subquery shares with the query around it; none where it shares none."""
    if not isinstance(source, Window) or environment.shared is None or source.spec != environment.shared:
        return []
    around = environment.around
    assert around is not None
    keys = []
    for i, a in enumerate(source.attributes):
        if a.role in WINDOW_ROLES:
            keys.append(JoinKey(around(exp.column(a.name)), a.reference(i)))
    return keys


def parted(where: exp.Expr | None) -> tuple[exp.Expr | None, list[exp.Expr]]:
    """Return the condition without those of its conjuncts that hold a subquery, and these."""
    if where is None or not _holds_subquery(where):
        return where, []
    parts = flattened(where, exp.And)
    later = [part for part in parts if _holds_subquery(part)]
    plain = [part for part in parts if part not in later]
    return (reduce(lambda a, b: exp.And(this=a, expression=b), plain) if plain else None), later


def _holds_subquery(node: exp.Expr) -> bool:
    return any(is_subquery(part) for part in walked(node))


def one_column(outputs: Sequence[Output]) -> Expression:
    """Return what a subquery gives; TypeProblem unless it has one column."""
    if len(outputs) != 1:
        raise TypeProblem(f"a subquery in an expression gives one column, not {len(outputs)}", hint="name one; EXISTS takes any")
    return outputs[0].expression
