"""EXPLAIN: the logical plan, the rewrites, the operators that will run, the state they hold, and the rules of docs/semantics.md in
force."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from millstream.engine.data.calendar import US_PER_DAY
from millstream.engine.data.durations import duration_text
from millstream.engine.data.schema import Schema
from millstream.engine.data.types import Kind
from millstream.engine.language.recipes import EmitKind, JoinKind, OverPart, WindowKind, WindowSpec
from millstream.engine.plan import logical
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.engine.plan.plan import PlannedQuery
from millstream.engine.plan.plan_writer import to_plan_object
from millstream.engine.plan.state import operator_name, state_lines
from millstream.engine.plan.text import (
    attribute_names,
    emit_text,
    expression_text,
    frame_text,
    match_condition_text,
    match_subsets,
    pattern_text,
    skip_text,
    window_text,
)
from millstream.engine.plan.windows import FORMED_FIRST, US_PER_WEEK

Rule = tuple[str, str]


def rules_in_force(planned: PlannedQuery) -> list[Rule]:
    """Return (rule id, sentence) in the order of the ids, each id at most once a sentence."""
    nodes = logical.walk_plan(planned.bound.root)
    found = [
        *_windows(nodes),
        *_joins(nodes),
        *_overs(nodes),
        *_tops(nodes),
        *_matches(nodes),
        *_times(planned, nodes),
        *_values(nodes),
        *_emission(planned, nodes),
        *_order(nodes),
        *_history(planned),
    ]
    return sorted(dict.fromkeys(found), key=lambda rule: int(rule[0][1:]))


def _history(planned: PlannedQuery) -> Iterator[Rule]:
    if planned.physical.options.history:
        yield "K15", "history = 'held': every answer covers a whole window; the rows that are held decide which window is the first"


def _windows(nodes: list[logical.Node]) -> Iterator[Rule]:
    for node in nodes:
        if isinstance(node, logical.Window):
            yield from _window_rules(node.spec)
            if node.spec.kind in FORMED_FIRST:
                yield "K17", "the window is formed before WHERE: a row that WHERE drops still takes its place in it"
            else:
                yield "K17", "the window is formed before WHERE; for this kind of window both orders give the same answer"


def _window_rules(spec: WindowSpec) -> Iterator[Rule]:
    if spec.kind in (WindowKind.HOPPING, WindowKind.CUMULATE):
        size, slide = duration_text(spec.range_us), duration_text(spec.slide_us)
        aligned = f"the local calendar of {spec.zone}" if spec.zone else "the epoch, in UTC"
        offset = f", offset by {duration_text(spec.offset_us)}" if spec.offset_us else ""
        yield "K1", f"windows are half-open [start, end), {size} long, a new one every {slide}, aligned to {aligned}{offset}"
        if spec.zone and spec.range_us >= US_PER_DAY:
            yield "K1", "a window of whole days follows local days, which may have 23 or 25 hours"
        elif spec.slide_us % US_PER_WEEK == 0 and spec.kind is WindowKind.HOPPING and spec.slide_us:
            yield "K1", "without TIME ZONE, weeks count from the epoch and begin on Thursday; TIME ZONE 'UTC' makes them begin on Monday"
        if spec.slide_us > spec.range_us:
            yield "K4", "a row in the gap between two windows is processed, not late"
        yield "K4", "a row is late only when every window it belongs to has closed; a window closes when the watermark reaches its end"
        yield "K16", "SLIDE WITHIN: answers come at least that often" if spec.slide_within else "SLIDE is exact"
    elif spec.kind in (WindowKind.SLIDING, WindowKind.NOW):
        size = duration_text(spec.range_us or 1)
        yield "K2", f"at an instant t the window holds rows with time in (t - {size}, t], evaluated after all rows of the instant"
        yield "K4", "a row is late when its time is below the watermark"
    elif spec.kind is WindowKind.ROWS:
        yield "K2", f"the window holds the last {spec.rows} rows in order of event time, however they arrived"
        yield "K4", "a row is late when its time is below the watermark"
        if spec.rows_slide != 1:
            yield "K14", "at the end of the stream the next window comes with the rows it has, marked partial"
    elif spec.kind is WindowKind.SESSION:
        yield (
            "K5",
            f"a row less than {duration_text(spec.gap_us)} after the last joins its session; a row exactly that far away starts a new one",
        )
        yield "K4", "a row is late when the session it would form or join has closed"


def _joins(nodes: list[logical.Node]) -> Iterator[Rule]:
    for node in nodes:
        if isinstance(node, logical.Join):
            yield "K2", f"two rows pair when {_bound(node.lower_us, node.upper_us)}, both ends included"
            yield "K4", "a row is late for the join when its time is below the join's watermark"
            yield "K19", "a joined row's event time is the later of the two"
            if node.kind is not JoinKind.INNER:
                yield "K9", "a row without a partner comes when the other side's watermark has passed the bound"
        if isinstance(node, logical.AsofJoin):
            passed = "the time of the row that it found, and has that time" if node.forward else "its time"
            yield (
                "K18",
                f"a left row is answered when the right side's watermark has passed {passed}; at equal times the last to arrive counts",
            )
            if node.forward and node.kind is JoinKind.LEFT:
                yield "K19", "the watermark is behind by the bound, for which a row without a match waits"
        if isinstance(node, logical.SubqueryJoin):
            yield from _subqueries(node)
        if isinstance(node, logical.TableChanges):
            yield "K28", "first a '+' for each row that stands, then what each change of a table takes back and brings"
        if isinstance(node, logical.ChangeJoin):
            every = "" if node.keys else "; without an equality each change is compared with all rows of the other side"
            yield "K28", f"rows that go take their pairs back, rows that come bring theirs{every}"
        if isinstance(node, logical.TableJoin):
            yield "K18", "the table's version at the left row's place in arrival order"
        if isinstance(node, logical.KeyedJoin) and node.keys:
            safe = any(key.null_safe for key in node.keys)
            yield "K6", "IS NOT DISTINCT FROM lets NULL match NULL" if safe else "a NULL key matches nothing"


def _subqueries(node: logical.SubqueryJoin) -> Iterator[Rule]:
    if logical.table_below(node.right) is not None:
        yield "K18", "a subquery sees the table as it stands at the row's place in arrival order"
    if node.ends is not None:
        yield "K25", "a row waits for the end of its window, which its subquery shares"
    if node.kind is JoinKind.SINGLE:
        yield "K25", "a subquery that stands for one value is NULL without a row; with several too, and the row counts as failed"
    if node.compared is not None:
        yield "K25", "x IN (…) is unknown if x or a value is NULL and no value equals x; over no values it is false"


def _overs(nodes: list[logical.Node]) -> Iterator[Rule]:
    for node in nodes:
        if not isinstance(node, logical.Over):
            continue
        yield "K4", "a row is late for OVER when its time is below the watermark"
        yield "K23", "each row gets one answer, over the rows about it in order of event time, ties by arrival"
        if any(part.frame.following > 0 for part in node.parts):
            yield "K23", "a row leaves when the last of its frames is complete, and that moment is its event time"


def _tops(nodes: list[logical.Node]) -> Iterator[Rule]:
    for node in nodes:
        if isinstance(node, logical.KeptRows):
            until = "so many came after it" if node.kept_us is None else f"the watermark is more than {duration_text(node.kept_us)} past it"
            yield "K29", f"a row of the view comes when the query gives it, and goes when {until}"
    if any(isinstance(n, logical.RunningTop) for n in nodes):
        yield "K13", "NULLs come last in ascending and first in descending order; text sorts by code point"
        if any(isinstance(n, logical.RunningTop) and n.retracts is None for n in nodes):
            yield "K24", "a row counts when it arrives; it goes when a later one pushes it out; of equal rows the earlier arrival stays"
        else:
            yield "K24", "the first of what stands; a change of a group costs as much as the rows of that; ties go by the other columns"


def _matches(nodes: list[logical.Node]) -> Iterator[Rule]:
    for node in nodes:
        if not isinstance(node, logical.Match):
            continue
        spec = node.spec
        yield "K4", "a row is late for MATCH_RECOGNIZE when its time is below the watermark"
        yield (
            "K27",
            "rows are matched in order of event time, ties by arrival; of the matches from one row the pattern's first choice counts",
        )
        if spec.within_us is None:
            yield "K27", "without WITHIN the watermark behind the matches only moves at the end of the stream"
        else:
            yield "K27", f"the last row of a match comes at most {duration_text(spec.within_us)} after the first"
            yield "K27", f"the watermark behind the matches is {duration_text(spec.lag_us or 0)} behind, as a match may wait that long"


def _bound(lower: int | None, upper: int | None) -> str:
    if lower is not None and upper is not None and lower == -upper:
        return f"their times differ by at most {duration_text(upper)}"
    parts = []
    if lower is not None:
        parts.append(f"right's time minus left's is at least {duration_text(lower)}")
    if upper is not None:
        parts.append(f"right's time minus left's is at most {duration_text(upper)}")
    return " and ".join(parts)


def _times(planned: PlannedQuery, nodes: list[logical.Node]) -> Iterator[Rule]:
    yield (
        "K3",
        "after each row, the watermark is the greatest time so far minus the delay; a row with exactly that time is not late",
    )
    if len(planned.streams) > 1 or any(isinstance(n, logical.Union) for n in nodes):
        yield "K3", "with several inputs, it is the minimum of the inputs that are not idle"
    if any(isinstance(n, logical.Window) for n in nodes):
        yield "K14", "when no row comes, windows close by an IDLE … FLUSH, by the clock (TIMESTAMP BY ARRIVAL) or at the end of the stream"
    yield "K12", "event times are whole microseconds in UTC"


def _values(nodes: list[logical.Node]) -> Iterator[Rule]:
    yield "K8", "an expression that fails is NULL for that row and counted; the query goes on"
    aggregates = [n for n in nodes if isinstance(n, logical.Aggregate)]
    if aggregates:
        empty = any(n.emit.empty for n in aggregates)
        keyed = any(n.emit.empty and n.keys for n in aggregates)
        last = (
            "a key that had a row has one in each window that the watermark passes from then on"
            if keyed
            else "windows without a row between the stream's first and last event time come too"
            if empty
            else "a window without a row gives no result"
        )
        yield "K6", f"NULLs form one group; SUM, AVG, MIN and MAX over no value are NULL, COUNT is 0; {last}"
    if any(n.input.attributes[p].type.kind is Kind.DOUBLE for n in aggregates for p in n.keys):
        yield "K7", "-0.0 equals 0.0 as a key, and all NaNs are one"
    if any(item.function in ("sum", "avg") for n in aggregates for item in n.items):
        yield "K13", "SUM of INT is BIGINT, of BIGINT DECIMAL(38, 0); AVG of integers is DOUBLE, of DECIMAL a DECIMAL with four more digits"
    if any(item.function in ("stddev", "variance") for n in aggregates for item in n.items):
        yield "K13", "STDDEV and VARIANCE are the sample's, NULL for one value"
    if any(isinstance(n, logical.Filter) for n in nodes):
        yield "K6", "WHERE keeps a row only when its condition is true, not when it is NULL"


def _emission(planned: PlannedQuery, nodes: list[logical.Node]) -> Iterator[Rule]:
    emit = planned.logical.emit
    aggregated = any(isinstance(n, logical.Aggregate) for n in nodes)
    if isinstance(planned.bound.root, logical.RelationToStream) and planned.bound.root.stream == "f":
        yield "K9", "EMIT FINAL of a change log answers once, at the end of the stream, with the rows that stand"
    elif isinstance(planned.bound.root, logical.RelationToStream):
        yield "K9", "at the end of the stream nothing expires"
    elif emit.kind is EmitKind.CHANGES:
        yield "K9", "EMIT CHANGES: rows come as '+' and '-'; their sum at any watermark is the answer"
    elif emit.kind is EmitKind.EVERY:
        yield "K9", f"EMIT EVERY: whole rows at each {duration_text(emit.every_us)} of event time, and the final answer last"
    elif aggregated and any(isinstance(n, logical.Aggregate) and not n.windowed for n in nodes):
        yield "K9", "EMIT FINAL without a window answers once, at the end of the stream"
    elif aggregated:
        yield "K9", "EMIT FINAL: each window comes once, when it closes"
    else:
        yield "K9", "the answer only grows; no row is taken back"
    yield "K15", "the same bytes for any train size, worker count and policy, as long as nothing is shed"


def _order(nodes: list[logical.Node]) -> Iterator[Rule]:
    if any(isinstance(n, logical.Top) for n in nodes):
        yield "K11", "at equal ordering keys the earlier arrival comes first"
        yield "K13", "NULLs come last in ascending and first in descending order; text sorts by code point"
    if any(isinstance(n, logical.Aggregate | logical.Distinct) for n in nodes):
        yield "K20", "windows come by (end, start, first arrival of the group)"
    elif any(isinstance(n, logical.Join) for n in nodes):
        yield "K20", "joined rows come by the arrival of the later row, then of the earlier"
    else:
        yield "K20", "rows come in order of arrival"


def explain(planned: PlannedQuery) -> str:
    """Return EXPLAIN's text."""
    options = planned.physical.options
    lines = ["Logical plan", *_indented(plan_lines(planned.logical.root))]
    lines += ["Rewrites", f"  {', '.join(planned.applied) or 'none applied'}"]
    lines += ["Operators", *_indented(physical_lines(planned))]
    if planned.physical.splits:
        lines += ["Split", *_indented(list(planned.physical.splits))]
    state = state_lines(planned.physical)
    if planned.physical.splits:
        state = list(dict.fromkeys(state))  # the parts hold the same
    lines += ["State", *_indented(state)]
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


