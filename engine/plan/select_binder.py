"""One SELECT … FROM … WHERE … GROUP BY … HAVING … ORDER BY … LIMIT to a plan."""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import EngineError, TypeProblem, Unsupported
from millstream.engine.data.types import BIGINT, TEXT
from millstream.engine.expressions.build import call, conjuncts
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal, columns_used
from millstream.engine.language.recipes import EmitKind, EmitSpec, OrderColumn, WindowKind, WindowSpec
from millstream.engine.language.statements import OrderItem, Place, SelectBody, SelectItem, SelectQuery, Star
from millstream.engine.plan.aggregate_binder import AggregateBinder, HavingBinder, contains_aggregate
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.from_binder import BoundFrom, Environment, FromBinder, QueryBinder
from millstream.engine.plan.logical import (
    Aggregate,
    Attribute,
    Attributes,
    Distinct,
    JoinKey,
    Node,
    Role,
    Window,
    change_position,
    check_append_only,
    unique_names,
)
from millstream.engine.plan.over import LagBinder, PendingRank, rank_node, ranked
from millstream.engine.plan.scope import Scope
from millstream.engine.plan.steps import (
    WINDOW_ROLES,
    OrderBy,
    Output,
    aggregate_emit,
    aggregated,
    check_empty,
    column_for,
    filtered,
    project_to,
    relation,
    split_conditions,
    top_of,
    window_of,
)
from millstream.engine.plan.subqueries import (
    Inner,
    SubqueryStage,
    correlated,
    equality,
    inner_groups,
    inner_rows,
    one_column,
    parted,
    placed,
    shared_window,
    under_window,
)
from millstream.engine.plan.table_windows import windowed_again
from millstream.engine.plan.text import window_text
from millstream.engine.plan.windows import PER_WINDOW, windowed_times
from sqlglot import exp

ALL_ROWS = 1 << 62  # a limit that is none: ORDER BY alone, where the rows are finite
_IMPLICIT_NAMES: dict[type[exp.Expr], str] = {
    exp.Case: "case",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.Trim: "trim",
    exp.StrPosition: "position",
}
OVER_BESIDE = "OVER ( ) beside a subquery in one select list is not supported"
SUBQUERY_STEPS = 150  # of limits.WORK_MAX, for each subquery: what is made for it alone
STAR_STEPS = 20  # of limits.WORK_MAX, for each column that a star stands for: it becomes a column of the answer


