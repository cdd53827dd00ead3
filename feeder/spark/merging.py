"""Aggregates whose parts merge: one part over each stretch of a stream, then the parts of all stretches by key and window."""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.aggregates.table import resolve_aggregate
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, DOUBLE, TIMESTAMP, Kind
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal
from millstream.engine.language.recipes import AggregateCall, AggregateRecipe, EmitSpec, WindowKind
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.feeder.spark.cuts import MERGEABLE, ORDER, Cut, Exchange
from millstream.feeder.spark.nodes import is_anywhere, projected, put_below, schema_of, sources_of, with_place
from millstream.feeder.spark.script import Node

_EXACT = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)


def is_mergeable(node: PhysicalNode) -> bool:
    """Return whether an aggregate's parts merge, rounding of DOUBLE aside."""
    recipe = node.recipe
    assert isinstance(recipe, AggregateRecipe)
    window, schema = recipe.window, schema_of(node.inputs[0].node)
    return (
        is_anywhere(node.inputs[0].node)
        and (window is None or (window.kind in (WindowKind.HOPPING, WindowKind.CUMULATE) and not window.slide_within))
        and recipe.emit == EmitSpec()
        and recipe.live is None
        and recipe.retracts is None
        and bool(recipe.keys or recipe.aggregates)
        and all(_merges(call, schema) for call in recipe.aggregates)
    )


def _merges(call: AggregateCall, schema: Schema) -> bool:
    if call.distinct or len(call.arguments) > 1:
        return False
    kind = schema.fields[call.arguments[0]].type.kind if call.arguments else None
    if call.function == "count" or (call.function in ("min", "max") and kind is not None):
        return True
    if call.function == "sum":
        return kind in _EXACT
    return call.function == "avg" and kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE)


def merged_cut(root: Node, top: PhysicalNode) -> Cut:
    """Aggregate each stretch by itself, then merge what the stretches gave by key and window."""
    recipe = top.recipe
    assert isinstance(recipe, AggregateRecipe)
    below, keys = top.inputs[0].node, recipe.keys
    schema = schema_of(below)
    calls: dict[AggregateCall, int] = {}
    merges: list[str] = []

    def part(call: AggregateCall, merge: str) -> int:
        if call not in calls:
            calls[call] = len(calls)
            merges.append(merge)
        return calls[call]

    finals: list[tuple[AggregateCall, tuple[int, ...]]] = []
    for call in recipe.aggregates:
        if call.function in ("count", "min", "max"):
            finals.append((call, (part(call, "sum" if call.function == "count" else call.function),)))
            continue
        source = schema.fields[call.arguments[0]].type
        total = replace(call, function="sum", type=resolve_aggregate("sum", [source]).result)
        if call.function == "sum":
            finals.append((call, (part(total, "sum"),)))
        else:
            finals.append((call, (part(total, "sum"), part(replace(call, function="count", type=BIGINT), "sum"))))
    first = part(AggregateCall("min", (len(schema),), BIGINT), "min")
    placed = with_place(below)
    bounds = () if recipe.window is None else (Field("window_start", TIMESTAMP), Field("window_end", TIMESTAMP))
    key_fields = tuple(schema.fields[k] for k in keys)
    parts = tuple(Field(f"part_{i}", call.type) for i, call in enumerate(calls))
    one = AggregateRecipe(Schema((*key_fields, *parts, *bounds)), recipe.window, keys, tuple(calls))
    width = len(keys) + len(parts)
    groups = (*range(len(keys)), *range(width, width + len(bounds)))
    exchange = Exchange("x0", PhysicalNode(one, (InputRef(placed),)), tuple(sources_of(below)), groups, needs_place=True)

    merging = []
    for i, (call, merge) in enumerate(zip(calls, merges, strict=True)):
        merging.append(AggregateCall(merge, (len(keys) + i,), resolve_aggregate(merge, [call.type]).result))
    group_fields = tuple(one.schema.fields[g] for g in groups)
    merged_fields = tuple(Field(f"part_{i}", call.type) for i, call in enumerate(merging))
    merger = AggregateRecipe(Schema((*group_fields, *merged_fields)), None, groups, tuple(merging))
    node = PhysicalNode(merger, (InputRef(SourceNode("x0", one.schema)),))
    offset = len(groups)

    def merged(i: int) -> Expression:
        return ColumnRef(merging[i].type, offset + i, f"part_{i}")

    columns: list[Expression] = [ColumnRef(f.type, i, f.name) for i, f in enumerate(key_fields)]
    columns += [_finished(call, [merged(i) for i in places]) for call, places in finals]
    start: Expression = ColumnRef(TIMESTAMP, len(keys), "window_start") if bounds else Literal(TIMESTAMP, None)
    end: Expression = ColumnRef(TIMESTAMP, len(keys) + 1, "window_end") if bounds else Literal(TIMESTAMP, None)
    if bounds:
        columns += [start, end]
    columns += [end, start, merged(first)]
    second = put_below(root, top, projected(node, columns, (*recipe.schema.fields, *ORDER)), ORDER)
    return Cut(MERGEABLE, (exchange,), second, by_window=True)


def _finished(call: AggregateCall, merged: list[Expression]) -> Expression:
    if call.function != "avg":
        return build.cast(merged[0], call.type)
    count = build.cast(merged[1], DOUBLE)
    some = build.call(">", [count, Literal(DOUBLE, 0.0)])
    return build.case([(some, build.call("/", [build.cast(merged[0], DOUBLE), count]))], None)
