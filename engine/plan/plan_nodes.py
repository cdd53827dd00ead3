"""The nodes of a plan object, one method an operator. The steps are those of the binder of SELECT.

Fields are read by name with their types; a refusal names the path (`root.inputs[1].condition`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from millstream.engine.aggregates.table import columns_of, is_aggregate, resolve_aggregate
from millstream.engine.data.errors import EngineError, InvalidDefinition, Unsupported
from millstream.engine.data.nearest import near_or_listed
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BOOLEAN, TEXT, DataType
from millstream.engine.expressions.build import conjuncts
from millstream.engine.expressions.ir import ColumnRef, Expression
from millstream.engine.language.parse import (
    parse_duration_text,
    parse_emit,
    parse_expression,
    parse_measure,
    parse_order,
    parse_pattern,
    parse_skip,
    parse_window,
)
from millstream.engine.language.recipes import AggregateCall, EmitSpec, JoinKind, OrderColumn, OverPart
from millstream.engine.language.statements import Name, NamedItem, Place
from millstream.engine.plan import logical
from millstream.engine.plan.aggregate_binder import GATHERING, AggregateBinder, contains_aggregate
from millstream.engine.plan.binder import united
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.from_binder import Environment, bind_named, unnested, windowed
from millstream.engine.plan.join_binder import JoinRequest, Side, make_join
from millstream.engine.plan.join_conditions import Bound
from millstream.engine.plan.over import RANKS, ranked
from millstream.engine.plan.scope import Scope
from millstream.engine.plan.steps import (
    WINDOW_ROLES,
    Output,
    aggregate_emit,
    aggregated,
    check_empty,
    filtered,
    project_to,
    split_conditions,
    window_of,
)
from millstream.engine.plan.windows import PER_WINDOW, bind_window, windowed_times
from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Fields:
    """One object of a plan and the path to it."""

    values: Mapping[str, Any]
    path: str

    @classmethod
    def of(cls, value: Any, path: str) -> Fields:
        """Return the fields of `value`, which must be an object with text keys."""
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise InvalidDefinition(f"{path} must be an object, not {_shown(value)}")
        return cls(value, path)

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def only(self, known: Sequence[str]) -> None:
        """Refuse fields that are not among `known`."""
        for name in self.values:
            if name not in known:
                hint = near_or_listed(name, known, "fields")
                raise InvalidDefinition(f"{self.at(name)} is not a field of a plan", hint=hint)

    def has(self, name: str) -> bool:
        """The field is there and not null."""
        return self.values.get(name) is not None

    def required(self, name: str) -> Any:
        """Return a field that must be there."""
        if not self.has(name):
            raise InvalidDefinition(f"{self.at(name)} is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        return as_text(self.required(name), self.at(name))

    def optional_text(self, name: str) -> str | None:
        """Return a text or None."""
        return self.text(name) if self.has(name) else None

    def items(self, name: str) -> list[tuple[Any, str]]:
        """Return the items of a list with the path of each; an absent list is empty."""
        value = self.values.get(name)
        if value is None:
            return []
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InvalidDefinition(f"{self.at(name)} must be a list, not {_shown(value)}")
        return [(item, f"{self.at(name)}[{i}]") for i, item in enumerate(value)]

    def number(self, name: str, *, least: float = 0.0, above: bool = False) -> float | None:
        """Return a number of at least (or above) `least`, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least or (above and value == least):
            bound = "above" if above else "of at least"
            raise InvalidDefinition(f"{self.at(name)} must be a number {bound} {least:g}, not {_shown(value)}")
        return float(value)

    def integer(self, name: str) -> int:
        """Return a whole number of at least 1 that must be there."""
        value = self.required(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidDefinition(f"{self.at(name)} must be a whole number of at least 1, not {_shown(value)}")
        return value

    def truth(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise InvalidDefinition(f"{self.at(name)} must be true or false, not {_shown(value)}")
        return value


def as_text(value: Any, path: str) -> str:
    """Return the text that `value` must be."""
    if not isinstance(value, str):
        raise InvalidDefinition(f"{path} must be a text, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def at_path(problem: EngineError, path: str) -> EngineError:
    """Return the error of an expression in a plan object, its path put first; line and column count within that text."""
    if not problem.message.startswith("root"):
        problem.message = f"{path}: {problem.message}"
    return problem


Result = TypeVar("Result")

COMMON_FIELDS = ("op", "as", "selectivity", "cost_us")
DEPTH_MAX = 64
_KINDS = {
    "inner": (JoinKind.INNER, False),
    "left": (JoinKind.LEFT, False),
    "right": (JoinKind.RIGHT, False),
    "full": (JoinKind.FULL, False),
    "asof": (JoinKind.INNER, True),
    "left asof": (JoinKind.LEFT, True),
}


class NodeReader:
    """Reads nodes in one environment. `emit` and `stream` are the root's; they act on the outermost aggregate."""

    def __init__(self, environment: Environment, emit: EmitSpec | None, stream: str | None) -> None:
        self.environment = environment
        self.emit = emit
        self.stream = stream
        self._operators: dict[str, Callable[[Fields, bool], logical.Node]] = {
            "source": self._source,
            "select": self._select,
            "project": self._project,
            "split": self._split,
            "union": self._union,
            "join": self._join,
            "aggregate": self._aggregate,
            "window": self._window,
            "distinct": self._distinct,
            "top": self._top,
            "lag": self._lag,
            "over": self._over,
            "match": self._row_pattern,
            "unnest": self._unnest,
            "rank": self._rank,
        }

    def read(self, value: Any, path: str, outer: bool = True) -> logical.Node:
        """Return the node; `outer` while nothing above has changed what a row means."""
        if path.count("input") > DEPTH_MAX:
            raise InvalidDefinition(f"the plan is nested more than {DEPTH_MAX} deep")
        fields = Fields.of(value, path)
        operator = fields.text("op")
        read = self._operators.get(operator)
        if read is None:
            raise InvalidDefinition(f"{fields.at('op')} {operator!r} is unknown", hint=f"it is one of {', '.join(self._operators)}")
        try:
            node = read(fields, outer)
        except EngineError as problem:
            raise at_path(problem, path) from None
        hints = logical.Hints(fields.number("selectivity"), fields.number("cost_us", above=True))
        if hints != logical.Hints():
            node = replace(node, hints=hints)
        alias = fields.optional_text("as")
        return node if alias is None else replace(node, attributes=logical.requalified(node.attributes, alias))

    # -- helpers --------------------------------------------------------------------------------------------------------------

    def _input(self, fields: Fields, outer: bool) -> logical.Node:
        return self.read(fields.required("input"), fields.at("input"), outer)

    def _only(self, fields: Fields, *known: str) -> None:
        fields.only((*COMMON_FIELDS, *known))

    def _parsed(self, text: str, path: str, parse: Callable[[str], Result]) -> Result:
        try:
            return parse(text)
        except EngineError as problem:
            raise at_path(problem, path) from None

    def _expression(self, text: str, path: str, binder: ExpressionBinder) -> Expression:
        return self._parsed(text, path, lambda t: binder.bind(parse_expression(t)))

    def _conditions(self, fields: Fields, name: str, scope: Scope) -> list[Expression]:
        text = fields.text(name)
        binder = ExpressionBinder(scope)
        return conjuncts(self._parsed(text, fields.at(name), lambda t: binder.condition(parse_expression(t), name)))

    # -- stateless operators --------------------------------------------------------------------------------------------------

    def _source(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "stream")
        return bind_named(NamedItem(Name(fields.text("stream")), None, None), self.environment)

    def _select(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "condition")
        node = self._input(fields, outer)
        return filtered(node, self._conditions(fields, "condition", Scope(node.attributes)))

    def _project(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "columns")
        node = self._input(fields, outer)
        change = logical.change_position(node.attributes)
        if fields.values.get("columns") == "*":
            outputs = [Output(a.name, a.reference(i)) for i, a in enumerate(node.attributes) if i != change]
        else:
            binder = ExpressionBinder(Scope(node.attributes))
            outputs = [self._column(value, path, binder) for value, path in fields.items("columns")]
        if not outputs:
            raise InvalidDefinition(f"{fields.at('columns')} is empty")
        names = [o.name for o in outputs]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise InvalidDefinition(f"{fields.at('columns')} names {twice} twice")
        if change is not None:
            outputs.append(Output("op", node.attributes[change].reference(change)))
        return project_to(node, outputs, keep_roles=True)

    def _column(self, value: Any, path: str, binder: ExpressionBinder) -> Output:
        if isinstance(value, str):
            bound = self._expression(value, path, binder)
            if not isinstance(bound, ColumnRef):
                raise InvalidDefinition(f"{path} needs a name", hint="write [name, expression]")
            return Output(bound.name, bound)
        name, text = _pair(value, path)
        return Output(name, self._expression(text, f"{path}[1]", binder))

    def _split(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "condition", "keep")
        node = self._input(fields, outer)
        binder = ExpressionBinder(Scope(node.attributes))
        path = fields.at("condition")
        condition = self._parsed(fields.text("condition"), path, lambda t: binder.condition(parse_expression(t), "condition"))
        return logical.Split(attributes=node.attributes, input=node, condition=condition, keep=fields.truth("keep", True))

    def _union(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "inputs")
        branches = [self.read(value, path, outer) for value, path in fields.items("inputs")]
        if len(branches) < 2:
            raise InvalidDefinition(f"{fields.at('inputs')} needs at least two")
        return united(branches, Place())

    # -- windows and aggregates -----------------------------------------------------------------------------------------------

    def _windowed(self, fields: Fields, node: logical.Node) -> logical.Window:
        clause = self._parsed(fields.text("window"), fields.at("window"), parse_window)
        node = replace(node, attributes=_plain(node.attributes))
        qualifiers = {a.qualifier for a in node.attributes}
        return bind_window(clause, node, qualifiers.pop() if len(qualifiers) == 1 else None)

    def _window(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "window")
        made = self._windowed(fields, self._input(fields, False))
        if made.spec.kind in PER_WINDOW:
            return replace(made, attributes=windowed_times(made))
        attributes = (*made.input.attributes, logical.Attribute("op", TEXT, False, role=logical.Role.CHANGE))
        return logical.Window(attributes=attributes, input=made.input, spec=made.spec, changes=True)

    def _aggregate(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "window", "where", "group_by", "aggregates", "emit")
        node = self._input(fields, False)
        if fields.has("window"):
            node = self._windowed(fields, node)
        elif not isinstance(node, logical.Window):
            node = replace(node, attributes=_plain(node.attributes))
        spec = node.spec if isinstance(node, logical.Window) else None
        emit = aggregate_emit(spec, self._emit_of(fields, outer), self.stream if outer else None)
        binder = AggregateBinder(Scope(node.attributes))
        conditions = self._conditions(fields, "where", binder.scope) if fields.has("where") else []
        below, above = split_conditions(conditions, node.attributes, binder)
        for value, path in fields.items("group_by"):
            self._key(value, path, binder)
        for value, path in fields.items("aggregates"):
            self._aggregate_item(value, path, binder)
        if not binder.keys and not binder.pending:
            raise InvalidDefinition("an aggregate needs group_by or aggregates")
        check_empty(emit, bool(binder.keys), spec)
        made = aggregated(binder, node, below, spec, emit)
        return filtered(made, [binder.resolved(c) for c in above])

    def _emit_of(self, fields: Fields, outer: bool) -> EmitSpec | None:
        text = fields.optional_text("emit")
        if text is not None:
            return self._parsed(text, fields.at("emit"), parse_emit)
        if not outer:
            return None
        return parse_emit("CHANGES") if self.stream is not None else self.emit

    def _key(self, value: Any, path: str, binder: AggregateBinder) -> None:
        if isinstance(value, str):
            bound = self._expression(value, path, binder.source)
            binder.add_key(bound, bound.name if isinstance(bound, ColumnRef) else "key")
            return
        name, text = _pair(value, path)
        binder.add_key(self._expression(text, f"{path}[1]", binder.source), name)

    def _aggregate_item(self, value: Any, path: str, binder: AggregateBinder) -> None:
        parts = list(value) if isinstance(value, list | tuple) else []
        if len(parts) not in (3, 4):
            raise InvalidDefinition(f"{path} must be [name, function, expression] or [name, function, expression, filter]")
        name, function, argument = (as_text(p, f"{path}[{i}]") for i, p in enumerate(parts[:3]))
        call = f"{function}({argument})"
        if len(parts) == 4:
            call += f" FILTER (WHERE {as_text(parts[3], f'{path}[3]')})"
        node = self._parsed(call, path, parse_expression)
        if not contains_aggregate(node):
            raise InvalidDefinition(f"{path} is not an aggregate", hint=f"{function} is not one of the aggregate functions")
        self._parsed(call, path, lambda _: binder.add_named(name, node, path))

    def _distinct(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input")
        node = self._input(fields, outer)
        logical.check_append_only(node, "DISTINCT")
        bounded = any(a.role in WINDOW_ROLES for a in node.attributes)
        return logical.Distinct(attributes=node.attributes, input=node, window=window_of(node) if bounded else None)

    def _top(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "order_by", "limit", "with_ties")
        node = self._input(fields, outer)
        logical.check_append_only(node, "ORDER BY … LIMIT")
        scope = Scope(node.attributes)
        order = self._order(fields, scope)
        partition = tuple(p for p in (scope.of_role(role) for role in WINDOW_ROLES) if p is not None)
        if not partition:
            raise Unsupported("top without a window is not supported", hint="keep window_start and window_end among the columns below")
        ties = fields.truth("with_ties", False)
        limit = fields.integer("limit")
        return logical.Top(attributes=node.attributes, input=node, order=tuple(order), limit=limit, with_ties=ties, partition=partition)

    def _order(self, fields: Fields, scope: Scope) -> list[OrderColumn]:
        order = []
        for item in self._parsed(fields.text("order_by"), fields.at("order_by"), parse_order):
            position = self._position(item.expression, fields.at("order_by"), scope)
            order.append(OrderColumn(position, item.descending, item.nulls_first))
        return order

    def _rank(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "function", "order_by", "partition_by", "limit")
        node = self._input(fields, outer)
        function = fields.text("function")
        if function not in RANKS:
            raise InvalidDefinition(f"{fields.at('function')} {function!r} is unknown", hint=f"it is one of {', '.join(RANKS)}")
        scope = Scope(node.attributes)
        partition = tuple(self._position(parse_expression(as_text(v, p)), p, scope) for v, p in fields.items("partition_by"))
        order = self._order(fields, scope) if fields.has("order_by") else []
        limit = fields.integer("limit") if fields.has("limit") else None
        logical.check_append_only(node, function.upper())
        made = ranked(node, function, partition, tuple(order), limit)
        if limit is not None and not isinstance(made, logical.RunningTop):
            raise Unsupported(f"{fields.at('limit')} is for rows without a window", hint="filter by the number above")
        return made

    def _lag(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "value", "offset", "partition_by")
        node = self._input(fields, outer)
        logical.check_append_only(node, "LAG")
        scope = Scope(node.attributes)
        value = self._position(parse_expression(fields.text("value")), fields.at("value"), scope)
        partition = tuple(self._position(parse_expression(as_text(v, p)), p, scope) for v, p in fields.items("partition_by"))
        offset = fields.integer("offset") if fields.has("offset") else 1
        attributes = (*node.attributes, logical.lag_attribute(node.attributes, node.attributes[value].type))
        return logical.Lag(attributes=attributes, input=node, value=value, offset=offset, partition=partition)

    def _over(self, fields: Fields, outer: bool) -> logical.Node:
        from millstream.engine.plan.over_aggregates import over_node  # few plans have frames

        self._only(fields, "input", "parts")
        node = self._input(fields, outer)
        logical.check_append_only(node, "OVER")
        parts, names = [], []
        for value, path in fields.items("parts"):
            part, named = self._over_part(value, path, Scope(node.attributes))
            parts.append(part)
            names += named
        if not names:
            raise InvalidDefinition(f"{fields.at('parts')} must hold aggregates")
        return over_node(node, parts, names)

    def _over_part(self, value: Any, path: str, scope: Scope) -> tuple[OverPart, list[str]]:
        """Read {frame, partition_by, calls}; return the names of the calls with it."""
        from millstream.engine.plan.over_aggregates import frame_of

        if not isinstance(value, Mapping):
            raise InvalidDefinition(f"{path} must be a map of frame, partition_by and calls")
        fields = Fields(value, path)
        self._only(fields, "frame", "partition_by", "calls")
        partition = tuple(self._position(parse_expression(as_text(v, p)), p, scope) for v, p in fields.items("partition_by"))
        written = self._parsed(f"count(*) OVER (ORDER BY t {fields.text('frame')})", fields.at("frame"), parse_expression)
        spec = written.args.get("spec") if isinstance(written, exp.Window) else None
        frame = self._parsed("", fields.at("frame"), lambda _: frame_of(spec, None))
        named = [self._over_call(item, at, scope) for item, at in fields.items("calls")]
        return OverPart(tuple(call for _, call in named), frame, partition), [name for name, _ in named]

    def _over_call(self, value: Any, path: str, scope: Scope) -> tuple[str, AggregateCall]:
        """Read [name, function, [column, …], filter or null, distinct, [option, …]]; what is read as one STRUCT is one column."""
        match value:
            case [str(name), str(function), list(columns), None | str() as condition, bool(distinct), list(options)]:
                pass
            case _:
                raise InvalidDefinition(f"{path} must be [name, function, [columns], filter or null, distinct, [options]]")
        if not is_aggregate(function):
            raise InvalidDefinition(f"{path} is not an aggregate", hint=f"{function} is not one of the aggregate functions")
        places = tuple(self._position(parse_expression(as_text(c, path)), path, scope) for c in columns)
        types = [scope.attribute(p).type for p in places]
        orders: tuple[tuple[bool, bool], ...] = ()
        if options and isinstance(options[-1], list):
            orders, options = _orders(options[-1], path), options[:-1]
        if orders or columns_of(function) > 1:
            types = _parts(types, columns_of(function), len(orders), path)
        signature = self._parsed("", path, lambda _: resolve_aggregate(function, types, options))
        if list(signature.arguments) != types:
            raise InvalidDefinition(f"{path} reads {', '.join(map(str, types))}; cast to {', '.join(map(str, signature.arguments))} below")
        if orders and signature.name not in GATHERING:
            raise Unsupported(f"{path}: ORDER BY inside {function.upper()} is not supported")
        filter_ = None if condition is None else self._position(parse_expression(condition), path, scope)
        if filter_ is not None and scope.attribute(filter_).type != BOOLEAN:
            raise InvalidDefinition(f"{path} has a filter that is {scope.attribute(filter_).type}, not BOOLEAN")
        listed = (*signature.options, orders) if orders else signature.options
        return name, AggregateCall(signature.name, places, signature.result, filter_, distinct, listed)

    def _row_pattern(self, fields: Fields, outer: bool) -> logical.Node:
        from millstream.engine.plan.match_recognize import MatchReader  # few plans have one

        self._only(fields, "input", "partition_by", "pattern", "define", "subsets", "skip", "within", "all_rows", "shows_empty", "measures")
        node = self._input(fields, outer)
        scope = Scope(node.attributes)
        written = self._parsed(f"{fields.text('pattern')})", fields.at("pattern"), parse_pattern)
        skip = self._parsed(fields.text("skip"), fields.at("skip"), parse_skip)
        within = self._parsed(fields.text("within"), fields.at("within"), parse_duration_text) if fields.has("within") else None
        reader = MatchReader(node.attributes, written[0], [self._named(value, path) for value, path in fields.items("subsets")])
        for value, path in fields.items("define"):
            name, text = _pair(value, path)
            self._parsed(text, path, lambda t, n=name: reader.define(n, parse_expression(t)))  # type: ignore[misc]
        for value, path in fields.items("measures"):
            match value:
                case [str(name), str(text)]:
                    self._parsed(text, path, lambda t, n=name: reader.measure(n, *parse_measure(t)))  # type: ignore[misc]
                case [str(name), list(variables), *call, bool(final)]:
                    reader.aggregate(name, variables, self._over_call([name, *call], path, scope)[1], final)
                case _:
                    raise InvalidDefinition(f"{path} must be [name, text] or [name, [variables], function, …, final]")
        partition = tuple(self._position(parse_expression(as_text(v, p)), p, scope) for v, p in fields.items("partition_by"))
        shown = fields.truth("all_rows", False), fields.truth("shows_empty", True)
        return self._parsed("", fields.path, lambda _: reader.node(node, partition, written[1], skip, within, *shown))

    def _named(self, value: Any, path: str) -> tuple[str, list[str]]:
        match value:
            case [str(name), list(parts)] if all(isinstance(part, str) for part in parts):
                return name, parts
            case _:
                raise InvalidDefinition(f"{path} must be [name, [variables]]")

    def _unnest(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "input", "items", "called", "columns", "numbered", "outer")
        node = self._input(fields, outer)
        items = self._expression(fields.text("items"), fields.at("items"), ExpressionBinder(Scope(node.attributes)))
        called = fields.text("called") if fields.has("called") else None
        names = [as_text(value, path) for value, path in fields.items("columns")]
        numbered, keeps_empty = fields.truth("numbered", False), fields.truth("outer", False)
        return unnested(node, items, called, names, numbered=numbered, outer=keeps_empty)

    def _position(self, node: exp.Expr, path: str, scope: Scope) -> int:
        bound = self._parsed("", path, lambda _: ExpressionBinder(scope).bind(node))
        if not isinstance(bound, ColumnRef):
            raise InvalidDefinition(f"{path} takes columns", hint="compute it in a project below")
        return bound.position

    # -- joins ----------------------------------------------------------------------------------------------------------------

    def _join(self, fields: Fields, outer: bool) -> logical.Node:
        self._only(fields, "inputs", "kind", "on", "within", "windows", "strict", "forward")
        inputs = [self.read(value, path, False) for value, path in fields.items("inputs")]
        if len(inputs) != 2:
            raise InvalidDefinition(f"{fields.at('inputs')} must be two, not {len(inputs)}")
        kind_text = fields.optional_text("kind") or "inner"
        if kind_text not in _KINDS:
            raise InvalidDefinition(f"{fields.at('kind')} {kind_text!r} is unknown", hint=f"it is one of {', '.join(_KINDS)}")
        kind, asof = _KINDS[kind_text]
        sides = self._sides(fields, [replace(n, attributes=_plain(n.attributes)) for n in inputs])
        scope = Scope(sides[0].node.attributes + sides[1].node.attributes)
        conditions = tuple(self._conditions(fields, "on", scope)) if fields.has("on") else ()
        strict, forward = fields.truth("strict", False), fields.truth("forward", False)
        if (strict or forward) and not asof:
            raise InvalidDefinition(f"{fields.at('strict' if strict else 'forward')} belongs to an as-of join")
        request = JoinRequest(kind, conditions, None, asof, Place(), self._within(fields), strict, forward=forward)
        return windowed(make_join(sides[0], sides[1], request))

    def _sides(self, fields: Fields, nodes: list[logical.Node]) -> list[Side]:
        windows = fields.items("windows")
        if not windows:
            return [Side(node) for node in nodes]
        if len(windows) != 2:
            raise InvalidDefinition(f"{fields.at('windows')} must be two, one for each input")
        sides = []
        for node, (value, path) in zip(nodes, windows, strict=True):
            clause = self._parsed(as_text(value, path), path, parse_window)
            sides.append(Side(node, bind_window(clause, node, None).spec))
        return sides

    def _within(self, fields: Fields) -> Bound:
        value = fields.values.get("within")
        if value is None:
            return Bound()
        path = fields.at("within")
        if isinstance(value, str):
            width = self._parsed(value, path, parse_duration_text)
            if width < 0:
                raise InvalidDefinition(f"{path} must not be negative")
            return Bound(-width, width)
        parts = list(value) if isinstance(value, list | tuple) else []
        if len(parts) != 2:
            raise InvalidDefinition(f"{path} must be a duration, or [least, most] of right's time minus left's")
        ends = [None if p is None else self._parsed(as_text(p, path), path, parse_duration_text) for p in parts]
        return Bound(ends[0], ends[1])


def _pair(value: Any, path: str) -> tuple[str, str]:
    parts = list(value) if isinstance(value, list | tuple) else []
    if len(parts) != 2:
        raise InvalidDefinition(f"{path} must be [name, expression]")
    return as_text(parts[0], f"{path}[0]"), as_text(parts[1], f"{path}[1]")


def _orders(value: list[Any], path: str) -> tuple[tuple[bool, bool], ...]:
    """Read [[descending, NULLs first], …] of the keys of an ORDER BY inside an aggregate."""
    found = []
    for pair in value:
        match pair:
            case [bool(falls), bool(first)]:
                found.append((falls, first))
            case _:
                raise InvalidDefinition(f"{path} must end its options with [[descending, NULLs first], …] where they hold an order")
    return tuple(found)


def _parts(types: list[DataType], columns: int, keys: int, path: str) -> list[DataType]:
    """Return the types of the arguments that stand in one STRUCT, before the keys of an order."""
    parts = [part for _, part in types[0].fields] if len(types) == 1 else []
    if len(parts) != columns + keys or not all(part.is_ordered for part in parts[columns:]):
        raise InvalidDefinition(f"{path} must read one STRUCT of {columns + keys} parts, and what it is ordered by must have an order")
    return parts[:columns]


def _plain(attributes: tuple[logical.Attribute, ...]) -> tuple[logical.Attribute, ...]:
    """Below an operator that makes windows or joins, bounds of earlier windows are plain columns."""
    return tuple(a if a.role is logical.Role.CHANGE else replace(a, role=logical.Role.PLAIN) for a in attributes)
