"""EXPLAIN: the logical plan, the rewrites, the operators that will run and what state they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from millstream.engine.data.durations import duration_text
from millstream.engine.data.schema import Schema
from millstream.engine.language.recipes import EmitKind
from millstream.engine.plan import logical
from millstream.engine.plan.logical import Attributes, Node
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.engine.plan.plan import PlannedQuery
from millstream.engine.plan.plan_writer import to_plan_object
from millstream.engine.plan.semantics_text import rules_in_force
from millstream.engine.plan.state import operator_name, state_lines
from millstream.engine.plan.text import attribute_names, emit_text, expression_text, window_text


def explain(planned: PlannedQuery) -> str:
    """Return EXPLAIN's text."""
    options = planned.physical.options
    lines = ["Logical plan", *_indented(plan_lines(planned.logical.root))]
    lines += ["Rewrites", f"  {', '.join(planned.applied) or 'none applied'}"]
    lines += ["Operators", *_indented(physical_lines(planned))]
    lines += ["State", *_indented(state_lines(planned.physical))]
    if planned.functions:
        lines += ["Functions", *_indented([f.promise for f in planned.functions])]
    if planned.notes:
        lines += ["Warnings", *_indented(list(planned.notes))]
    lines.append(f"Emission\n  EMIT {emit_text(planned.logical.emit)}")
    points = ", ".join(f"{latency:g} s: {utility:g}" for latency, utility in options.qos)
    lines.append(
        f"Service\n  class {options.class_name}, weight {options.weight:g}, deadline {options.deadline_ns / 1e9:g} s, qos {points}"
    )
    return "\n".join(lines)


def explain_semantics(planned: PlannedQuery) -> str:
    """Return EXPLAIN SEMANTICS's text: the rules of docs/semantics.md that decide what this query answers."""
    return "\n".join(f"{rule}  {text}" for rule, text in rules_in_force(planned))


def explain_json(planned: PlannedQuery, name: str | None = None) -> str:
    """Return the query as a plan object in JSON, as `EXPLAIN … --format json` prints it."""
    return json.dumps(to_plan_object(planned.bound, name), ensure_ascii=False, indent=2)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


# -- the logical plan ---------------------------------------------------------------------------------------------------------


def plan_text(node: Node) -> str:
    """Return a logical plan as an indented tree, the root first."""
    return "\n".join(plan_lines(node))


def plan_lines(node: Node) -> list[str]:
    """Return the lines of a logical plan."""
    lines = [_describe(node) + _hints(node)]
    for below in node.inputs:
        lines += _indented(plan_lines(below))
    return lines


def _hints(node: Node) -> str:
    parts = []
    if node.hints.selectivity is not None:
        parts.append(f"selectivity {node.hints.selectivity:g}")
    if node.hints.cost_us is not None:
        parts.append(f"cost {node.hints.cost_us:g} µs")
    return f"  [{', '.join(parts)}]" if parts else ""


def _describe(node: Node) -> str:
    return _DESCRIPTIONS[type(node)](node)


def _inputs(node: Node) -> Attributes:
    return tuple(a for below in node.inputs for a in below.attributes)


def _scan(node: Any) -> str:
    alias = next((a.qualifier for a in node.attributes), None)
    called = f" AS {alias}" if alias not in (None, node.stream) else ""
    return f"Scan {node.stream}{called}"


def _filter(node: Any) -> str:
    return f"Filter {expression_text(node.condition, attribute_names(_inputs(node)))}"


def _project(node: Any) -> str:
    spell = attribute_names(_inputs(node))
    columns = []
    for attribute, expression in zip(node.attributes, node.expressions, strict=True):
        text = expression_text(expression, spell)
        columns.append(text if text == attribute.name else f"{text} AS {attribute.name}")
    return f"Project {', '.join(columns)}"


def _split(node: Any) -> str:
    kept = "those that are" if node.keep else "all others"
    return f"Split {expression_text(node.condition, attribute_names(_inputs(node)))}: {kept}"


def _window(node: Any) -> str:
    return f"Window [{window_text(node.spec, node.input.attributes)}]" + (" as changes" if node.changes else "")


