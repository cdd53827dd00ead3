"""Runs for Pajjuri 2004, chapter 6: one query of six operators over two streams under MavStream's policies."""

from __future__ import annotations

from typing import Any

from millstream.scheduler.simulation import arrivals
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.simulation.workloads import Workload, workload
from millstream.scheduler.spec import PolicySpec

CAPACITY = 60.0
"""Tuples a second on each stream that the machine can do at windows of 1000. The thesis's memory rises as long as tuples come, at 40 a
second and windows of 2000, and falls only after (6.5); a join that looks through its window takes twice the time at twice the window, so
capacity lies below 80 at windows of 1000. That outputs vary by 237 a second at 100 tuples a second (figure 6.6) says the same."""

QUANTUM_MS = 10.0
"""The thesis gives every operator a time of "say 10" units (5.1.2); its scheduler thread waits by the millisecond."""


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


def _scale(capacity: float) -> float:
    """Return the factor on all costs at which so many tuples a second on each stream are all the machine can do."""
    return 1.0 / (2 * capacity * _WORK_S)


def _policy(policy: str, quantum_ms: float) -> str:
    return str(PolicySpec.parse(policy).with_option("quantum", quantum_ms))


def steady(
    policy: str,
    rate: float,
    window: int,
    windows: int,
    seed: int,
    traffic: str,
    quantum_ms: float = QUANTUM_MS,
    capacity: float = CAPACITY,
) -> dict[str, Any]:
    """A steady rate on both streams; memory and outputs are looked at every second."""
    count = window * windows
    if traffic == "poisson":
        times = [arrivals.poisson(rate, count, 2 * seed + side) for side in range(2)]
    elif traffic == "on-off":
        times = [arrivals.on_off(rate, count, 2 * seed + side) for side in range(2)]
    else:
        times = [arrivals.trace(traffic, count, rate=rate, skip=(side * 23_000) % (54_000 - count)) for side in range(2)]
    work = _work(rate, window, times, _scale(capacity))
    outcome = simulate(work, _policy(policy, quantum_ms), seed=seed, settings=RunSettings(adapt=True, sample_ns=1_000_000_000))
    found = outcome.summary()
    found["outputs_per_s"] = outcome.per_second().tolist()
    return found


def burst(policy: str, window: int, windows: int, seed: int, quick: int) -> dict[str, Any]:
    """40 tuples a second with two bursts of 80 (150 to 200 s and 300 to 350 s) on the same machine, windows twice as long.

    `quick` divides all times, for runs on a smaller scale.
    """
    pieces = [(40.0, 150.0 / quick), (80.0, 50.0 / quick), (40.0, 100.0 / quick), (80.0, 50.0 / quick), (40.0, 1.0)]
    times = [arrivals.steps(pieces, 2 * seed + side, count=window * windows) for side in range(2)]
    work = _work(40.0, window, times, _scale(CAPACITY / 2))
    settings = RunSettings(adapt=True, sample_ns=1_000_000_000 // quick)
    outcome = simulate(work, _policy(policy, QUANTUM_MS / quick), seed=seed, settings=settings)
    found = outcome.summary()
    found["at_s"] = (outcome.sample_ns / 1e9).tolist()
    found["bytes"] = outcome.sample_bytes.tolist()
    found["memory_deviation"] = float(outcome.sample_bytes.std())
    return found