class SelectBinder:
    """Binds one SELECT. `query` holds the clauses around the body; `emit` is None where the text says nothing."""

    def __init__(
        self, query: SelectQuery, body: SelectBody, environment: Environment, bind_query: QueryBinder, emit: EmitSpec | None
    ) -> None:
        self.query = query
        self.body = body
        self.environment = environment
        self.bind_query = bind_query
        self.emit = emit
        self.keeps_bounds = False  # beside UNION, INTERSECT or EXCEPT: the bounds of a window are the last two columns
        self.moving: tuple[WindowSpec, Attributes] | None = None  # the window of FROM, if it is one that never ends

    def bind(self) -> Node:
        """Return the plan; its attributes are the answer's columns, perhaps followed by the kind of a change."""
        grouped = bool(self.body.group_by) or self.body.having is not None or self._has_aggregate()
        if grouped and self.body.distinct_on:
            message = "DISTINCT ON beside GROUP BY or an aggregate is not supported"
            raise Unsupported(message, hint="aggregate in a derived table: SELECT DISTINCT ON (k) … FROM (SELECT …)")
        return self._over(self._source(grouped=grouped), grouped=grouped)

    def _source(self, *, grouped: bool) -> BoundFrom:
        """Bind FROM and WHERE, of which what holds a subquery comes last."""
        below = None if grouped or self.emit is None or self.emit.kind is EmitKind.CHANGES else self.emit
        where, later = parted(self.body.where)
        source = FromBinder(self.environment, self.bind_query, below).bind(self.body.source, where)
        if not later:
            return source
        stage = self._stage(source)
        binder = ExpressionBinder(source.scope, "an aggregate cannot stand in WHERE; use HAVING", self.environment.around)
        binder.subqueries = stage
        conditions = [c for node in later for c in conjuncts(binder.condition(node, "WHERE"))]
        if source.per_window:
            raise Unsupported(
                "a subquery beside table LEFT JOIN stream [window] is not supported", hint="put the join into a derived stream"
            )
        node: Node = source.node
        if isinstance(node, Window) and not stage.at_close:
            node, conditions = under_window(stage, node, [*source.conditions, *conditions])
            return BoundFrom(node, Scope(node.attributes, source.scope.hints), tuple(conditions))
        if stage.at_close and grouped:
            hint = (
                "SELECT its rows in a derived table, and aggregate over the same window of that: FROM (SELECT … WHERE …) [RANGE w SLIDE w]"
            )
            raise Unsupported("an aggregate beside a subquery over the same window is not supported", hint=hint)
        if isinstance(node, Window):
            node = replace(node, attributes=windowed_times(node))
        related, plain = correlated(source.conditions)
        node, base = stage.attached(filtered(node, plain))
        return BoundFrom(node, Scope(node.attributes, source.scope.hints), (*related, *(placed(c, base) for c in conditions)))

    def _stage(self, source: BoundFrom) -> SubqueryStage:
        return SubqueryStage(self.environment, self.bind_query, self._inner, source.node)

    def _over(self, source: BoundFrom, *, grouped: bool) -> Node:
        """Return the plan over FROM and WHERE."""
        if isinstance(source.node, Window) and source.node.spec.kind not in PER_WINDOW:
            self.moving = source.node.spec, source.node.input.attributes
        if grouped:
            return self._grouped(source)
        if self.body.distinct_on:
            return self._first_of_each(source)
        if self.body.distinct and isinstance(source.node, Window) and source.node.spec.kind is not WindowKind.SESSION:
            return self._distinct_in_window(source)
        return self._plain(source)

    # -- as a subquery in an expression ---------------------------------------------------------------------------------------

    def _inner(self, query: SelectQuery, environment: Environment, exists: bool) -> Inner:
        """Bind a subquery of this SELECT."""
        spend(SUBQUERY_STEPS)
        plain = replace(environment, around=None, shared=None)
        body = query.body
        plain_body = isinstance(body, SelectBody) and not body.grouping_sets
        if plain_body and isinstance(body, SelectBody) and not (query.emit or query.options or query.stream):
            for table in query.common_tables:
                environment = replace(environment, tables=(*environment.tables, (table, plain)))
                plain = replace(environment, around=None, shared=None)
            if body.group_all:
                from millstream.engine.plan.sets import all_keys

                body = all_keys(body)
            return SelectBinder(query, body, environment, self.bind_query, EmitSpec() if environment.finite else None).inner(exists=exists)
        node = self.bind_query(query, plain, None)
        return Inner(node, None if exists else one_column([Output(a.name, a.reference(i)) for i, a in enumerate(node.attributes)]))

    def inner(self, *, exists: bool) -> Inner:
        """Return this SELECT as the subquery of another; of EXISTS it does not matter what it selects."""
        grouped = bool(self.body.group_by) or self.body.having is not None or self._has_aggregate()
        source = self._source(grouped=grouped)
        related, plain = correlated(source.conditions)
        shared = shared_window(source.node, self.environment)
        implicit = grouped and not self.body.group_by
        if not related and not shared and not implicit:
            node = self._over(source, grouped=grouped)
            check_append_only(node, "a subquery")
            return Inner(node, None if exists else one_column([Output(a.name, a.reference(i)) for i, a in enumerate(node.attributes)]))
        if self.body.distinct_on or (self.query.limit is not None and not (implicit and self.query.limit > 0)):
            what = "DISTINCT ON" if self.body.distinct_on else "LIMIT"
            hint = "MIN, MAX, ARG_MIN and ARG_MAX say which row of several is meant"
            raise Unsupported(f"{what} in a subquery that depends on the query around it is not supported", hint=hint)
        if grouped:
            return self._inner_groups(source, related, plain, shared, exists=exists)
        node, scope = self._without_aggregate(replace(source, conditions=tuple(plain)))
        node = filtered(node, plain)
        value = None if exists else one_column(self._outputs(ExpressionBinder(scope), node.attributes))
        return inner_rows(node, value, related, shared)

    def _inner_groups(
        self, source: BoundFrom, related: list[Expression], plain: list[Expression], shared: list[JoinKey], *, exists: bool
    ) -> Inner:
        window = source.node if isinstance(source.node, Window) else None
        spec = window.spec if window is not None else None
        emit = aggregate_emit(spec, self.emit, None)
        binder = AggregateBinder(source.scope)
        below, above = split_conditions(plain, source.scope.attributes, binder)
        aliases = {i.alias.text: i.expression for i in self.body.items if isinstance(i, SelectItem) and i.alias is not None}
        for key in self.body.group_by:
            self._group_key(key, binder, aliases)
        value = None if exists else one_column(self._grouped_outputs(binder))
        having = HavingBinder(binder, aliases).condition(self.body.having) if self.body.having is not None else None
        keys = [equality(c) for c in related]
        for found in keys:
            if found is None:
                hint = "compare columns of both with =; for other conditions join the two and aggregate"
                raise Unsupported("a subquery with an aggregate depends on the query around it by equalities alone", hint=hint)
            binder.add_key(found.right, found.right.name if isinstance(found.right, ColumnRef) else "key")
        node: Node = aggregated(binder, source.node, below, spec, emit)
        check_append_only(node, "a subquery")
        node = filtered(node, [binder.resolved(c) for c in above])
        known = [k for k in keys if k is not None]
        return inner_groups(binder, node, value, having, known, shared, implicit=not self.body.group_by)

    def _has_aggregate(self) -> bool:
        nodes = [item.expression for item in self.body.items if isinstance(item, SelectItem)]
        nodes += [item.expression for item in self.query.order_by]
        return any(contains_aggregate(node) for node in nodes)

    # -- without GROUP BY -----------------------------------------------------------------------------------------------------

    def _plain(self, source: BoundFrom) -> Node:
        node, scope = self._without_aggregate(source)
        node = filtered(node, list(source.conditions))
        binder = LagBinder(scope)
        binder.subqueries = stage = self._stage(source)
        outputs = self._outputs(binder, node.attributes)
        order = self._order(binder, outputs)
        if not stage.pending:
            return self._finish(self._numbered(node, binder.extend(node)), outputs, order)
        if binder.extend(node) is not node:
            raise Unsupported(OVER_BESIDE, hint="compute one of them in a derived table")
        node, base = stage.attached(node)
        outputs = [replace(o, expression=placed(o.expression, base)) for o in outputs]
        return self._finish(node, outputs, [replace(k, expression=placed(k.expression, base)) for k in order])

    def _numbered(self, before: Node, after: Node) -> Node:
        """Return the plan once rows are numbered: without a window the numbers change (K24), of rows that stand now they do not."""
        if change_position(after.attributes) is None or change_position(before.attributes) is not None:
            return after
        if self.moving is not None:
            message = f"ROW_NUMBER over [{window_text(*self.moving)}] is not supported, as that window never ends"
            raise Unsupported(message, hint="leave the window out for all rows so far, or write [RANGE w SLIDE s]")
        return relation(after, "f") if self.environment.finite else after

    def _first_of_each(self, source: BoundFrom) -> Node:
        """DISTINCT ON (k) … ORDER BY k, x: the row with the number 1 among those of equal k, by x (K24)."""
        if self.query.limit is not None:
            raise Unsupported("LIMIT with DISTINCT ON is not supported", hint="put the SELECT DISTINCT ON into a derived table")
        node, scope = self._without_aggregate(source)
        node = filtered(node, list(source.conditions))
        binder = ExpressionBinder(scope)
        outputs = self._outputs(binder, node.attributes)
        items = [OrderItem(key, False, False, self.body.place) for key in self.body.distinct_on]
        on = tuple(dict.fromkeys(self._order_key(item, binder, outputs).expression for item in items))
        order = [self._order_key(item, binder, outputs) for item in self.query.order_by]
        if {key.expression for key in order[: len(on)]} != (set(on) if order else set()):
            problem = TypeProblem(
                "ORDER BY must begin with the columns of DISTINCT ON",
                hint="as in SELECT DISTINCT ON (k) … ORDER BY k, x DESC; what stands behind them says which row is the first",
            )
            raise located_at(self.query.order_by[0].place, problem)
        rest = tuple((key.expression, key.descending, key.nulls_first) for key in order[len(on) :])
        numbered = self._numbered(node, rank_node(node, PendingRank("row_number", on, rest)))
        number = numbered.attributes[len(node.attributes)].reference(len(node.attributes))
        return self._finish(filtered(numbered, [call("=", [number, Literal(BIGINT, 1)])]), outputs, [])

    def _without_aggregate(self, source: BoundFrom) -> tuple[Node, Scope]:
        """A sliding window without an aggregate gives each row as it enters; its change log (EMIT CHANGES, ISTREAM …) also as it leaves."""
        node = source.node
        if not isinstance(node, Window):
            return node, source.scope
        if node.spec.kind in PER_WINDOW:
            return (made := replace(node, attributes=windowed_times(node))), Scope(made.attributes)
        kind = node.spec.kind
        if kind is WindowKind.LANDMARK or (kind is WindowKind.UNBOUNDED and self.query.stream is None):
            raise Unsupported(f"[{kind.value.upper()}] without an aggregate is not supported", hint="leave the window out")
        changes = self._wants_changes(kind)
        if kind is WindowKind.ROWS and node.spec.rows_slide > (1 if changes else node.spec.rows):
            raise Unsupported("SLIDE in a ROWS window without an aggregate is not supported", hint="leave SLIDE out")
        inner = node.input
        if any(max(columns_used(c), default=0) >= len(inner.attributes) for c in source.conditions):
            raise Unsupported(
                f"the bounds of a {kind.value.upper()} window without an aggregate are not columns", hint="use the event time"
            )
        reason = f"a {kind.value.upper()} window has bounds only under an aggregate; use the event time"
        hints = (("window_start", reason), ("window_end", reason))
        if changes:
            attributes = (*inner.attributes, Attribute("op", TEXT, False, role=Role.CHANGE))
            node = Window(attributes=attributes, input=inner, spec=node.spec, changes=True)
            return node, Scope(attributes, hints)
        return inner, Scope(inner.attributes, hints)

    def _wants_changes(self, kind: WindowKind) -> bool:
        if kind is WindowKind.UNBOUNDED:
            return self.query.stream == "r"
        return self.query.stream is not None or (self.emit is not None and self.emit.kind is EmitKind.CHANGES)

    def _outputs(self, binder: ExpressionBinder, attributes: tuple[Attribute, ...]) -> list[Output]:
        outputs: list[Output] = []
        for item in self.body.items:
            if isinstance(item, Star):
                outputs += self._star(item, attributes)
            else:
                bound = binder.bind(item.expression)
                outputs.append(Output(item.alias.text if item.alias else implicit_name(item, len(outputs)), bound))
        if not outputs:
            raise located_at(self.body.place, TypeProblem("the select list is empty"))
        return _distinct_names(outputs)

    def _star(self, item: Star, attributes: tuple[Attribute, ...]) -> list[Output]:
        scope = Scope(attributes)
        if item.qualifier is not None and item.qualifier.text not in scope.qualifiers():
            raise located_at(item.place, scope._unknown("*", item.qualifier.text))
        wanted = None if item.qualifier is None else item.qualifier.text
        spend(STAR_STEPS * len(attributes))
        return [
            Output(a.word, a.reference(i))
            for i, a in enumerate(attributes)
            if a.role is not Role.CHANGE and (not a.covered if wanted is None else a.qualifier == wanted)
        ]

    # -- with GROUP BY --------------------------------------------------------------------------------------------------------

    def _grouped(self, source: BoundFrom) -> Node:
        if source.per_window is not None:
            if source.per_window.slide_us != source.per_window.range_us:
                hint = "take tumbling windows, [RANGE d SLIDE d], or leave the table out: FROM stream [window] GROUP BY k EMIT EMPTY"
                raise Unsupported("an aggregate over table LEFT JOIN stream [window] of windows that overlap is not supported", hint=hint)
            rows = windowed_again(source.node, source.per_window)
            source = replace(source, node=rows, scope=Scope(rows.attributes, source.scope.hints))
        window = source.node if isinstance(source.node, Window) else None
        spec = window.spec if window is not None else None
        emit = aggregate_emit(spec, self.emit, self.query.stream)
        binder = AggregateBinder(source.scope)
        binder.subqueries = stage = self._stage(source)
        below, above = split_conditions(source.conditions, source.scope.attributes, binder)
        aliases = {i.alias.text: i.expression for i in self.body.items if isinstance(i, SelectItem) and i.alias is not None}
        for key in self.body.group_by:
            self._group_key(key, binder, aliases)
        outputs = self._grouped_outputs(binder)
        having = HavingBinder(binder, aliases).condition(self.body.having) if self.body.having is not None else None
        order = self._order(binder, outputs)
        check_empty(emit, bool(binder.keys), spec)
        if self.environment.finite and spec is None and not binder.keys:
            emit = replace(emit, always=True)
        node: Node = aggregated(binder, source.node, below, spec, emit)
        if stage.pending and binder.ranks:
            raise Unsupported(OVER_BESIDE, hint="compute one of them in a derived table")
        node, base = stage.attached(node, binder.resolved)

        def resolved(expression: Expression) -> Expression:
            return binder.resolved(placed(expression, base))

        node = filtered(node, [resolved(c) for c in [*above, *([having] if having is not None else [])]])
        node = self._numbered(node, binder.with_ranks(node))
        outputs = [Output(o.name, resolved(o.expression)) for o in outputs]
        order = [replace(k, expression=resolved(k.expression)) for k in order]
        return self._finish(node, outputs, order)

    def _grouped_outputs(self, binder: AggregateBinder) -> list[Output]:
        for item in self.body.items:
            if isinstance(item, Star):
                raise located_at(item.place, TypeProblem("* cannot stand beside GROUP BY or an aggregate", hint="list the columns"))
        return self._outputs(binder, ())

    def _group_key(self, key: exp.Expr, binder: AggregateBinder, aliases: dict[str, exp.Expr]) -> None:
        """A key is a column, else an alias or ordinal of the select list, else an expression."""
        if isinstance(key, exp.Literal) and not key.is_string:
            key = self._ordinal(key, "GROUP BY")
        elif isinstance(key, exp.Column) and key.args.get("table") is None:
            name = key.name if key.this.args.get("quoted") else key.name.lower()
            known = any(a.word == name for a in binder.scope.attributes) or name == "window_time"
            if not known and name in aliases:
                key = aliases[name]
        if contains_aggregate(key):
            raise Unsupported("an aggregate cannot be a grouping key", hint="aggregate in a derived table first")
        bound = binder.source.bind(key)
        binder.add_key(bound, bound.name if isinstance(bound, ColumnRef) else "key")

    def _ordinal(self, node: exp.Literal, clause: str) -> exp.Expr:
        text = str(node.this)
        number = int(text) if text.isdigit() else 0
        items = self.body.items
        item = items[number - 1] if 1 <= number <= len(items) else None
        if not isinstance(item, SelectItem):
            raise TypeProblem(f"{clause} {text} is not a column of the select list", hint=f"there are {len(items)}")
        return item.expression

    # -- DISTINCT, ORDER BY, LIMIT --------------------------------------------------------------------------------------------

    def _distinct_in_window(self, source: BoundFrom) -> Node:
        """SELECT DISTINCT over a window is GROUP BY all its columns; not over sessions, of which GROUP BY would make one a group."""
        if self.query.order_by or self.query.limit is not None:
            message = "ORDER BY … LIMIT with SELECT DISTINCT over a window is not supported"
            raise Unsupported(message, hint="write GROUP BY instead of DISTINCT")
        assert isinstance(source.node, Window)
        binder = AggregateBinder(source.scope)
        below, above = split_conditions(source.conditions, source.scope.attributes, binder)
        outputs = self._outputs(binder.source, source.node.attributes)
        for output in outputs:
            binder.add_key(output.expression, output.name)
        rebound = []
        for output in outputs:
            found = binder.over_group(output.expression)
            assert found is not None
            rebound.append(Output(output.name, found))
        emit = aggregate_emit(source.node.spec, self.emit, self.query.stream)
        check_empty(emit, bool(binder.keys), source.node.spec)
        node: Node = binder.build(filtered(source.node, below), source.node.spec, emit)
        node = filtered(node, [binder.resolved(c) for c in above])
        return self._finish(node, [Output(o.name, binder.resolved(o.expression)) for o in rebound], [], distinct=False)

    def _order(self, binder: ExpressionBinder, outputs: list[Output]) -> list[OrderBy]:
        if self.environment.finite:
            self._check_limit()
            return [self._order_key(item, binder, outputs) for item in self.query.order_by]
        if self.query.limit is not None and not self.query.order_by:
            raise Unsupported(
                "LIMIT without ORDER BY is not supported in a continuous query",
                hint="write ORDER BY column LIMIT k over a window, stop reading with tail --limit k, or FETCH SELECT for one answer now",
            )
        if self.query.order_by and self.query.limit is None:
            place = self.query.order_by[0].place
            raise located_at(place, Unsupported("ORDER BY without LIMIT is not supported", hint="add LIMIT k"))
        return [self._order_key(item, binder, outputs) for item in self.query.order_by]

    def _check_limit(self) -> None:
        """Of rows that stand now LIMIT may stand alone: then the first to have arrived are meant."""
        if self.query.limit is not None and self.body.distinct:
            raise Unsupported("LIMIT with SELECT DISTINCT is not supported", hint="write GROUP BY instead of DISTINCT")
        if self.query.with_ties and not self.query.order_by:
            raise Unsupported("WITH TIES needs ORDER BY", hint="ties are rows that ORDER BY does not tell apart")

    def _order_key(self, item: OrderItem, binder: ExpressionBinder, outputs: list[Output]) -> OrderBy:
        return order_key(item, binder, outputs)

    def _check_bounded(self) -> None:
        """The first k are those of each window that ends; a window that moves on at every row has no end."""
        if self.moving is None or self.environment.finite:
            return
        spec, attributes = self.moving
        raise Unsupported(
            f"ORDER BY … LIMIT over [{window_text(spec, attributes)}] is not supported, as that window never ends",
            hint="write [RANGE w SLIDE s] or [SESSION gap], or take TOP(x, k)",
        )

    def _finish(self, node: Node, outputs: list[Output], order: list[OrderBy], distinct: bool | None = None) -> Node:
        """Project to the answer, with DISTINCT, the first k, and the kind of a change kept as the last column."""
        distinct = self.body.distinct if distinct is None else distinct
        change = change_position(node.attributes)
        windows = [i for i, a in enumerate(node.attributes) if a.role in WINDOW_ROLES]
        limited = bool(order) or self.query.limit is not None
        if distinct and change is not None and not limited and not windows:
            return _different(project_to(node, [*outputs, Output("op", node.attributes[change].reference(change))]))
        if limited and change is not None and not distinct and not windows and not self.query.with_ties and order:
            return self._first_that_stand(node, outputs, order)
        if distinct or limited:
            check_append_only(node, "DISTINCT" if distinct else "ORDER BY … LIMIT")
        if distinct:
            return self._distinct(node, outputs, order, windows)
        if limited:
            self._check_bounded()
            limit = ALL_ROWS if self.query.limit is None else self.query.limit
            return top_of(node, outputs, order, limit, self.query.with_ties, whole=self.environment.finite)
        if self.keeps_bounds and len(windows) == 2 and not limited and change is None:
            bounds = [Output(node.attributes[i].name, node.attributes[i].reference(i)) for i in windows]
            made = project_to(node, [*outputs, *bounds], keep_roles=True)
            plain = tuple(replace(a, role=Role.PLAIN) for a in made.attributes[:-2])
            return replace(made, attributes=(*plain, *made.attributes[-2:]))
        if change is not None:
            outputs = [*outputs, Output("op", node.attributes[change].reference(change))]
        return project_to(node, outputs)

    def _first_that_stand(self, node: Node, outputs: list[Output], order: list[OrderBy]) -> Node:
        """Return the first k of what stands after a change log (K24); ordering keys ride along as hidden columns."""
        change = change_position(node.attributes)
        assert change is not None
        columns = list(outputs)
        keys = tuple(OrderColumn(column_for(k.expression, columns), k.descending, k.nulls_first) for k in order)
        rows = project_to(node, [*columns, Output("op", node.attributes[change].reference(change))])
        first = ranked(rows, "row_number", (), keys, self.query.limit)
        last = len(first.attributes) - 1
        kept = [Output(o.name, first.attributes[i].reference(i)) for i, o in enumerate(outputs)]
        return project_to(first, [*kept, Output("op", first.attributes[last].reference(last))])

    def _distinct(self, node: Node, outputs: list[Output], order: list[OrderBy], windows: list[int]) -> Node:
        if order:
            raise Unsupported("DISTINCT with ORDER BY is not supported", hint="write GROUP BY instead of DISTINCT")
        hidden = [Output(f"hidden_{i}", node.attributes[i].reference(i)) for i in windows]
        inner = project_to(node, [*outputs, *hidden], keep_roles=True)
        made = Distinct(attributes=inner.attributes, input=inner, window=window_of(node) if hidden else None)
        if not hidden:
            return replace(made, attributes=tuple(replace(a, role=Role.PLAIN) for a in made.attributes))
        return project_to(made, [Output(o.name, made.attributes[i].reference(i)) for i, o in enumerate(outputs)])