def plan_text(node: logical.Node) -> str:
    """Return a logical plan as an indented tree, the root first."""
    return "\n".join(plan_lines(node))


def plan_lines(node: logical.Node) -> list[str]:
    """Return the lines of a logical plan."""
    lines = [_describe(node) + _hints(node)]
    for below in node.inputs:
        lines += _indented(plan_lines(below))
    return lines


def _hints(node: logical.Node) -> str:
    parts = []
    if node.hints.selectivity is not None:
        parts.append(f"selectivity {node.hints.selectivity:g}")
    if node.hints.cost_us is not None:
        parts.append(f"cost {node.hints.cost_us:g} µs")
    return f"  [{', '.join(parts)}]" if parts else ""


def _describe(node: logical.Node) -> str:
    return _DESCRIPTIONS[type(node)](node)


def _inputs(node: logical.Node) -> logical.Attributes:
    kinds = isinstance(node, logical.ChangeJoin)  # of the changes of its inputs: nobody can name those
    return tuple(a for below in node.inputs for a in (below.attributes[:-1] if kinds else below.attributes))


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
    text = f"{item.function}({'DISTINCT ' if item.distinct else ''}{arguments}{options}){condition}"
    return f"locf({text})" if item.carried else f"interpolate({text})" if item.interpolated else text


