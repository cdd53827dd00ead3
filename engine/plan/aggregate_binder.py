"""Expressions above GROUP BY: what they need of keys and aggregates is collected, the rest is bound over those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from decimal import Decimal
from typing import Any

from millstream.engine.aggregates.table import aggregate_of, arguments_max, columns_of, is_aggregate, resolve_aggregate
from millstream.engine.data.effort import spend
from millstream.engine.data.errors import EngineError, InvalidDefinition, TypeProblem, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BIGINT, DOUBLE, NULL, TEXT, TIMESTAMP, Kind
from millstream.engine.expressions import build
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import Call, Case, ColumnRef, Expression, Literal, columns_used, transform
from millstream.engine.expressions.kernel import is_null_literal
from millstream.engine.expressions.signature import Signature
from millstream.engine.language.dialect import is_subquery, walked
from millstream.engine.language.recipes import AggregateCall, EmitKind, EmitSpec, WindowSpec
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.logical import Aggregate, Attribute, Node, Project, Role, change_position, unique_names
from millstream.engine.plan.over import COLUMN_STEPS, PendingRank, is_rank, pending_rank, rank_node, refused_over
from millstream.engine.plan.scope import Scope, located
from millstream.engine.plan.windows import output_time_known
from sqlglot import exp

# While binding, aggregates and window bounds have positions that no real column has; `finish` gives them their own.
_ITEM = 1_000_000
_WINDOW = 2_000_000
_RANK = 3_000_000
COMPUTED_STEPS = 40  # of limits.WORK_MAX, for each key and aggregate: the columns and recipes that are made of it
_OVER_ORDER = ("percentile", "quantile", "approx_percentile", "approx_quantile", "mode")  # WITHIN GROUP (ORDER BY x) has the argument
GATHERING = ("array_agg", "string_agg")  # in order of event time (K13), unless an ORDER BY says another
_WINDOW_ROLES = (Role.WINDOW_START, Role.WINDOW_END)


@dataclass(frozen=True, slots=True)
class PendingAggregate:
    """An aggregate whose arguments are still expressions over the input."""

    function: str
    arguments: tuple[Expression, ...]
    filter: Expression | None
    distinct: bool
    signature: Signature = field(compare=False)
    options: tuple[Any, ...] = ()
    name: str = field(default="", compare=False)
    carried: bool = False
    interpolated: bool = False


def contains_aggregate(node: exp.Expr | None) -> bool:
    """An aggregate call stands in the expression (not one with OVER)."""
    if node is None:
        return False
    return any(_is_aggregate_call(part) for part in walked(node))


def _is_aggregate_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and is_aggregate(node.name) and not _is_over(node)


class _Above:
    """Which nodes stand above an aggregate, an OVER or a subquery. Each tree is looked through once."""

    def __init__(self) -> None:
        self._seen: dict[int, exp.Expr] = {}
        self._above: set[int] = set()

    def holds(self, node: exp.Expr) -> bool:
        """Whether there is one in the tree of `node`."""
        if id(node) not in self._seen:
            for part in walked(node):
                self._seen[id(part)] = part
                if _is_aggregate_call(part) or isinstance(part, exp.Window) or is_subquery(part):
                    self._mark(part)
        return id(node) in self._above

    def _mark(self, part: exp.Expr | None) -> None:
        while part is not None and id(part) not in self._above:
            self._above.add(id(part))
            part = part.parent


def _is_over(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.Filter, exp.WithinGroup)):
        parent = parent.parent
    return isinstance(parent, exp.Window)


class AggregateBinder(ExpressionBinder):
    """Binds select list, HAVING and ORDER BY of a grouped query."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.source = ExpressionBinder(scope, "an aggregate cannot stand inside another")
        self.keys: list[Expression] = []
        self.key_names: list[str] = []
        self.pending: list[PendingAggregate] = []
        self.ranks: list[PendingRank] = []
        self._parts = _Above()
        self._key_places: dict[Expression, int] = {}
        self._pending_places: dict[PendingAggregate, int] = {}
        self._windows = {i for i, a in enumerate(scope.attributes) if a.role in _WINDOW_ROLES}

    # -- keys -----------------------------------------------------------------------------------------------------------------

    def add_key(self, bound: Expression, name: str) -> None:
        """Add a grouping key. The window's own bounds always group and are no keys (K6)."""
        spend(COMPUTED_STEPS)
        used = columns_used(bound)
        if used and used <= self._windows:
            return
        if used & self._windows:
            raise Unsupported("a grouping key cannot mix the window's bounds with other columns", hint="group by each of them")
        if bound not in self._key_places:
            self._key_places[bound] = len(self.keys)
            self.keys.append(bound)
            self.key_names.append(name)

    # -- binding --------------------------------------------------------------------------------------------------------------

    def _bind(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Anonymous) and node.name.upper() in ("LOCF", "INTERPOLATE"):
            return self._filled(node, node.name.upper())
        if not self._parts.holds(node):
            found = self.over_group(self._bind_source(node))
            if found is not None:
                return found
        return super()._bind(node)

    def continues(self, node: exp.Expr) -> bool:
        """What holds no aggregate is looked up among the keys as a whole."""
        return self._parts.holds(node)

    def _bind_source(self, node: exp.Expr) -> Expression:
        return self.source.bind(node)

    def over_group(self, bound: Expression) -> Expression | None:
        """Return what a source expression is above the grouping: a key, the window's bounds, a constant; else None."""
        position = self._key_places.get(bound)
        if position is not None:
            return ColumnRef(bound.type, position, self.key_names[position])
        used = columns_used(bound)
        if used <= self._windows:
            return transform(bound, self._window_reference) if used else bound
        return None

    def _window_reference(self, node: Expression) -> Expression:
        if isinstance(node, ColumnRef):
            ends = self.scope.attribute(node.position).role is Role.WINDOW_END
            return replace(node, position=_WINDOW + int(ends))
        return node

    def column(self, node: exp.Column) -> Expression:
        """Refuse a column that is neither a key nor inside an aggregate."""
        name = node.name
        raise TypeProblem(
            f"column {name} must be in GROUP BY or inside an aggregate", hint=f"write GROUP BY {name}, or for example LAST({name})"
        )

    # -- aggregates -----------------------------------------------------------------------------------------------------------

    def aggregate(self, node: exp.Expr) -> Expression:
        """Bind an aggregate call with its FILTER and WITHIN GROUP; the same one twice is computed once."""
        spend(COMPUTED_STEPS)
        condition: Expression | None = None
        if isinstance(node, exp.Filter):
            condition = self.source.condition(node.expression.this, "FILTER")
            node = node.this
        order: exp.Order | None = None
        if isinstance(node, exp.WithinGroup):
            order, node = node.expression, node.this
        if not isinstance(node, exp.Anonymous) or not is_aggregate(node.name):
            raise TypeProblem("FILTER, DISTINCT and WITHIN GROUP belong to an aggregate")
        return self._entered(replace(self._call(node, order), filter=condition))

    def _entered(self, pending: PendingAggregate) -> Expression:
        index = self._pending_places.setdefault(pending, len(self.pending))
        if index == len(self.pending):
            self.pending.append(pending)
        return ColumnRef(pending.signature.result, _ITEM + index, pending.name)

    def _filled(self, node: exp.Anonymous, word: str) -> Expression:
        """Bind LOCF(aggregate) or INTERPOLATE(aggregate), which say what it is in windows in which it would be NULL (K6)."""
        arguments = node.expressions
        bound = self.bind(arguments[0]) if len(arguments) == 1 and self._parts.holds(arguments[0]) else None
        if not isinstance(bound, ColumnRef) or not _ITEM <= bound.position < _WINDOW:
            hint = f"write {word}(AVG(x)), and other steps around it; a column's last value so far is LAST(x) in a window"
            raise located(TypeProblem(f"{word} takes an aggregate", hint=hint), node)
        pending = self.pending[bound.position - _ITEM]
        if word == "LOCF":
            return self._entered(replace(pending, carried=True))
        if pending.signature.result != DOUBLE:
            hint = f"AVG(x) of whole numbers is one; CAST others before: {word}(SUM(CAST(x AS DOUBLE)))"
            raise located(TypeProblem(f"{word} takes a DOUBLE, not {pending.signature.result}", hint=hint), node)
        return self._entered(replace(pending, interpolated=True))

    def over(self, node: exp.Window) -> Expression:
        """Bind a ranking function over the groups of a window."""
        if not is_rank(node):
            raise refused_over(node)
        pending = pending_rank(node, self.bind)
        if pending not in self.ranks:
            self.ranks.append(pending)
        return ColumnRef(BIGINT, _RANK + self.ranks.index(pending), pending.function)

    def with_ranks(self, node: Node) -> Node:
        """Return the node, which gives the groups, with an attribute more for each ranking function."""
        for pending in self.ranks:
            spend(COLUMN_STEPS * len(node.attributes))
            partition = tuple(self.resolved(e) for e in pending.partition)
            order = tuple((self.resolved(key), descending, first) for key, descending, first in pending.order)
            node = rank_node(node, replace(pending, partition=partition, order=order))
        return node

    def add_named(self, name: str, node: exp.Expr, path: str) -> None:
        """Add an aggregate under a name of its own (plan objects); InvalidDefinition when it is none."""
        before = len(self.pending)
        bound = self.bind(node)
        if not isinstance(bound, ColumnRef) or not _ITEM <= bound.position < _WINDOW:
            raise InvalidDefinition(f"{path} is not an aggregate")
        if len(self.pending) == before:
            raise InvalidDefinition(f"{path} is the same aggregate as an earlier one")
        self.pending[-1] = replace(self.pending[-1], name=name)

    def _call(self, node: exp.Anonymous, order: exp.Order | None) -> PendingAggregate:
        name = str(node.name).lower()
        nodes = list(node.expressions)
        if nodes and isinstance(nodes[-1], exp.Order):  # it stands around what comes before it, DISTINCT included
            order = nodes[-1] if order is None else order
            nodes[-1] = nodes[-1].this
        distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
        if distinct:
            if not nodes[0].expressions:
                raise TypeProblem(f"{name.upper()}(DISTINCT) names nothing", hint=f"write {name.upper()}(DISTINCT column)")
            nodes = [*nodes[0].expressions, *nodes[1:]]
        if name == "count" and len(nodes) > 1:
            raise TypeProblem("COUNT takes one expression", hint="to count pairs, join them into one, as in CONCAT_WS('/', a, b)")
        if len(nodes) == 1 and isinstance(nodes[0], exp.Star):
            if name != "count" or distinct:
                raise TypeProblem(f"{name.upper()}(*) is not defined", hint="only COUNT takes *")
            nodes = []
        nodes, flip, order = self._ordered(name, nodes, order)
        most, columns = arguments_max(name), columns_of(name)
        if len(nodes) > most:
            raise TypeProblem(f"{name.upper()} takes {'1 argument' if most == 1 else f'at most {most} arguments'}, not {len(nodes)}")
        arguments = [self.source.bind(n) for n in nodes[:columns]]
        options = tuple(self._option(name, n) for n in nodes[columns:])
        if flip:
            options = (float(1 - Decimal(repr(float(options[0])))), *options[1:])  # exact in decimal, so that 1 - 0.9 is 0.1
        signature = resolve_aggregate(name, [a.type for a in arguments], options)
        cast = tuple(build.cast(a, t) for a, t in zip(arguments, signature.arguments, strict=True))
        if distinct and signature.name in ("approx_percentile", "approx_top_k"):
            raise Unsupported(f"DISTINCT in {name.upper()} is not supported", hint="only the exact aggregates can leave out repetitions")
        distinct = distinct and signature.name != "approx_count_distinct"  # which counts different values anyway
        options = signature.options
        if order is not None and not self._is_event_order(order):
            keys, orders = self._order(signature.name, order)
            if distinct and (len(keys) > 1 or build.cast(keys[0], cast[0].type) != cast[0]):
                raise TypeProblem(f"with DISTINCT, {name.upper()} can be ordered by its argument alone")
            cast, options = (packed((*cast, *keys), 1 if signature.name == "string_agg" else 0),), (*options, orders)
        elif columns > 1:
            cast = (packed(cast, columns),)
        return PendingAggregate(signature.name, cast, None, distinct, signature, options, name)

    def _ordered(self, name: str, nodes: list[exp.Expr], order: exp.Order | None) -> tuple[list[exp.Expr], bool, exp.Order | None]:
        """Put the argument that stands in WITHIN GROUP (ORDER BY x) before the others; return whether it falls, and else the ORDER BY."""
        if order is None or not name.startswith(_OVER_ORDER):
            return nodes, False, order
        if len(order.expressions) != 1:
            raise Unsupported(f"{name.upper()} takes one expression in WITHIN GROUP")
        key = order.expressions[0]
        descending = bool(key.args.get("desc"))
        if descending and "disc" in name:
            raise Unsupported(f"{name.upper()} with DESC is not supported", hint="order ascending and take 1 - p")
        return [key.this, *nodes], descending and name != "mode", None

    def _is_event_order(self, order: exp.Order) -> bool:
        """Whether it is the order in which lists and texts are gathered anyway (K13)."""
        for key in order.expressions:
            bound = self.source.bind(key.this)
            time = self.scope.attribute(bound.position).time if isinstance(bound, ColumnRef) else None
            if time != TimeOffset() or key.args.get("desc"):
                return False
        return True

    def _order(self, name: str, order: exp.Order) -> tuple[tuple[Expression, ...], tuple[tuple[bool, bool], ...]]:
        """Return the keys of an ORDER BY inside an aggregate, and of each whether it falls and whether NULLs come first."""
        if name not in GATHERING:
            hint = {"first": "write ARG_MIN(x, y)", "last": "write ARG_MAX(x, y)"}.get(name, "its answer does not depend on the order")
            raise Unsupported(f"ORDER BY inside {name.upper()} is not supported", hint=hint)
        keys, orders = [], []
        for key in order.expressions:
            bound = self.source.bind(key.this)
            if not bound.type.is_ordered:
                raise located(TypeProblem(f"a {bound.type} has no order"), key)
            descending, first = bool(key.args.get("desc")), key.args.get("nulls_first")
            keys.append(bound)
            orders.append((descending, descending if first is None else bool(first)))
        return tuple(keys), tuple(orders)

    def _option(self, name: str, node: exp.Expr) -> Any:
        bound = self.source.bind(node)
        if not isinstance(bound, Literal) or bound.value is None:
            raise located(TypeProblem(f"the second argument of {name.upper()} must be a constant"), node)
        return bound.value / 10**bound.type.scale if bound.type.kind is Kind.DECIMAL else bound.value

    # -- the plan -------------------------------------------------------------------------------------------------------------

    def build(self, node: Node, spec: WindowSpec | None, emit: EmitSpec) -> Aggregate:
        """Return the Aggregate over the Project that computes keys, arguments and FILTER conditions of all that was bound."""
        columns: list[Expression] = list(self.keys)
        names = list(self.key_names)
        places = dict(self._key_places)

        def position(expression: Expression, what: str) -> int:
            """Return the column of an argument. Names tell nothing of the function, so that queries that read the same share it."""
            if columns_used(expression) & self._windows:
                raise Unsupported("the window's bounds cannot stand inside an aggregate", hint="use them beside the aggregate")
            found = places.get(expression)
            if found is not None:
                return found
            places[expression] = len(columns)
            columns.append(expression)
            names.append(expression.name if isinstance(expression, ColumnRef) else f"{what}_{len(columns)}")
            return len(columns) - 1

        items = []
        for pending in self.pending:
            arguments = tuple(position(_where_it_passes(a, pending.filter), "value") for a in pending.arguments)
            condition = position(pending.filter, "condition") if pending.filter is not None else None
            call = AggregateCall(pending.function, arguments, pending.signature.result, condition, pending.distinct, pending.options)
            items.append(replace(call, carried=pending.carried, interpolated=pending.interpolated))
        if any(item.carried or item.interpolated for item in items) and not emit.empty:
            word = "LOCF carries" if any(item.carried for item in items) else "INTERPOLATE puts"
            raise Unsupported(f"{word} values into windows without rows", hint="add EMIT EMPTY, which answers those")
        change = change_position(node.attributes)
        project = self._project(node, columns, names, change)
        retracts = None if change is None else len(columns)
        return Aggregate(
            attributes=self._outputs(node, spec, emit),
            input=project,
            keys=tuple(range(len(self.keys))),
            items=tuple(items),
            windowed=spec is not None,
            emit=emit,
            retracts=retracts,
        )

    def _project(self, node: Node, columns: list[Expression], names: list[str], change: int | None) -> Project:
        """Compute the columns, then pass on the change kind and the window's bounds."""
        passed = [i for i, a in enumerate(node.attributes) if i == change or i in self._windows]
        attributes = [projected(node, e, n) for e, n in zip(columns, unique_names(names), strict=True)]
        attributes += [node.attributes[i] for i in passed]
        expressions = (*columns, *(node.attributes[i].reference(i) for i in passed))
        return Project(attributes=tuple(attributes), input=node, expressions=expressions)

    def _outputs(self, node: Node, spec: WindowSpec | None, emit: EmitSpec) -> tuple[Attribute, ...]:
        names = unique_names([*("window_start", "window_end"), *self.key_names, *(p.name for p in self.pending)])[2:]
        keys = [replace(projected(node, e, n), time=None) for e, n in zip(self.keys, names, strict=False)]
        items = [
            Attribute(n, p.signature.result, not aggregate_of(p.function).zero_if_empty)
            for n, p in zip(names[len(keys) :], self.pending, strict=True)
        ]
        bounds: list[Attribute] = []
        if spec is not None:
            known = output_time_known(spec)
            start = TimeOffset(1 - spec.range_us, 1 - spec.range_us) if known else None
            end = TimeOffset(1, 1) if known else None
            bounds = [
                Attribute("window_start", TIMESTAMP, False, time=start, role=Role.WINDOW_START),
                Attribute("window_end", TIMESTAMP, False, time=end, role=Role.WINDOW_END),
            ]
        kind = [Attribute("op", TEXT, False, role=Role.CHANGE)] if emit.kind is EmitKind.CHANGES else []
        return (*keys, *items, *bounds, *kind)

    def resolved(self, expression: Expression) -> Expression:
        """Return a bound expression with the true positions of aggregates and window bounds, once all are known."""
        keys, items = len(self.keys), len(self.pending)
        bounds = 2 if self._windows else 0

        def change(node: Expression) -> Expression:
            if not isinstance(node, ColumnRef) or node.position < _ITEM:
                return node
            if node.position < _WINDOW:
                return replace(node, position=keys + node.position - _ITEM)
            if node.position < _RANK:
                return replace(node, position=keys + items + node.position - _WINDOW)
            return replace(node, position=keys + items + bounds + node.position - _RANK)

        return transform(expression, change)


