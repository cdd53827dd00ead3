"""From a bound query to a plan object: what `EXPLAIN … --format json` prints. Reading it back gives the same physical plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.engine.aggregates.table import columns_of
from millstream.engine.data.durations import duration_text
from millstream.engine.data.errors import EngineError, Unsupported
from millstream.engine.expressions import build
from millstream.engine.expressions.build import conjunction
from millstream.engine.expressions.ir import ColumnRef, Expression, columns_used
from millstream.engine.expressions.values import format_timestamp
from millstream.engine.language.recipes import AggregateCall, EmitKind, EmitSpec, JoinKind, MatchValue, WindowKind
from millstream.engine.plan import logical
from millstream.engine.plan.aggregate_binder import unpacked
from millstream.engine.plan.join_binder import moved
from millstream.engine.plan.plan_objects import PLAN_VERSION
from millstream.engine.plan.query_options import default_options
from millstream.engine.plan.steps import aggregate_emit, is_append_only_change
from millstream.engine.plan.text import (
    attribute_names,
    emit_text,
    expression_text,
    frame_text,
    match_condition_text,
    match_subsets,
    match_value_text,
    pattern_text,
    skip_text,
    window_text,
)

Plan = dict[str, Any]
_NS_PER_US = 1_000


def to_plan_object(query: logical.LogicalQuery, name: str | None = None) -> Plan:
    """Return the plan object of a bound query (before any rewrite). `name` is put at its root."""
    plan: Plan = {"version": PLAN_VERSION}
    if name is not None:
        plan["name"] = name
    when: Plan = {}
    root = query.root.input if isinstance(query.root, logical.KeptRows) else query.root
    emit: EmitSpec | None = None
    stream: str | None = None
    if isinstance(root, logical.RelationToStream) and root.stream == "f":
        emit, root = query.emit, root.input
        when["emit"] = emit_text(emit)
    elif isinstance(root, logical.RelationToStream):
        when["stream"] = stream = root.stream
        if root.every_us is not None:
            when["every"] = duration_text(root.every_us)
        root = root.input
    else:
        emit = query.emit
        if emit.kind is EmitKind.CHANGES and is_append_only_change(root):
            assert isinstance(root, logical.Project)
            root = root.input
        if emit != EmitSpec():
            when["emit"] = emit_text(emit)
    plan.update(_options(query))
    tree = _Writer(None if emit == EmitSpec() else emit, stream).write(root)
    if tree["op"] == "source":  # whose `stream` is a name: beside it
        return plan | when | {"root": tree}
    plan["root"] = tree | when
    return plan


def _options(query: logical.LogicalQuery) -> Plan:
    """Return the options that differ from what the plan would get anyway."""
    options, default = query.options, default_options(query.root, query.emit)
    plan: Plan = {}
    if options.class_name != default.class_name:
        plan["class"] = options.class_name
    qos: Plan = {}
    if options.qos != default.qos:
        qos["latency"] = [list(point) for point in options.qos]
    if options.latency_target_ns is not None:
        qos["latency_target"] = duration_text(options.latency_target_ns // _NS_PER_US)
    if options.memory_bytes_max is not None:
        qos["memory_bytes_max"] = options.memory_bytes_max
    if options.tolerance_percent is not None:
        qos["tolerance_percent"] = options.tolerance_percent
    if qos:
        plan["qos"] = qos
    if options.weight != default.weight:
        plan["weight"] = options.weight
    if options.deadline_ns != default.deadline_ns:
        plan["deadline"] = duration_text(options.deadline_ns // _NS_PER_US)
    if options.shed_by is not None:
        plan["shed_by"] = options.shed_by.text
    if options.start_at_us is not None:
        plan["start"] = format_timestamp(options.start_at_us)
    if options.lifetime_us is not None:
        plan["lifetime"] = duration_text(options.lifetime_us)
    if options.history:
        plan["history"] = "held"
    if options.materialized:
        plan["materialized"] = True
    if options.keep_rows is not None:
        plan["keep"] = options.keep_rows
    if options.keep_us is not None:
        plan["keep"] = duration_text(options.keep_us)
    if options.split > 1:
        plan["split"] = options.split
    if options.archive:
        plan["history"] = "archive"
    if options.archive_from_us is not None:
        plan["history_from"] = format_timestamp(options.archive_from_us)
    return plan


class _Writer:
    """Writes nodes; `emit` and `stream` are what the reader will apply to the outermost aggregate."""

    def __init__(self, emit: EmitSpec | None, stream: str | None) -> None:
        self.emit = emit
        self.stream = stream
        self._methods: dict[type[logical.Node], Callable[[Any, bool], Plan]] = {
            logical.Scan: lambda node, _: {"op": "source", "stream": node.stream},
            logical.TableScan: lambda node, _: {"op": "source", "stream": node.table},
            logical.Filter: self._select,
            logical.Project: self._project,
            logical.Split: self._split,
            logical.Union: lambda node, outer: {"op": "union", "inputs": [self.write(b, outer) for b in node.branches]},
            logical.Window: self._window,
            logical.Aggregate: self._aggregate,
            **dict.fromkeys((logical.Join, logical.TableJoin, logical.AsofJoin), self._join),
            logical.Distinct: lambda node, outer: {"op": "distinct", "input": self.write(node.input, outer)},
            logical.Top: self._top,
            logical.Lag: self._lag,
            logical.Over: self._over,
            logical.Match: self._match,
            logical.Rank: self._rank,
            logical.RunningTop: self._running_top,
            logical.Unnest: self._unnest,
        }

    def write(self, node: logical.Node, outer: bool = True) -> Plan:
        """Return the plan node. Unsupported for what has none."""
        if isinstance(node, logical.Distinct) and node.window is not None and isinstance(node.input, logical.Union):
            raise Unsupported("there is no tree of operators for UNION over windows", hint="send the SELECT as text")
        if isinstance(node, logical.SubqueryJoin):
            raise Unsupported(
                "there is no tree of operators for INTERSECT, EXCEPT or a subquery in an expression", hint="send the SELECT as text"
            )
        of_changes = isinstance(node, logical.RunningTop) and node.retracts is not None
        if of_changes or isinstance(node, logical.TableChanges | logical.ChangeJoin):
            raise Unsupported("there is no tree of operators for what is made of changes", hint="send the SELECT as text")
        plan = self._methods[type(node)](node, outer)
        if node.hints.selectivity is not None:
            plan["selectivity"] = node.hints.selectivity
        if node.hints.cost_us is not None:
            plan["cost_us"] = node.hints.cost_us
        alias = _alias(node)
        if alias is not None:
            plan["as"] = alias
        return plan

    # -- stateless ------------------------------------------------------------------------------------------------------------

    def _select(self, node: logical.Filter, outer: bool) -> Plan:
        condition = expression_text(node.condition, attribute_names(node.input.attributes))
        return {"op": "select", "condition": condition, "input": self.write(node.input, outer)}

    def _project(self, node: logical.Project, outer: bool) -> Plan:
        spell = attribute_names(node.input.attributes)
        columns = [
            [a.name, expression_text(e, spell)]
            for a, e in zip(node.attributes, node.expressions, strict=True)
            if a.role is not logical.Role.CHANGE
        ]
        below = node.input
        joined = _tumbling_join(node)
        if joined is not None:
            return self._windowed_join(joined)
        return {"op": "project", "columns": columns, "input": self.write(below, outer)}

    def _split(self, node: logical.Split, outer: bool) -> Plan:
        condition = expression_text(node.condition, attribute_names(node.input.attributes))
        return {"op": "split", "condition": condition, "keep": node.keep, "input": self.write(node.input, outer)}

    # -- windows and aggregates -----------------------------------------------------------------------------------------------

    def _window(self, node: logical.Window, outer: bool) -> Plan:
        if isinstance(node.input, logical.Project) and _tumbling_join(node.input) is not None:
            return self.write(node.input, False)  # the join puts the window on top by itself
        return {"op": "window", "window": window_text(node.spec, node.input.attributes), "input": self.write(node.input, False)}

    def _aggregate(self, node: logical.Aggregate, outer: bool) -> Plan:
        project = node.input
        assert isinstance(project, logical.Project)
        below, plan = project.input, Plan(op="aggregate")
        condition: Expression | None = None
        if isinstance(below, logical.Filter) and below.hints == type(below.hints)():
            condition, below = below.condition, below.input
        spell = attribute_names(below.attributes)
        window = below if isinstance(below, logical.Window) else None
        inner = below
        if window is not None and not (isinstance(window.input, logical.Project) and _tumbling_join(window.input) is not None):
            plan["window"] = window_text(window.spec, window.input.attributes)
            inner = window.input
        if condition is not None:
            plan["where"] = expression_text(condition, spell)
        self._grouping(plan, node, project, spell)
        spec = window.spec if window is not None else None
        given = EmitSpec(EmitKind.CHANGES) if outer and self.stream is not None else self.emit if outer else None
        if _assumed(spec, given, self.stream if outer else None) != node.emit:
            plan["emit"] = emit_text(node.emit)
        plan["input"] = self.write(inner, False)
        return plan

    def _grouping(self, plan: Plan, node: logical.Aggregate, project: logical.Project, spell: Callable[[int], str]) -> None:
        texts = [expression_text(e, spell) for e in project.expressions]
        keys = []
        for attribute, key in zip(node.attributes, node.keys, strict=False):
            expression = project.expressions[key]
            plain = isinstance(expression, ColumnRef) and expression.name == attribute.name
            keys.append(texts[key] if plain else [attribute.name, texts[key]])
        if keys:
            plan["group_by"] = keys
        names = [a.name for a in node.attributes[len(node.keys) :]]
        arguments = [self._arguments(item, project, spell) for item in node.items]
        plan["aggregates"] = [self._item(*named, texts) for named in zip(names, node.items, arguments, strict=False)]

    def _arguments(self, item: AggregateCall, project: logical.Project, spell: Callable[[int], str]) -> str:
        """Return what stands between an aggregate's parentheses; what is read as one STRUCT was written one by one."""
        given = [project.expressions[a] for a in item.arguments]
        options, orders = list(item.options), ()
        if options and isinstance(options[-1], tuple):
            orders = options.pop()
            whole, *keys = unpacked(given[0])
            given = [whole]
        elif columns_of(item.function) > 1:
            given = list(unpacked(given[0]))
        text = ", ".join([*(expression_text(e, spell) for e in given), *(_option_text(o) for o in options)]) or "*"
        if orders:
            text += " ORDER BY " + ", ".join(
                f"{expression_text(key, spell)}{' DESC' if falls else ''} NULLS {'FIRST' if first else 'LAST'}"
                for key, (falls, first) in zip(keys, orders, strict=True)
            )
        return text

    def _item(self, name: str, item: AggregateCall, argument: str, texts: list[str]) -> list[str]:
        if item.distinct:
            argument = f"DISTINCT {argument}"
        if item.carried or item.interpolated:
            condition = "" if item.filter is None else f" FILTER (WHERE {texts[item.filter]})"
            return [name, "locf" if item.carried else "interpolate", f"{item.function}({argument}){condition}"]
        return [name, item.function, argument, *([] if item.filter is None else [texts[item.filter]])]

    def _top(self, node: logical.Top, outer: bool) -> Plan:
        plan: Plan = {"op": "top", "order_by": _order_text(node), "limit": node.limit}
        if node.with_ties:
            plan["with_ties"] = True
        plan["input"] = self.write(node.input, outer)
        return plan

    def _rank(self, node: logical.Rank, outer: bool) -> Plan:
        spell = attribute_names(node.input.attributes)
        plan: Plan = {"op": "rank", "function": node.function, "partition_by": [spell(p) for p in node.partition]}
        if node.order:
            plan["order_by"] = _order_text(node)
        plan["input"] = self.write(node.input, outer)
        return plan

    def _running_top(self, node: logical.RunningTop, outer: bool) -> Plan:
        spell = attribute_names(node.input.attributes)
        plan: Plan = {"op": "rank", "function": "row_number", "partition_by": [spell(p) for p in node.partition]}
        if node.order:
            plan["order_by"] = _order_text(node)
        plan["limit"] = node.limit
        plan["input"] = self.write(node.input, outer)
        return plan

    def _lag(self, node: logical.Lag, outer: bool) -> Plan:
        spell = attribute_names(node.input.attributes)
        return {
            "op": "lag",
            "value": spell(node.value),
            "offset": node.offset,
            "partition_by": [spell(p) for p in node.partition],
            "input": self.write(node.input, outer),
        }

    def _over(self, node: logical.Over, outer: bool) -> Plan:
        spell = attribute_names(node.input.attributes)
        names = iter(node.attributes[len(node.input.attributes) :])

        def call(c: AggregateCall) -> list[Any]:
            condition = None if c.filter is None else spell(c.filter)
            return [next(names).name, c.function, [spell(a) for a in c.arguments], condition, c.distinct, list(c.options)]

        parts = [
            {"frame": frame_text(p.frame), "partition_by": [spell(k) for k in p.partition], "calls": [call(c) for c in p.aggregates]}
            for p in node.parts
        ]
        return {"op": "over", "parts": parts, "input": self.write(node.input, outer)}

    def _match(self, node: logical.Match, outer: bool) -> Plan:
        spec, spell, subsets = node.spec, attribute_names(node.input.attributes), match_subsets(node.spec)
        plan: Plan = {
            "op": "match",
            "partition_by": [spell(p) for p in spec.partition],
            "pattern": pattern_text(spec.pattern, spec.variables),
            "define": [
                [name, match_condition_text(condition, spec, spell, subsets)]
                for name, condition in zip(spec.variables, spec.conditions, strict=True)
                if condition is not None
            ],
            "subsets": [[name, [spec.variables[v] for v in chosen]] for chosen, name in subsets.items()],
            "skip": skip_text(spec, subsets),
        }
        if spec.within_us is not None:
            plan["within"] = duration_text(spec.within_us)
        if spec.all_rows:
            plan["all_rows"], plan["shows_empty"] = True, spec.shows_empty

        def measure(name: str, value: MatchValue) -> list[Any]:
            c = value.call
            if c is None:
                return [name, match_value_text(value, spec, spell, subsets)]
            condition = None if c.filter is None else spell(c.filter)
            call = [c.function, [spell(a) for a in c.arguments], condition, c.distinct, list(c.options)]
            return [name, [spec.variables[v] for v in value.variables], *call, value.final]

        own = node.attributes[len(node.attributes) - len(spec.measures) :]
        plan["measures"] = [measure(a.name, value) for a, value in zip(own, spec.measures, strict=True)]
        plan["input"] = self.write(node.input, outer)
        return plan

    def _unnest(self, node: logical.Unnest, outer: bool) -> Plan:
        made = node.attributes[len(node.input.attributes) :]
        return {
            "op": "unnest",
            "items": expression_text(node.items, attribute_names(node.input.attributes)),
            "called": made[0].qualifier,
            "columns": [a.name for a in made],
            "numbered": node.numbered,
            "outer": node.outer,
            "input": self.write(node.input, outer),
        }

    # -- joins ----------------------------------------------------------------------------------------------------------------

    def _join(self, node: logical.KeyedJoin, outer: bool) -> Plan:
        asof = ("left asof" if node.kind is JoinKind.LEFT else "asof") if isinstance(node, logical.AsofJoin) else None
        plan: Plan = {"op": "join", "kind": asof or node.kind.value}
        if isinstance(node, logical.AsofJoin) and node.strict:
            plan["strict"] = True
        _put_on(plan, node.keys, node.residual, node.left.attributes, node.right.attributes)
        if isinstance(node, logical.AsofJoin) and (node.forward or node.within_us is not None):
            far = None if node.within_us is None else duration_text(node.within_us if node.forward else -node.within_us)
            plan["within"] = [duration_text(0), far] if node.forward else [far, duration_text(0)]
        if isinstance(node, logical.AsofJoin) and node.forward:
            plan["forward"] = True
        if isinstance(node, logical.Join):
            plan["within"] = _within(node)
        plan["inputs"] = [self.write(node.left, False), self.write(node.right, False)]
        return plan

    def _windowed_join(self, node: logical.Join) -> Plan:
        """A join of the same tumbling window on both sides: its windows, without the key that the window's start is."""
        left, right = node.left, node.right
        assert isinstance(left, logical.Window)
        assert isinstance(right, logical.Window)
        width = len(left.input.attributes)
        residual = None if node.residual is None else moved(node.residual, width + 2, -2)
        plan: Plan = {"op": "join", "kind": node.kind.value}
        _put_on(plan, node.keys[:-1], residual, left.input.attributes, right.input.attributes)
        plan["windows"] = [window_text(w.spec, w.input.attributes) for w in (left, right)]
        plan["within"] = _within(node)
        plan["inputs"] = [self.write(left.input, False), self.write(right.input, False)]
        return plan


