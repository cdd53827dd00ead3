"""What happened and what was decided, in order: a bounded log that can be saved, read and replayed.

The core is a function of the events and the times they were handed over, so a story that was not cut gives the same instructions
again from a fresh core. Entries are written as JSON, one a line.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from millstream.engine.data import graph, work
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import WorkReceipt
from millstream.scheduler import events as event_words
from millstream.scheduler import instructions as instruction_words
from millstream.scheduler import spec as spec_words
from millstream.scheduler.errors import StoryError
from millstream.scheduler.events import Arrived, Event, QueryAdded, WorkDone
from millstream.scheduler.instructions import Dispatch, Instruction, Report, SetClassShare, SetDropRatio
from millstream.scheduler.limits import STORY_ENTRIES_MAX

STORY_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoryEntry:
    """One call of the core: when, what it was told, what it asked for."""

    now_ns: int
    events: tuple[Event, ...]
    instructions: tuple[Instruction, ...]


class Story:
    """The last entries, oldest first. `cut` tells whether older ones were dropped (then it cannot be replayed from nothing)."""

    def __init__(self, entries_max: int = STORY_ENTRIES_MAX) -> None:
        self._entries: deque[StoryEntry] = deque(maxlen=entries_max)
        self.told = 0

    @property
    def cut(self) -> bool:
        """Whether entries were dropped at the front."""
        return self.told > len(self._entries)

    def tell(self, now_ns: int, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Add an entry."""
        self.told += 1
        self._entries.append(StoryEntry(now_ns, tuple(events), tuple(instructions)))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[StoryEntry]:
        return iter(self._entries)

    def save(self, file: IO[str]) -> None:
        """Write a heading line and one line an entry."""
        file.write(json.dumps({"story": STORY_VERSION, "cut": self.cut, "entries": len(self)}) + "\n")
        for entry in self._entries:
            file.write(json.dumps(_encode(entry), separators=(",", ":")) + "\n")

    @classmethod
    def load(cls, lines: Iterable[str]) -> Story:
        """Read what `save` wrote; raises `StoryError` with the line's number."""
        story = cls()
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
                if number == 1:
                    _check_heading(value)
                    continue
                entry = _decode(value)
            except (ValueError, KeyError, TypeError) as problem:
                raise StoryError(f"line {number} of the story cannot be read: {problem}") from problem
            if not isinstance(entry, StoryEntry):
                raise StoryError(f"line {number} of the story is not an entry")
            story.tell(entry.now_ns, entry.events, entry.instructions)
        return story


@functools.cache
def _words() -> dict[str, type[Any]]:
    """Return the kinds of records that may stand in a story, by name. To ask is to have all their methods written, so only reading does."""
    modules = (graph, work, event_words, instruction_words, spec_words)
    kinds = (item for module in modules for item in vars(module).items())
    return {name: kind for name, kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)} | {"StoryEntry": StoryEntry}


def _check_heading(value: Any) -> None:
    if not isinstance(value, dict) or value.get("story") != STORY_VERSION:
        raise StoryError(f"this is not a story of version {STORY_VERSION}")
    if value.get("cut"):
        raise StoryError("the story was cut at its beginning and cannot be replayed", hint="record with a larger limit")


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: _encode(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [_encode(one) for one in value]
    if isinstance(value, array):
        return value.tolist()
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(one) for one in value)
    if isinstance(value, dict):
        fields = {name: _decode(one) for name, one in value.items() if name != "is"}
        return _words()[value["is"]](**fields)
    return value


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