class HavingBinder:
    """HAVING may name the columns of the select list too; those of the input come first, and inside an aggregate there are no others."""

    def __init__(self, binder: AggregateBinder, aliases: dict[str, exp.Expr]) -> None:
        self.binder = binder
        self.aliases = aliases

    def condition(self, node: exp.Expr) -> Expression:
        """Bind the condition."""
        replaced = node.copy().transform(self._replace_alias)
        if replaced.find(exp.Window) is not None:
            raise Unsupported("OVER cannot stand in HAVING", hint="filter in an outer query: SELECT … FROM (SELECT …) WHERE rank <= 3")
        return self.binder.condition(replaced, "HAVING")

    def _replace_alias(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.args.get("table") is not None or in_aggregate(node):
            return node
        name = node.name if node.this.args.get("quoted") else node.name.lower()
        if name not in self.aliases:
            return node
        try:
            self.binder.bind(node)
        except EngineError:
            return self.aliases[name].copy()
        return node


def _where_it_passes(argument: Expression, condition: Expression | None) -> Expression:
    """Return what is evaluated for an aggregate with FILTER: nothing where the row does not pass, so that nothing fails there (K8)."""
    if condition is None or not may_fail(argument) or (isinstance(argument, Case) and argument.branches[0][0] == condition):
        return argument
    return build.case([(condition, argument)], None)


def packed(parts: Sequence[Expression], needed: int) -> Expression:
    """Return one STRUCT of all that an aggregate reads; NULL where one of the first `needed` parts is, as such a row does not count."""
    whole = build.call("struct", parts, [str(place) for place in range(1, len(parts) + 1)])
    missing = [build.call("is_null", [part]) for part in parts[:needed]]
    if not needed:
        return whole
    return build.case([(missing[0] if needed == 1 else build.call("or", missing), Literal(NULL, None))], whole)


def unpacked(argument: Expression) -> tuple[Expression, ...]:
    """Return the parts that `packed` has put together, whatever condition stands around them."""
    while isinstance(argument, Case):
        argument = argument.branches[0][1] if is_null_literal(argument.otherwise) else argument.otherwise
    assert isinstance(argument, Call)
    return argument.arguments


def in_aggregate(node: exp.Expr) -> bool:
    """Whether the node stands in the arguments, the FILTER or the WITHIN GROUP of an aggregate."""
    parent = node.parent
    while parent is not None and not (isinstance(parent, exp.Filter | exp.WithinGroup) or _is_aggregate_call(parent)):
        parent = parent.parent
    return parent is not None


def projected(node: Node, expression: Expression, name: str, *, keep_roles: bool = True) -> Attribute:
    """Return the attribute that an expression over `node` makes: a bare column keeps what is known of it.

    Without `keep_roles` a bound of a window becomes a plain column.
    """
    if isinstance(expression, ColumnRef):
        attribute = node.attributes[expression.position]
        return attribute.picked(name, attribute.role if keep_roles or attribute.role is Role.CHANGE else Role.PLAIN)
    return Attribute(name, expression.type)
