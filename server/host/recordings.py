"""Recording what a live server does: what arrives when, with the queries as they were measured; or what its scheduler decides.

Arrivals are noted where they enter, not where the scheduler hears of them: while it is busy, arrivals of a stream merge. A recording is
bounded; what comes after the bound is left out, and that is told. One of each kind at a time; whoever began it ends it, and it ends with
its connection. What the ring of counts has kept (load_ring.py) becomes the same text.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from millstream.engine.data.arrays import Int64Array, distinct
from millstream.engine.data.graph import LogId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.runtime.network import Network
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.drivers.live import LiveScheduler, Spent
from millstream.scheduler.events import Arrived, Event
from millstream.scheduler.limits import ORDER_BUDGET_NS, SCHEDULE_UNITS_LIVE
from millstream.scheduler.measured_graph import OperatorActivity, measured_deltas
from millstream.scheduler.story import Story, chrome_trace
from millstream.server.version import program

if TYPE_CHECKING:
    from millstream.server.host.load_ring import LoadRing, Mark

ROWS_MAX = 2_000_000
"""Rows of arrivals in one recording: a simulation of more takes hours, and this many take 32 MB at most."""


@dataclass(frozen=True, slots=True)
class RecordingText:
    """What a recording gave: the lines of a file, how long it was, and whether it was cut."""

    lines: list[str]
    seconds: float
    cut: bool


def done(network: Network) -> dict[OperatorId, OperatorActivity]:
    """Return what each operator has done since it was made."""
    found = {}
    for operator in list(network.operators.values()):
        did = operator.statistics
        made = {log.id: log.rows_total for log in operator.outputs}
        found[operator.id] = OperatorActivity(did.calls, did.rows_in, did.cost_ns, made)
    return found


def marked(scheduler: LiveScheduler, network: Network) -> Mark:
    """Return what scheduler and operators have done up to now."""
    from millstream.server.host.load_ring import Mark, packed

    spent = scheduler.spent()
    return Mark(spent.at_ns, spent, packed(done(network)))


class Dispatching:
    """What an order costs beside its operators, on the average, from a time on: `spent` and `did` are what had been done by then.

    One worker runs on the scheduler's thread: all its time but that in operators and in waiting, and at least that in deciding, which also
    the threads that bring rows do. With several, running goes on beside it and only deciding counts.
    """

    def __init__(self, scheduler: LiveScheduler, network: Network, spent: Spent, did: Mapping[OperatorId, OperatorActivity]) -> None:
        self._scheduler = scheduler
        self._network = network
        self._before, self._did_before = spent, did

    def did(self) -> dict[OperatorId, OperatorActivity]:
        """Return what each operator did up to now."""
        nothing = OperatorActivity(0, 0, 0, {})
        return {one: now.since(self._did_before.get(one, nothing)) for one, now in done(self._network).items()}

    def order_ns(self) -> int:
        """Return it up to now."""
        before, after = self._before, self._scheduler.spent()
        spent_ns = after.deciding_ns - before.deciding_ns
        if self._scheduler.workers == 1:
            cost_ns = sum(one.cost_ns for one in self.did().values())
            spent_ns = max(spent_ns, after.at_ns - before.at_ns - (after.waiting_ns - before.waiting_ns) - cost_ns)
        return spent_ns // max(1, after.orders - before.orders)


class ArrivalRecording:
    """Notes arrivals; `note` may be called from any thread."""

    def __init__(self, scheduler: LiveScheduler, network: Network, began_ns: int) -> None:
        self.began_ns = began_ns
        self._scheduler = scheduler
        self._dispatching = Dispatching(scheduler, network, scheduler.spent(), done(network))
        self.cut_ns: int | None = None
        self._noted = array("q")
        self._rows = 0

    def note(self, events: Sequence[Event]) -> None:
        """Note what was posted to the scheduler."""
        for event in events:
            if type(event) is Arrived and event.rows and self.cut_ns is None:
                self._rows += event.rows
                if self._rows > ROWS_MAX:
                    self.cut_ns = event.arrival_ns
                    return
                self._noted.extend((event.log, event.arrival_ns, event.rows, event.bytes))

    def end(self, now_ns: int) -> RecordingText:
        """Return the recording as the lines of a file."""
        ended_ns = self.cut_ns if self.cut_ns is not None else now_ns
        noted = np.frombuffer(self._noted, np.int64).reshape(-1, 4)
        return recorded(self._scheduler, self._dispatching, noted, (self.began_ns, ended_ns), cut=self.cut_ns is not None)


def recorded_lately(ring: LoadRing, scheduler: LiveScheduler, network: Network, now_ns: int, asked_ns: int) -> RecordingText:
    """Return what came in the last `asked_ns` as a recording; it may begin a little earlier (`LoadRing.last`)."""
    load = ring.last(now_ns, asked_ns, ROWS_MAX)
    dispatching = Dispatching(scheduler, network, load.mark.spent, load.mark.did)
    return recorded(scheduler, dispatching, load.arrivals, (load.began_ns, now_ns), cut=load.cut)


def recorded(
    scheduler: LiveScheduler, dispatching: Dispatching, noted: Int64Array, between_ns: tuple[int, int], *, cut: bool
) -> RecordingText:
    """Return a recording of what came between two times: `noted` has log, time in ns, rows and bytes of each train."""
    from millstream.scheduler.simulation.recording import Recording, lines  # not at the start of every server

    began_ns, span_ns = between_ns[0], max(1, between_ns[1] - between_ns[0])
    recording = Recording(about=_about(scheduler, dispatching, span_ns))
    rates: dict[LogId, float] = {}
    for log in distinct(noted[:, 0]).tolist():
        part = noted[noted[:, 0] == log]
        times, rows = np.maximum(part[:, 1] - began_ns, 0), part[:, 2]
        recording.arrivals[LogId(log)] = np.sort(np.repeat(times, rows))
        recording.row_bytes[LogId(log)] = max(1, int(part[:, 3].sum() // rows.sum()))
        rates[LogId(log)] = float(rows.sum()) / span_ns
    recording.deltas = scheduler.ask(lambda core: measured_deltas(core.network, core.estimates, rates, dispatching.did(), span_ns))
    known = {log for delta in recording.deltas for node in delta.operators for log in node.outputs}
    recording.arrivals = {log: times for log, times in recording.arrivals.items() if log in known}
    texts = [json.dumps(line, separators=(",", ":")) for line in lines(recording)]
    return RecordingText(texts, span_ns / 1e9, cut)


def _about(scheduler: LiveScheduler, dispatching: Dispatching, span_ns: int) -> dict[str, Any]:
    """What simulate needs to put policies into the same place: see `simulation.recording`."""
    return {
        "server": program(),
        "policy": scheduler.statistics().policy,
        "seconds": round(span_ns / 1e9, 3),
        "workers": scheduler.workers,
        "schedule": SCHEDULE_UNITS_LIVE,
        "budget_ns": ORDER_BUDGET_NS,
        "order_ns": dispatching.order_ns(),
    }


class DecisionRecording:
    """Keeps the last decisions as a story, and gives them as a trace for a trace viewer."""

    def __init__(self, scheduler: LiveScheduler, began_ns: int) -> None:
        self.began_ns = began_ns
        self._scheduler = scheduler
        self._story = Story()
        scheduler.ask(self._begin)

    def _begin(self, core: SchedulerCore) -> None:
        core.story = self._story

    def _end(self, core: SchedulerCore) -> dict[OperatorId, str]:
        core.story = None
        network = core.network
        labels: dict[OperatorId, str] = {}
        for query in network.queries.values():
            for operator in query.operators:
                node = network.node(network.operators.slot_of[operator])
                labels.setdefault(operator, f"{query.name}: {node.label or node.kind} {operator}")
        return labels

    def end(self, now_ns: int) -> RecordingText:
        """Return the trace as one line of JSON."""
        labels = self._scheduler.ask(self._end)
        text = json.dumps(chrome_trace(self._story, labels), separators=(",", ":"))
        return RecordingText([text], (now_ns - self.began_ns) / 1e9, self._story.cut)