def bound_text(lower: int | None, upper: int | None) -> str:
    """Return the bound of a join in words."""
    if lower is not None and upper is not None and lower == -upper:
        return f"within {duration_text(upper)}"
    least = "" if lower is None else f"{duration_text(lower)} <= "
    most = "" if upper is None else f" <= {duration_text(upper)}"
    return f"{least}right.time - left.time{most}" if least or most else "at any time"


def _join(node: Any) -> str:
    on = _on(node)
    return f"{node.kind.value.capitalize()} join {bound_text(node.lower_us, node.upper_us)}{on}"


def _qualified(attributes: logical.Attributes) -> Callable[[int], str]:
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


def _subquery(node: Any) -> str:
    left, right = _qualified(node.left.attributes), attribute_names(node.right.attributes)
    keys = [f"{expression_text(k.left, left)} = {expression_text(k.right, right)}" for k in node.keys]
    if node.residual is not None:
        keys.append(expression_text(node.residual, attribute_names(_inputs(node))))
    what = "One value of a subquery" if node.kind is JoinKind.SINGLE else "Whether a subquery has a row"
    if node.compared is not None:
        what = f"Whether {expression_text(node.compared.left, left)} is in a subquery"
    return f"{what}{', when its window ends' if node.ends else ''}{' on ' + ' AND '.join(keys) if keys else ''}"


