"""What happened and what was decided, in order: a bounded log that can be saved, read and replayed.

The core is a function of the events and the times they were handed over, so a story that was not cut gives the same instructions
again from a fresh core. Entries are written as JSON, one a line.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from millstream.engine.data import graph, work
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import OrderId, WorkReceipt
from millstream.scheduler import events as event_words
from millstream.scheduler import instructions as instruction_words
from millstream.scheduler import spec as spec_words
from millstream.scheduler.contracts import Ranking
from millstream.scheduler.errors import StoryError
from millstream.scheduler.events import Arrived, Event, QueryAdded, WorkDone
from millstream.scheduler.instructions import Dispatch, Instruction, Report, SetClassShare, SetDropRatio
from millstream.scheduler.limits import STORY_ENTRIES_MAX
from millstream.scheduler.view import UnitView, View

STORY_VERSION = 1


RIVALS_MAX = 256
"""Units that are looked at for the one that came next: deciding must not take much longer because somebody watches."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an order begins with its unit: the terms that policies read of it, the policy's number, and the best unit left waiting.

    The numbers are None where the policy takes turns, `rival` where nothing else could run.
    """

    order: OrderId
    winner: UnitView
    rank: float | None
    rival: UnitView | None
    rival_rank: float | None


def reason_for(order: OrderId, picked: Sequence[int], view: View, ranking: Ranking | None, now_ns: int) -> Reason:
    """Return the reason for an order that takes these units; to be asked before the order is made."""
    waiting = np.flatnonzero(view.units.available)
    waiting = waiting[~np.isin(waiting, picked)][:RIVALS_MAX]
    winner = view.unit(picked[0], now_ns)
    if ranking is None:
        rival = view.unit(int(waiting[0]), now_ns) if len(waiting) else None
        return Reason(order, winner, None, rival, None)
    numbers = ranking.rank(view.only(np.concatenate(([picked[0]], waiting))), now_ns)
    if not len(waiting):
        return Reason(order, winner, float(numbers[0]), None, None)
    best = int(np.argmax(numbers[1:]))
    return Reason(order, winner, float(numbers[0]), view.unit(int(waiting[best]), now_ns), float(numbers[1 + best]))


@dataclass(frozen=True, slots=True)
class StoryEntry:
    """One call of the core: when, what it was told, what it asked for, and why its orders took what they took."""

    now_ns: int
    events: tuple[Event, ...]
    instructions: tuple[Instruction, ...]
    reasons: tuple[Reason, ...] = ()


class Story:
    """The last entries, oldest first. `cut` tells whether older ones were dropped (then it cannot be replayed from nothing)."""

    def __init__(self, entries_max: int = STORY_ENTRIES_MAX) -> None:
        self._entries: deque[StoryEntry] = deque(maxlen=entries_max)
        self.told = 0

    @property
    def cut(self) -> bool:
        """Whether entries were dropped at the front."""
        return self.told > len(self._entries)

    def tell(self, now_ns: int, events: Sequence[Event], instructions: Sequence[Instruction], reasons: Sequence[Reason] = ()) -> None:
        """Add an entry."""
        self.told += 1
        self._entries.append(StoryEntry(now_ns, tuple(events), tuple(instructions), tuple(reasons)))

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
            story.tell(entry.now_ns, entry.events, entry.instructions, entry.reasons)
        return story


@functools.cache
def _words() -> dict[str, type[Any]]:
    """Return the kinds of records that may stand in a story, by name. To ask is to have all their methods written, so only reading does."""
    modules = (graph, work, event_words, instruction_words, spec_words)
    kinds = (item for module in modules for item in vars(module).items())
    return {name: kind for name, kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)} | {
        "StoryEntry": StoryEntry,
        "Reason": Reason,
        "UnitView": UnitView,
    }


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
        reasons = {reason.order: reason for reason in entry.reasons}
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
                told = _why(reasons.get(instruction.order.id))
                events.append(_instant(entry.now_ns, f"order {instruction.order.id}", {"steps": steps, **told}))
            elif isinstance(instruction, SetDropRatio):
                events.append(_counter(entry.now_ns, f"dropped before log {instruction.log}", instruction.ratio))
            elif isinstance(instruction, SetClassShare):
                events.append(_counter(entry.now_ns, f"share of class {instruction.class_id}", instruction.share))
            elif isinstance(instruction, Report):
                events.append(_instant(entry.now_ns, instruction.kind, {"message": instruction.message}))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _why(reason: Reason | None) -> dict[str, Any]:
    """Return what the trace says of a decision: the policy's number of the unit that won and its terms, and the same of the next."""
    if reason is None:
        return {}
    told: dict[str, Any] = {"rank": _plain(reason.rank), "terms": _terms(reason.winner)}
    if reason.rival is not None:
        told |= {"next_rank": _plain(reason.rival_rank), "next_terms": _terms(reason.rival)}
    return told


def _terms(unit: UnitView) -> dict[str, Any]:
    return {name: _plain(value) for name, value in dataclasses.asdict(unit).items()}


def _plain(value: Any) -> Any:
    """Return the value as JSON knows it: infinities become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _counter(now_ns: int, name: str, value: float) -> dict[str, Any]:
    return {"ph": "C", "pid": 1, "ts": now_ns / 1_000, "name": name, "args": {"value": value}}


def _instant(now_ns: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "pid": 1, "tid": _DECISIONS, "s": "t", "ts": now_ns / 1_000, "name": name, "args": args}


def _receipt(receipt: WorkReceipt, label: Callable[[OperatorId], str]) -> list[dict[str, Any]]:
    duration_ns = receipt.finished_ns - receipt.started_ns
    found = [_span(receipt.started_ns, duration_ns, _ORDERS, f"order {receipt.order}", {})]
    start_ns = receipt.started_ns
    for step in receipt.each_step():
        rows = {"rows": sum(count.rows for count in step.consumed), "out": step.rows_out}
        found.append(_span(start_ns, step.cost_ns, _STEPS, label(step.operator), rows))
        start_ns += step.cost_ns
    return found


def _span(start_ns: int, duration_ns: int, tid: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": tid, "ts": start_ns / 1_000, "dur": duration_ns / 1_000, "name": name, "args": args}
