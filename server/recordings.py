"""Recording what a live server does: what arrives when, with the queries as they were measured; or what its scheduler decides.

Arrivals are noted where they enter, not where the scheduler hears of them: while it is busy, arrivals of a stream merge. A recording is
bounded; what comes after the bound is left out, and that is told. One of each kind at a time; whoever began it ends it, and it ends with
its connection.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from millstream.engine.graph import GraphDelta, LogId, OperatorId
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.events import Arrived, Event
from millstream.scheduler.limits import ORDER_BUDGET_NS, SCHEDULE_UNITS_LIVE
from millstream.scheduler.live import LiveScheduler
from millstream.scheduler.measured_graph import measured_deltas
from millstream.scheduler.simulation.recording import Recording, lines
from millstream.scheduler.story import Story
from millstream.scheduler.trace import chrome_trace
from millstream.server.version import PROGRAM

ROWS_MAX = 2_000_000
"""Rows of arrivals in one recording: a simulation of more takes hours, and this many take 32 MB at most."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a recording gave: the lines of a file, how long it was, and whether it was cut."""

    lines: list[str]
    seconds: float
    cut: bool


class ArrivalRecording:
    """Notes arrivals; `note` may be called from any thread."""

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
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

    def end(self, scheduler: LiveScheduler, now_ns: int) -> Told:
        """Return the recording as the lines of a file."""
        ended_ns = self.cut_ns if self.cut_ns is not None else now_ns
        span_ns = max(1, ended_ns - self.began_ns)
        noted = np.frombuffer(self._noted, np.int64).reshape(-1, 4)
        recording = Recording(about=self._about(scheduler, span_ns))
        rates: dict[LogId, float] = {}
        for log in np.unique(noted[:, 0]).tolist():
            part = noted[noted[:, 0] == log]
            times, rows = np.maximum(part[:, 1] - self.began_ns, 0), part[:, 2]
            recording.arrivals[LogId(log)] = np.sort(np.repeat(times, rows))
            recording.row_bytes[LogId(log)] = max(1, int(part[:, 3].sum() // rows.sum()))
            rates[LogId(log)] = float(rows.sum()) / span_ns
        recording.deltas = scheduler.ask(lambda core: _deltas(core, rates))
        known = {log for delta in recording.deltas for node in delta.operators for log in node.outputs}
        recording.arrivals = {log: times for log, times in recording.arrivals.items() if log in known}
        texts = [json.dumps(line, separators=(",", ":")) for line in lines(recording)]
        return Told(texts, span_ns / 1e9, self.cut_ns is not None)

    def _about(self, scheduler: LiveScheduler, span_ns: int) -> dict[str, Any]:
        """What simulate needs to put policies into the same place: see `simulation.recording`."""
        statistics = scheduler.statistics()
        return {
            "server": PROGRAM,
            "policy": statistics.policy,
            "seconds": round(span_ns / 1e9, 3),
            "workers": scheduler.workers,
            "schedule": SCHEDULE_UNITS_LIVE,
            "budget_ns": ORDER_BUDGET_NS,
            "order_ns": round(scheduler.scheduling_ns / max(1, statistics.orders)),
        }


def _deltas(core: SchedulerCore, rates: dict[LogId, float]) -> list[GraphDelta]:
    return measured_deltas(core.network, core.estimates, rates)


class DecisionRecording:
    """Keeps the last decisions as a story, and gives them as a trace for a trace viewer."""

    def __init__(self, scheduler: LiveScheduler, began_ns: int) -> None:
        self.began_ns = began_ns
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

    def end(self, scheduler: LiveScheduler, now_ns: int) -> Told:
        """Return the trace as one line of JSON."""
        labels = scheduler.ask(self._end)
        text = json.dumps(chrome_trace(self._story, labels), separators=(",", ":"))
        return Told([text], (now_ns - self.began_ns) / 1e9, self._story.cut)
