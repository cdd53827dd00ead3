"""The latency that is foretold against the latency of a run in virtual time: the mean within a factor of two, and in its interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from millstream.engine.data.graph import OperatorId
from millstream.scheduler.drivers.live import live_settings
from millstream.scheduler.optimiser.prediction import class_loads, works_of_running
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

ROWS = 12_000  # of one query, so that a run is short


@pytest.mark.parametrize(("policy", "load"), [("fcfs", 0.1), ("fcfs", 0.7), ("round-robin", 0.4)])
@pytest.mark.parametrize(("batch", "queries", "call_ns"), [(1, 5, 20_000), (100, 8, 50_000), (240, 3, 0)])
def test_a_row_waits_behind_its_batch_and_what_it_finds(batch: int, queries: int, call_ns: int, load: float, policy: str) -> None:
    builder, draw = NetworkBuilder(), np.random.default_rng(7)
    source, other = builder.source("s"), builder.source("t")
    costs = [2_000 * (1 + number % 4) for number in range(queries)]
    deltas = [builder.query(f"q{number}", Box(cost, 1.0, source, call_ns=call_ns)) for number, cost in enumerate(costs)]
    deltas.append(builder.query("elsewhere", Box(5_000, 1.0, other)))
    work_ns = sum(batch * cost + call_ns for cost in costs)
    settings = replace(live_settings(1), declared=True)
    world = World(policy, deltas, builder=builder, settings=settings)
    span_ns = min(1_000, ROWS // batch) * work_ns / (0.8 * load)
    for stream, part, each_ns, rows in ((source, 0.8, work_ns, batch), (other, 0.2, 100 * 5_000, 100)):
        gaps = draw.exponential(each_ns / (part * load), int(span_ns * part * load / each_ns))
        for at in np.cumsum(gaps).astype(np.int64).tolist():
            world.arrive(stream, at, rows=rows)
    world.run()
    core = world.core
    core.estimates.refresh(force=True)
    ids = [builder.operator(one) for one in (source, other)]
    rates = {ids[0]: batch * 0.8 * load / work_ns, ids[1]: 0.2 * load / 5_000}
    batches = {ids[0]: float(batch), ids[1]: 100.0}
    share = sum(class_loads(core.network, core.estimates, rates).values())
    assert 0.7 * load < share < 1.1 * load  # rows that wait together share a call
    waits: dict[OperatorId, list[float]] = {}
    for one in world.emissions:
        for arrival, rows in zip(one.arrivals_ns, one.counts, strict=True):
            waits.setdefault(one.operator, []).extend([one.finished_ns - arrival] * rows)
    foretold, found = [], []
    works = works_of_running(core.network, core.estimates, rates, batches)
    for delta in deltas[:-1]:
        mean, low, high = works[delta.query.id].latency_ns(share)
        measured = float(np.mean(waits[delta.query.root]))
        assert 0.4 * low <= measured <= 1.1 * high  # rows at the head of a train leave before it has gone through
        foretold.append(mean)
        found.append(measured)
    assert 0.5 <= np.mean(foretold) / np.mean(found) <= 2.0
