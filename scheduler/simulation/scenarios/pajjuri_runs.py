"""Runs for Pajjuri 2004, chapter 6: one query of six operators over two streams under MavStream's policies."""

from __future__ import annotations

from typing import Any

from millstream.scheduler.simulation import arrivals
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.simulation.workloads import Workload, workload
from millstream.scheduler.trains import Train

FULL_RATE = 900.0
_LOAD_AT_FULL_RATE = 0.95
_QUANTUM = 20


def query(window: int, rate: float, builder: NetworkBuilder) -> tuple[Box, list[Any]]:
    """Return the root of the query: on either stream a select that halves it and a projection that narrows it, a join over a window of
    so many tuples in which a tuple finds one partner on the average, a projection on top."""
    sources = [builder.source("left"), builder.source("right")]
    sides = []
    for source in sources:
        select = Box(200_000.0, 0.5, source, size=100.0, label="select")
        # Frees less memory a second than the select, but more than half of it: segments part here, simplified segments do not.
        sides.append(Box(150_000.0, 1.0, select, size=100.0, size_out=70.0, label="project"))
    window_ns = round(window / rate * 1e9)
    join = Box(300_000.0, min(1.0, 2.0 / window), *sides, size=70.0, size_out=120.0, window_ns=window_ns, label="join")
    return Box(100_000.0, 1.0, join, size=120.0, size_out=80.0, label="top project"), sources


def _work(rate: float, window: int, times: list[arrivals.Times], scale: float) -> Workload:
    builder = NetworkBuilder()
    root, sources = query(window, rate, builder)
    delta = builder.query("six operators", root)
    made = workload("mavstream", builder, [delta], dict(zip(sources, times, strict=True)))
    made = made.with_cost_scaled(scale)
    return Workload(made.name, made.deltas, made.arrivals, row_bytes=dict.fromkeys(made.arrivals, 100))


# Expected work of a tuple: select, half a projection, half a join probe, half a result.
_WORK_S = 200e-6 + 0.5 * 150e-6 + 0.5 * 300e-6 + 0.5 * 100e-6


def steady(policy: str, rate: float, window: int, windows: int, seed: int, traffic: str) -> dict[str, Any]:
    """A steady rate on both streams; costs such that 900 tuples a second on each are 95% of what the machine can do."""
    count = window * windows
    if traffic == "poisson":
        times = [arrivals.poisson(rate, count, 2 * seed + side) for side in range(2)]
    else:
        times = [arrivals.trace(traffic, count, rate=rate, skip=(side * 23_000) % (54_000 - count)) for side in range(2)]
    work = _work(rate, window, times, _LOAD_AT_FULL_RATE / (2 * FULL_RATE * _WORK_S))
    outcome = simulate(work, policy, seed=seed, settings=RunSettings(train=Train(count=_QUANTUM), sample_ns=20_000_000))
    found = outcome.summary()
    per_second = outcome.per_second()
    found["outputs_per_s"] = per_second.tolist()
    return found


def burst(policy: str, window: int, windows: int, seed: int, quick: int) -> dict[str, Any]:
    """40 tuples a second with two bursts of 80 (150 to 200 s and 300 to 350 s); 60 a second is what the machine can do.

    `quick` divides all times, for runs on a smaller scale.
    """
    pieces = [(40.0, 150.0 / quick), (80.0, 50.0 / quick), (40.0, 100.0 / quick), (80.0, 50.0 / quick), (40.0, 1.0)]
    times = [arrivals.steps(pieces, 2 * seed + side, count=window * windows) for side in range(2)]
    work = _work(40.0, window, times, 1.0 / (2 * 60.0 * _WORK_S))
    outcome = simulate(work, policy, seed=seed, settings=RunSettings(train=Train(count=_QUANTUM), sample_ns=1_000_000_000 // quick))
    found = outcome.summary()
    found["at_s"] = (outcome.sample_ns / 1e9).tolist()
    found["bytes"] = outcome.sample_bytes.tolist()
    found["memory_deviation"] = float(outcome.sample_bytes.std())
    return found
