"""SHOW DECISIONS: what the run-time optimiser did, why, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.scheduler.optimiser.contract import Decision, Observation
from millstream.server.host.live_runtime import LiveRuntime
from millstream.server.results.outcome import Outcome, table

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost

NS_PER_US = 1_000
NS_PER_MS = 1e6


def show_decisions(host: EngineHost) -> Outcome:
    """A row a decision, the oldest first. Latencies and memory are those of the query for whose sake it was taken."""
    columns = [("number", "BIGINT"), ("time", "TIMESTAMP"), ("query", "TEXT"), ("action", "TEXT"), ("reason", "TEXT")]
    columns += [("latency_ms_before", "DOUBLE"), ("memory_bytes_before", "DOUBLE"), ("distance_before", "DOUBLE")]
    columns += [("latency_ms_after", "DOUBLE"), ("memory_bytes_after", "DOUBLE"), ("distance_after", "DOUBLE")]
    columns += [("outcome", "TEXT"), ("undone", "BOOLEAN"), ("note", "TEXT")]
    runtime, optimiser = host.runtime, host.optimiser
    if optimiser is None or not isinstance(runtime, LiveRuntime):
        return table(columns, [])
    shift_us = runtime.now_us() - runtime.clock_ns() // NS_PER_US
    return table(columns, [_row(one, shift_us) for one in optimiser.decisions])


def _row(one: Decision, shift_us: int) -> tuple[object, ...]:
    before, after = _observed(one.observed_before), _observed(one.observed_after)
    undone = one.outcome.value == "undone"
    head = (one.number, one.at_ns // NS_PER_US + shift_us, one.query, str(one.action), one.reason)
    return (*head, *before, one.distance_before, *after, one.distance_after, one.outcome.value, undone, one.note or None)


def _observed(seen: Observation | None) -> tuple[float | None, float | None]:
    if seen is None:
        return None, None
    return None if seen.latency_ns is None else seen.latency_ns / NS_PER_MS, seen.memory_bytes