def _top(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    keys = ", ".join(names[k.position] + (" DESC" if k.descending else "") for k in node.order)
    return f"Top {node.limit}{' with ties' if node.with_ties else ''} of each window by {keys}"


def _lag(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    by = f" by {', '.join(names[p] for p in node.partition)}" if node.partition else ""
    return f"Lag {names[node.value]}, {node.offset} back{by}"


def _over(node: Any) -> str:
    names = [a.name for a in node.input.attributes]

    def shown(part: OverPart) -> str:
        calls = ", ".join(f"{c.function.upper()}({', '.join(names[a] for a in c.arguments) or '*'})" for c in part.aggregates)
        by = f" by {', '.join(names[p] for p in part.partition)}" if part.partition else ""
        return f"{calls} over {frame_text(part.frame)}{by}"

    return "; ".join(map(shown, node.parts))


def _match(node: Any) -> str:
    spec, names = node.spec, attribute_names(node.input.attributes)
    subsets = match_subsets(spec)
    by = f" by {', '.join(names(p) for p in spec.partition)}" if spec.partition else ""
    within = "" if spec.within_us is None else f" within {duration_text(spec.within_us)}"
    rows = "all rows of each match" if spec.all_rows else "one row a match"
    defined = "; ".join(
        f"{name} when {match_condition_text(condition, spec, names, subsets)}"
        for name, condition in zip(spec.variables, spec.conditions, strict=True)
        if condition is not None
    )
    skip = skip_text(spec, subsets).lower()
    return f"Match {pattern_text(spec.pattern, spec.variables)}{by}{within}, {rows}, then skip {skip}{': ' if defined else ''}{defined}"


def _unnest(node: Any) -> str:
    shown = expression_text(node.items, attribute_names(node.input.attributes))
    return f"Unnest {shown}{' with ordinality' if node.numbered else ''}{', rows without items too' if node.outer else ''}"


def _rank(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    keys = ", ".join(names[k.position] + (" DESC" if k.descending else "") for k in node.order) or "arrival"
    return f"{node.function.upper()} in {', '.join(names[p] for p in node.partition)} by {keys}"


def _running_top(node: Any) -> str:
    names = [a.name for a in node.input.attributes]
    keys = ", ".join(names[k.position] + (" DESC" if k.descending else "") for k in node.order) or "arrival"
    by = f" of each {', '.join(names[p] for p in node.partition)}" if node.partition else ""
    return f"First {node.limit} so far{by} by {keys}{', numbered' if node.numbered else ''}"


def _relation_to_stream(node: Any) -> str:
    every = f" every {duration_text(node.every_us)}" if node.every_us is not None else ""
    return {"i": "ISTREAM", "d": "DSTREAM", "r": "RSTREAM", "f": "What stands at the end"}[node.stream] + every


_DESCRIPTIONS: dict[type[logical.Node], Callable[[Any], str]] = {
    logical.Scan: _scan,
    logical.TableScan: lambda node: f"Table {node.table}",
    logical.Filter: _filter,
    logical.Project: _project,
    logical.Split: _split,
    logical.Window: _window,
    logical.Aggregate: _aggregate,
    logical.Join: _join,
    logical.TableChanges: lambda node: "Changes",
    logical.ChangeJoin: lambda node: f"{node.kind.value.capitalize()} join of what stands{_on(node)}",
    logical.TableJoin: lambda node: f"{node.kind.value.capitalize()} table join{_on(node)}",
    logical.SubqueryJoin: _subquery,
    logical.AsofJoin: lambda node: f"{node.kind.value.capitalize()} as-of join{_on(node)}{_reach(node)}",
    logical.Union: lambda node: f"Union of {len(node.branches)}",
    logical.Distinct: lambda node: "Distinct" + (" in each window" if node.window is not None else ""),
    logical.Top: _top,
    logical.Lag: _lag,
    logical.Over: _over,
    logical.Match: _match,
    logical.Rank: _rank,
    logical.RunningTop: _running_top,
    logical.Unnest: _unnest,
    logical.RelationToStream: _relation_to_stream,
    logical.KeptRows: lambda node: (
        f"Keep the last {node.rows_max} rows" if node.kept_us is None else f"Keep rows for {duration_text(node.kept_us)}"
    ),
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


def _reach(node: logical.AsofJoin) -> str:
    """Return what an as-of join says beside its keys, where it is not just the last right row that is not later."""
    if not (node.forward or node.strict or node.within_us is not None):
        return ""
    which = "first" if node.forward else "last"
    when = ("later" if node.strict else "not earlier") if node.forward else ("earlier" if node.strict else "not later")
    far = "" if node.within_us is None else f", within {duration_text(node.within_us)}"
    return f", the {which} right row that is {when}{far}"
