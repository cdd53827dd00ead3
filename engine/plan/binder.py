"""From a parsed query to a logical plan: names found, types checked, emission settled (K9).

Beside each COUNT and SUM of the select list come two columns that were asked for so: `name_scaled`, the estimate of Horvitz and Thompson
(1952), and `name_error`, half the width of its 95 % confidence interval. With w the sampling weight of a kept row (1 over the chance
that it was kept) and y its value (1 for a count):

    estimate = Σ w·y          variance = Σ w·(w − 1)·y²          error = 1.96 · √variance

That assumes that each row was kept or dropped by itself, with the chance in force when it came (the hash of seed and arrival number sees to
it); that no chance was 0, so rows that fell because a log was quite full are not made up for; and, for the interval, enough kept rows for
the normal distribution (some thirty a group). A group of which nothing was kept has no row. Where nothing was shed the error is 0.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.effort import spend
from millstream.engine.data.errors import EngineError, TypeProblem, Unsupported
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import Expression
from millstream.engine.expressions.signature import common_type_of_all
from millstream.engine.language.recipes import EmitKind, EmitSpec
from millstream.engine.language.statements import (
    Name,
    NamedItem,
    Option,
    Place,
    SelectBody,
    SelectItem,
    SelectQuery,
    SetBody,
    Star,
    UnionBody,
)
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.from_binder import Environment
from millstream.engine.plan.logical import (
    Attribute,
    LogicalQuery,
    Node,
    Project,
    Union,
    change_position,
    check_append_only,
)
from millstream.engine.plan.query_options import kept, query_options
from millstream.engine.plan.running_tops import with_limits
from millstream.engine.plan.scope import Scope
from millstream.engine.plan.select_binder import ALL_ROWS, SelectBinder, order_key
from millstream.engine.plan.steps import Output, append_only_change, check_tables, is_several, settled, top_of
from sqlglot import exp

CONFIDENCE_FACTOR = 1.96  # of the normal distribution, two-sided 95 %


def wants_scaling(query: SelectQuery, overrides: tuple[Option, ...]) -> Option | None:
    """Return the option that asks for it, None when nobody does."""
    found = None
    for option in (*query.options, *overrides):
        if option.name == "scale_up":
            found = option
    return found if found is not None and found.value is True else None


def scaled_up(query: SelectQuery, option: Option) -> SelectQuery:
    """Return the query with the two columns beside each COUNT and SUM."""
    body = query.body
    plain = isinstance(body, SelectBody) and isinstance(body.source, NamedItem) and not body.distinct
    if not isinstance(body, SelectBody) or not plain or query.stream is not None or query.common_tables:
        raise _refused(option, "scale_up is for one SELECT from one stream", "leave joins, derived tables, DISTINCT and ISTREAM out")
    taken = {item.alias.text.lower() for item in body.items if isinstance(item, SelectItem) and item.alias is not None}
    items: list[SelectItem | Star] = []
    for item in body.items:
        items.append(item)
        call = _scalable(item.expression) if isinstance(item, SelectItem) else None
        if isinstance(item, SelectItem) and call is not None:
            beside = _beside(item, call)
            double = next((name.text for one in beside if (name := one.alias) is not None and name.text.lower() in taken), None)
            if double is not None:
                raise _refused(option, f"scale_up adds a column {double}, and the select list has one of that name", "name yours otherwise")
            items += beside
    if len(items) == len(body.items):
        raise _refused(option, "scale_up needs a COUNT or SUM by itself in the select list", "AVG needs no scaling")
    return replace(query, body=replace(body, items=tuple(items)))


def _refused(option: Option, message: str, hint: str) -> Unsupported:
    place = option.place
    known = place != Place()  # one from outside the text has none
    return Unsupported(
        message, hint=hint, line=place.line if known else None, column=place.column if known else None, token=option.name if known else None
    )


def _scalable(node: exp.Expr) -> exp.Anonymous | None:
    """Return the COUNT or SUM that an item is, perhaps with FILTER."""
    call = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in ("count", "sum") or len(call.expressions) != 1:
        return None
    return None if isinstance(call.expressions[0], exp.Distinct) else call


def _beside(item: SelectItem, call: exp.Anonymous) -> list[SelectItem]:
    name = item.alias.text if item.alias is not None else call.name.lower()
    argument = call.expressions[0]
    weight = _function("SAMPLING_WEIGHT")
    first: exp.Expr = weight
    second: exp.Expr = exp.Mul(this=weight, expression=exp.Paren(this=exp.Sub(this=weight.copy(), expression=exp.Literal.number(1))))
    condition = item.expression.expression.this if isinstance(item.expression, exp.Filter) else None
    if call.name.lower() == "sum":
        value = exp.Paren(this=argument.copy())
        first = exp.Mul(this=weight.copy(), expression=value)
        second = exp.Mul(this=exp.Mul(this=second, expression=value.copy()), expression=value.copy())
    elif not isinstance(argument, exp.Star):
        counted = exp.Not(this=exp.Is(this=exp.Paren(this=argument.copy()), expression=exp.Null()))
        condition = counted if condition is None else exp.And(this=exp.Paren(this=condition), expression=counted)
    scaled = _summed(first, condition)
    error: exp.Expr = exp.Mul(this=exp.Literal.number(CONFIDENCE_FACTOR), expression=_function("SQRT", _summed(second, condition)))
    if call.name.lower() == "count":  # nothing counted is 0, as COUNT says
        scaled, error = (_function("COALESCE", one, exp.Literal.number(0)) for one in (scaled, error))
    beside = (("scaled", scaled), ("error", error))
    return [SelectItem(expression, Name(f"{name}_{word}", item.place), item.text, item.place) for word, expression in beside]


def _summed(value: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    call = _function("SUM", value)
    return call if condition is None else exp.Filter(this=call, expression=exp.Where(this=condition.copy()))


def _function(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


# A common table is bound where it is named; tables named twice in tables named twice … would double without end.
NESTED_QUERIES_MAX = 256
QUERY_STEPS = 150  # of limits.WORK_MAX, for each SELECT: what is made for it alone


def bind_query(query: SelectQuery, catalog: Catalog, overrides: tuple[Option, ...] = (), *, finite: bool = False) -> LogicalQuery:
    """Return the logical plan of a whole query. `overrides` are options from outside the text; they win over its own.

    `finite`: the inputs are sets of rows that stand now, and there is one answer (join_binder.py).
    """
    return _Binder(catalog, finite).query(query, overrides)


class _Binder:
    """Binds one query and what is nested in it."""

    def __init__(self, catalog: Catalog, finite: bool) -> None:
        self.catalog = catalog
        self.finite = finite
        self.nested_queries = 0

    def query(self, query: SelectQuery, overrides: tuple[Option, ...]) -> LogicalQuery:
        scaling = wants_scaling(query, overrides)
        if scaling is not None:
            query = scaled_up(query, scaling)
        emit = EmitSpec(EmitKind.CHANGES) if query.stream is not None else query.emit
        if self.finite:
            emit = _once(query)
        node = self._bind(query, Environment(self.catalog, finite=self.finite), emit)
        check_tables(node, query.body.place)
        node = with_limits(node)
        node, settled_emit = settled(node, query.emit, query.stream, query.every_us, query.emit_place or query.place)
        options = query_options(query.options, overrides, node, settled_emit, self.catalog)
        return LogicalQuery(kept(node, options), settled_emit, options)

    def nested(self, query: SelectQuery, environment: Environment, emit: EmitSpec | None = None) -> Node:
        """Bind a derived table or common table: EMIT, options and ISTREAM belong to the outermost query.

        `emit` is the outermost query's, where nothing between them decides when answers leave.
        """
        self.nested_queries += 1
        if self.nested_queries > NESTED_QUERIES_MAX:
            raise Unsupported(
                f"a query of more than {NESTED_QUERIES_MAX} derived tables is not supported", hint="split it with derived streams"
            )
        if query.emit is not None:
            place = query.emit_place or query.place
            raise Unsupported("EMIT belongs to the outermost query", line=place.line, column=place.column, token="EMIT")
        if query.options:
            place = query.options[0].place
            raise Unsupported("WITH options belong to the outermost query", line=place.line, column=place.column, token="WITH")
        if query.stream is not None:
            raise Unsupported(
                "ISTREAM, DSTREAM and RSTREAM cannot stand inside another query", line=query.place.line, column=query.place.column
            )
        return self._bind(query, environment, emit if emit is not None or not self.finite else EmitSpec())

    def _bind(self, query: SelectQuery, environment: Environment, emit: EmitSpec | None, *, bounds: bool = False) -> Node:
        """Bind a query; with `bounds` those of the window of its rows are the last two columns, if they have one that closes."""
        spend(QUERY_STEPS)
        for table in query.common_tables:
            environment = replace(environment, tables=(*environment.tables, (table, environment)))
        body = query.body
        if not isinstance(body, SelectBody):
            made = (
                self._union(body, environment, emit, bounds) if isinstance(body, UnionBody) else self._set(body, environment, emit, bounds)
            )
            return self._ordered(query, made)
        if body.group_all:
            from millstream.engine.plan.sets import all_keys  # loaded by whoever needs it, here and below

            body = all_keys(body)
        if is_several(body):
            from millstream.engine.plan.sets import apart

            parts = [SelectQuery(one, place=query.place) for one in apart(body)]
            return self._ordered(query, self._union(UnionBody(tuple(parts), body.place), environment, emit, bounds))
        try:
            binder = SelectBinder(query, body, environment, self.nested, emit)
            binder.keeps_bounds = bounds
            return binder.bind()
        except EngineError as problem:
            if problem.line is None:
                problem.line, problem.column = body.place.line, body.place.column
            raise

    def _union(self, body: UnionBody, environment: Environment, emit: EmitSpec | None, bounds: bool) -> Node:
        return united([self._branch(b, environment, emit, bounds=bounds) for b in body.branches], body.place)

    def _set(self, body: SetBody, environment: Environment, emit: EmitSpec | None, bounds: bool) -> Node:
        """Bind UNION, INTERSECT or EXCEPT. SELECT DISTINCT beside one of these says nothing more."""
        from millstream.engine.plan.sets import by_name, combined, with_common_bounds

        sides = (body.left, body.right)
        if not body.keeps_all:
            sides = (_undistinct(body.left), _undistinct(body.right))
        compared = not (body.keeps_all and body.operator == "union")
        nodes = [self._branch(side, environment, emit, bounds=compared) for side in sides]
        if compared:
            nodes = with_common_bounds(body, nodes, finite=self.finite)
        both = united(by_name(nodes) if body.by_name else nodes, body.place)
        if not compared:
            return both
        assert isinstance(both, Union)
        return combined(body, both, finite=self.finite, bounds=bounds)

    def _branch(self, query: SelectQuery, environment: Environment, emit: EmitSpec | None, *, bounds: bool) -> Node:
        if query.emit is not None or query.options:
            self.nested(query, environment)
        return self._bind(query, environment, emit, bounds=bounds)

    def _ordered(self, query: SelectQuery, node: Node) -> Node:
        """ORDER BY … LIMIT of several SELECTs together."""
        if not query.order_by and query.limit is None:
            return node
        if not self.finite:
            place = query.order_by[0].place if query.order_by else query.body.place
            hint = "FETCH orders them; in a continuous query put them into a derived table with a window"
            message = "ORDER BY … LIMIT over UNION, INTERSECT, EXCEPT or several groupings is not supported"
            raise Unsupported(message, hint=hint, line=place.line, column=place.column, token="ORDER BY")
        check_append_only(node, "ORDER BY … LIMIT")
        outputs = [Output(a.name, a.reference(i)) for i, a in enumerate(node.attributes)]
        binder = ExpressionBinder(Scope(node.attributes))
        order = [order_key(item, binder, outputs) for item in query.order_by]
        return top_of(node, outputs, order, ALL_ROWS if query.limit is None else query.limit, query.with_ties, whole=True)


def _undistinct(query: SelectQuery) -> SelectQuery:
    body = query.body
    plain = isinstance(body, SelectBody) and body.distinct and query.limit is None
    return replace(query, body=replace(body, distinct=False)) if plain and isinstance(body, SelectBody) else query


def _once(query: SelectQuery) -> EmitSpec:
    """Return the emission of a one-time answer, which may only say that empty windows are wanted."""
    place = query.emit_place or query.place
    if query.stream is not None:
        message = "ISTREAM, DSTREAM and RSTREAM have no meaning in FETCH"
        raise Unsupported(message, hint="leave it out", line=place.line, column=place.column)
    if query.emit is not None and query.emit.kind is not EmitKind.FINAL:
        raise Unsupported("FETCH answers once", hint="leave EMIT out", line=place.line, column=place.column, token="EMIT")
    return query.emit or EmitSpec()


def united(branches: list[Node], place: Place) -> Node:
    """Return UNION ALL of the branches, their columns cast to common types; names come from the first."""
    if any(change_position(b.attributes) is not None for b in branches):
        branches = [b if change_position(b.attributes) is not None else append_only_change(b) for b in branches]
    widths = {len(b.attributes) for b in branches}
    if len(widths) > 1:
        shown = " and ".join(str(len(b.attributes)) for b in branches)
        raise TypeProblem(f"the branches of UNION ALL have {shown} columns", line=place.line, column=place.column, token="UNION")
    attributes = []
    for position, first in enumerate(branches[0].attributes):
        same = [b.attributes[position] for b in branches]
        common = common_type_of_all([a.type for a in same])
        if common is None:
            shown = " and ".join(dict.fromkeys(str(a.type) for a in same))
            raise TypeProblem(
                f"column {first.name} of UNION ALL is {shown}", hint="cast one side", line=place.line, column=place.column, token="UNION"
            )
        time = first.time if all(a.time == first.time and a.time_unit_us == first.time_unit_us for a in same) else None
        attributes.append(replace(first, type=common, nullable=any(a.nullable for a in same), qualifier=None, time=time))
    return Union(attributes=tuple(attributes), branches=tuple(_cast_to(b, tuple(attributes)) for b in branches))


def _cast_to(node: Node, wanted: tuple[Attribute, ...]) -> Node:
    if all((a.type, a.name) == (w.type, w.name) for a, w in zip(node.attributes, wanted, strict=True)):
        return node
    expressions: list[Expression] = [
        build.cast(a.reference(i), w.type) for i, (a, w) in enumerate(zip(node.attributes, wanted, strict=True))
    ]
    attributes = tuple(
        replace(a, name=w.name, type=w.type, time=a.time if a.type == w.type else None)
        for a, w in zip(node.attributes, wanted, strict=True)
    )
    return Project(attributes=attributes, input=node, expressions=tuple(expressions))