def _different(node: Node) -> Node:
    """Return the different rows of a change log, as GROUP BY all columns gives them."""
    width = len(node.attributes) - 1
    keys = tuple(range(width))
    return Aggregate(
        attributes=node.attributes, input=node, keys=keys, items=(), windowed=False, emit=EmitSpec(EmitKind.CHANGES), retracts=width
    )


def located_at(place: Place, problem: EngineError) -> EngineError:
    """Return the error with a place, unless it has one."""
    if problem.line is None:
        problem.line, problem.column = place.line, place.column
    return problem


def order_key(item: OrderItem, binder: ExpressionBinder, outputs: list[Output]) -> OrderBy:
    """Return a key of ORDER BY: a number or a name of the outputs, else an expression."""
    node = item.expression
    expression: Expression | None = None
    if isinstance(node, exp.Literal) and not node.is_string:
        text = str(node.this)
        if not text.isdigit() or not 1 <= int(text) <= len(outputs):
            raise located_at(item.place, TypeProblem(f"ORDER BY {text} is not a column of the answer"))
        expression = outputs[int(text) - 1].expression
    elif isinstance(node, exp.Column) and node.args.get("table") is None:
        name = node.name if node.this.args.get("quoted") else node.name.lower()
        expression = next((o.expression for o in outputs if o.name == name), None)
    expression = expression if expression is not None else binder.bind(node)
    if not expression.type.is_ordered:
        problem = TypeProblem(f"values of the type {expression.type} have no order", hint="order by one of its parts")
        raise located_at(item.place, problem)
    return OrderBy(expression, item.descending, item.nulls_first)


def implicit_name(item: SelectItem, position: int) -> str:
    """Return the name of a column without alias, as PostgreSQL gives it: by its column or function."""
    node = item.expression
    while isinstance(node, (exp.Filter, exp.WithinGroup, exp.Window, exp.Paren, exp.Cast)):
        node = node.this
    if isinstance(node, exp.Column):
        return str(node.name) if node.this.args.get("quoted") else str(node.name).lower()
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    return _IMPLICIT_NAMES.get(type(node), f"column_{position + 1}")


def _distinct_names(outputs: list[Output]) -> list[Output]:
    names = unique_names([o.name for o in outputs])
    return [o if o.name == n else replace(o, name=n) for o, n in zip(outputs, names, strict=True)]
