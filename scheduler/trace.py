"""A story as a Chrome trace: open it in a trace viewer to see which operator ran when and what was decided.

The format is the trace-event format's JSON object: `X` events (complete, with duration) for steps and orders, `i` events (instant) for
decisions and reports, `C` events (counter) for the shares of classes and what is dropped before them. Times are in µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millstream.engine.data.graph import OperatorId
from millstream.engine.data.work import WorkReceipt
from millstream.scheduler.events import Arrived, QueryAdded, WorkDone
from millstream.scheduler.instructions import Dispatch, Report, SetClassShare, SetDropRatio
from millstream.scheduler.story import StoryEntry

_ORDERS, _STEPS, _DECISIONS = 1, 2, 3


def chrome_trace(entries: Iterable[StoryEntry], known: Mapping[OperatorId, str] | None = None) -> dict[str, Any]:
    """Return the trace as an object for `json.dump`; `known` names operators that were there before the first entry."""
    labels: dict[OperatorId, str] = dict(known or {})
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in ((_ORDERS, "orders"), (_STEPS, "steps"), (_DECISIONS, "decisions"))
    ]
    for entry in entries:
        for event in entry.events:
            if isinstance(event, QueryAdded):
                for node in event.delta.operators:
                    labels.setdefault(node.id, node.label or f"{node.kind} {node.id}")
            elif isinstance(event, WorkDone):
                events.extend(_receipt(event.receipt, lambda operator: labels.get(operator, f"operator {operator}")))
            elif isinstance(event, Arrived):
                events.append(_instant(entry.now_ns, f"arrived log {event.log}", {"rows": event.rows}))
        for instruction in entry.instructions:
            if isinstance(instruction, Dispatch):
                steps = [labels.get(step.operator, f"operator {step.operator}") for step in instruction.order.steps]
                events.append(_instant(entry.now_ns, f"order {instruction.order.id}", {"steps": steps}))
            elif isinstance(instruction, SetDropRatio):
                events.append(_counter(entry.now_ns, f"dropped before log {instruction.log}", instruction.ratio))
            elif isinstance(instruction, SetClassShare):
                events.append(_counter(entry.now_ns, f"share of class {instruction.class_id}", instruction.share))
            elif isinstance(instruction, Report):
                events.append(_instant(entry.now_ns, instruction.kind, {"message": instruction.message}))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _counter(now_ns: int, name: str, value: float) -> dict[str, Any]:
    return {"ph": "C", "pid": 1, "ts": now_ns / 1_000, "name": name, "args": {"value": value}}


def _instant(now_ns: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "pid": 1, "tid": _DECISIONS, "s": "t", "ts": now_ns / 1_000, "name": name, "args": args}


def _receipt(receipt: WorkReceipt, label: Callable[[OperatorId], str]) -> list[dict[str, Any]]:
    duration_ns = receipt.finished_ns - receipt.started_ns
    found = [_span(receipt.started_ns, duration_ns, _ORDERS, f"order {receipt.order}", {})]
    start_ns = receipt.started_ns
    for step in receipt.each_step():
        rows = {"rows": sum(count.rows for count in step.consumed), "out": sum(count.rows for count in step.produced)}
        found.append(_span(start_ns, step.cost_ns, _STEPS, label(step.operator), rows))
        start_ns += step.cost_ns
    return found


def _span(start_ns: int, duration_ns: int, tid: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": tid, "ts": start_ns / 1_000, "dur": duration_ns / 1_000, "name": name, "args": args}