def _aggregate(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    keys = f" by {', '.join(names[k] for k in node.keys)}" if node.keys else ""
    items = ", ".join(_aggregate_item(item, names) for item in node.items) or "groups only"
    return f"Aggregate {items}{keys}, EMIT {emit_text(node.emit)}"


def _aggregate_item(item: Any, names: list[str]) -> str:
    arguments = ", ".join(names[a] for a in item.arguments) or "*"
    options = "".join(f", {option}" for option in item.options)
    condition = "" if item.filter is None else f" FILTER {names[item.filter]}"
    return f"{item.function}({'DISTINCT ' if item.distinct else ''}{arguments}{options}){condition}"


def bound_text(lower: int | None, upper: int | None) -> str:
    """Return the bound of a join in words."""
    if lower is not None and upper is not None and lower == -upper:
        return f"within {duration_text(upper)}"
    least = "" if lower is None else f"{duration_text(lower)} <= "
    most = "" if upper is None else f" <= {duration_text(upper)}"
    return f"{least}right.time - left.time{most}"


def _join(node: Any) -> str:
    on = _on(node)
    return f"{node.kind.value.capitalize()} join {bound_text(node.lower_us, node.upper_us)}{on}"


def _qualified(attributes: Attributes) -> Callable[[int], str]:
    """Spell each column with its item, so that the two sides of a join can be told apart."""
    spell = attribute_names(attributes)
    return lambda i: spell(i) if attributes[i].qualifier is None or "." in spell(i) else f"{attributes[i].qualifier}.{spell(i)}"


def _on(node: Any) -> str:
    left, right = _qualified(node.left.attributes), _qualified(node.right.attributes)
    parts = [
        f"{expression_text(k.left, left)} {'IS NOT DISTINCT FROM' if k.null_safe else '='} {expression_text(k.right, right)}"
        for k in node.keys
    ]
    if node.residual is not None:
        parts.append(expression_text(node.residual, attribute_names(_inputs(node))))
    return f" on {' AND '.join(parts)}" if parts else ""


def _top(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    keys = ", ".join(names[k.position] + (" DESC" if k.descending else "") for k in node.order)
    return f"Top {node.limit}{' with ties' if node.with_ties else ''} of each window by {keys}"


def _lag(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    by = f" by {', '.join(names[p] for p in node.partition)}" if node.partition else ""
    return f"Lag {names[node.value]}, {node.offset} back{by}"


def _rank(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    keys = ", ".join(names[k.position] + (" DESC" if k.descending else "") for k in node.order) or "arrival"
    return f"{node.function.upper()} in {', '.join(names[p] for p in node.partition)} by {keys}"


def _relation_to_stream(node: Any) -> str:
    every = f" every {duration_text(node.every_us)}" if node.every_us is not None else ""
    return {"i": "ISTREAM", "d": "DSTREAM", "r": "RSTREAM"}[node.stream] + every


_DESCRIPTIONS: dict[type[Node], Callable[[Any], str]] = {
    logical.Scan: _scan,
    logical.TableScan: lambda node: f"Table {node.table}",
    logical.Filter: _filter,
    logical.Project: _project,
    logical.Split: _split,
    logical.Window: _window,
    logical.Aggregate: _aggregate,
    logical.Join: _join,
    logical.TableJoin: lambda node: f"{node.kind.value.capitalize()} table join{_on(node)}",
    logical.AsofJoin: lambda node: f"{node.kind.value.capitalize()} as-of join{_on(node)}",
    logical.Union: lambda node: f"Union of {len(node.branches)}",
    logical.Distinct: lambda node: "Distinct" + (" in each window" if node.window is not None else ""),
    logical.Top: _top,
    logical.Lag: _lag,
    logical.Rank: _rank,
    logical.RelationToStream: _relation_to_stream,
}


# -- the physical plan --------------------------------------------------------------------------------------------------------


def physical_lines(planned: PlannedQuery) -> list[str]:
    """Return one numbered line an operator, inputs before what reads them; a shared operator stands once."""
    numbers: dict[PhysicalNode | SourceNode, int] = {}
    lines: list[str] = []

    def visit(node: PhysicalNode | SourceNode) -> int:
        if node in numbers:
            return numbers[node]
        inputs = [] if isinstance(node, SourceNode) else [(visit(ref.node), ref) for ref in node.inputs]
        numbers[node] = len(numbers) + 1
        lines.append(f"{numbers[node]}: {_operator(node, inputs)}")
        return numbers[node]

    visit(planned.physical.root)
    return lines


def _operator(node: PhysicalNode | SourceNode, inputs: list[tuple[int, InputRef]]) -> str:
    if isinstance(node, SourceNode):
        return f"{'table' if node.table else 'source'} {node.stream}"
    reads = ", ".join(f"{number}.{ref.output}" if ref.output else str(number) for number, ref in inputs)
    return f"{operator_name(node.recipe)} <- {reads}  ({', '.join(_shown_schema(node.recipe.schema))})"


def _shown_schema(schema: Schema) -> list[str]:
    return [f"{f.name} {f.type}" for f in schema.fields]


def is_change_log(planned: PlannedQuery) -> bool:
    """The answer says '+' and '-'."""
    return planned.logical.emit.kind is EmitKind.CHANGES