def _assumed(spec: Any, given: EmitSpec | None, stream: str | None) -> EmitSpec | None:
    try:
        return aggregate_emit(spec, given, stream)
    except EngineError:
        return None


def _option_text(option: Any) -> str:
    if isinstance(option, str):
        return "'" + option.replace("'", "''") + "'"
    return str(option) if isinstance(option, int) else f"{option!r}e0" if "e" not in repr(option) else repr(option)


def _within(node: logical.Join) -> Any:
    if node.lower_us is not None and node.upper_us is not None and node.lower_us == -node.upper_us and node.upper_us >= 0:
        return duration_text(node.upper_us)
    return [None if end is None else duration_text(end) for end in (node.lower_us, node.upper_us)]


def _put_on(
    plan: Plan, keys: tuple[logical.JoinKey, ...], residual: Expression | None, left: logical.Attributes, right: logical.Attributes
) -> None:
    conditions: list[Expression] = []
    for key in keys:
        name = "is_not_distinct_from" if key.null_safe else "="
        conditions.append(build.call(name, [key.left, moved(key.right, 0, len(left))]))
    if residual is not None:
        conditions.append(residual)
    whole = conjunction(conditions)
    if whole is not None:
        plan["on"] = expression_text(whole, attribute_names(left + right))


def _tumbling_join(node: logical.Project) -> logical.Join | None:
    """Return the join when the node is what a join of two equal tumbling windows is made of."""
    join = node.input
    if (
        not isinstance(join, logical.Join)
        or not isinstance(join.left, logical.Window)
        or not isinstance(join.right, logical.Window)
        or not join.keys
    ):
        return None
    last = join.keys[-1]
    width = len(join.left.input.attributes)
    starts = columns_used(last.left) == {width} and columns_used(last.right) == {len(join.right.input.attributes)}
    return join if starts and join.left.spec == join.right.spec and join.left.spec.kind is WindowKind.HOPPING else None


def _order_text(node: logical.Top | logical.Rank | logical.RunningTop) -> str:
    spell = attribute_names(node.input.attributes)
    return ", ".join(
        f"{spell(k.position)}{' DESC' if k.descending else ''} NULLS {'FIRST' if k.nulls_first else 'LAST'}" for k in node.order
    )


def _alias(node: logical.Node) -> str | None:
    """Return the alias that the reader would not give by itself."""
    qualifiers = {a.qualifier for a in node.attributes}
    if len(qualifiers) != 1:
        return None
    qualifier = qualifiers.pop()
    if qualifier is None:
        return None
    if isinstance(node, logical.Scan | logical.TableScan):
        own = node.stream if isinstance(node, logical.Scan) else node.table
        return None if own == qualifier else qualifier
    if isinstance(
        node,
        logical.Filter
        | logical.Split
        | logical.Distinct
        | logical.Top
        | logical.RunningTop
        | logical.Lag
        | logical.Over
        | logical.Rank
        | logical.Window,
    ):
        inherited = {a.qualifier for a in node.inputs[0].attributes}
        return None if qualifier in inherited else qualifier
    return qualifier if not isinstance(node, logical.KeyedJoin) else None
