"""The express lane decides what one order at a time decides, and leaves the ledger in order."""

from __future__ import annotations

import numpy as np
import pytest
from millstream.scheduler.drivers.virtual import DecisionCost
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation import arrivals, generators
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.quick_selectors import MarkedTurnsSelector
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.simulation.workloads import Workload, utilisation, workload

POLICIES = [
    "round-robin",
    "round-robin:order=random,seed=2",
    "rr",
    "fcfs",
    "srpt",
    "hr",
    "hnr",
    "lsf",
    "brt",
    "bsd-naive",
    "bsd-log",
    "bsd-uniform:clusters=5",
    "chain",
    "fas",
    "edf",
    "edf-hr",
    "path-capacity",
    "segment",
    "simplified-segment",
    "superbox",
    "rb",
    "ml",
    "hnr:level=operator",
    "bsd-naive:level=operator",
    "rr:level=operator",
    "lsf:selector=threshold",
    "hr:selector=scan",
    "slope-slack-push-through",
    "fixed-priority",
]


def sample(queries: int = 12, tuples: int = 120, load: float = 0.95, seed: int = 5) -> Workload:
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = generators.select_join_project(builder, [source], queries, seed)
    return workload("sample", builder, deltas, {source: arrivals.trace("dec-pkt-1", tuples)}).at_utilisation(load)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_lane_gives_what_one_order_at_a_time_gives(policy: str) -> None:
    work = sample()
    fast = simulate(work, policy, seed=3)
    slow = simulate(work, policy, seed=3, settings=RunSettings(lane=False))
    for name in ("query", "arrival_ns", "finished_ns"):
        assert (getattr(fast, name) == getattr(slow, name)).all(), name
    assert len(fast.query) > 300
    assert fast.busy_ns == slow.busy_ns
    assert fast.memory()[0] == pytest.approx(slow.memory()[0], rel=0.1)
    assert fast.waiting == slow.waiting == 0


def test_two_streams_are_served_the_same_way() -> None:
    builder = NetworkBuilder()
    sources = [builder.source("a"), builder.source("b")]
    deltas = generators.select_join_project(builder, sources, 10, 2)
    times = {source: arrivals.poisson(100.0, 80, seed) for seed, source in enumerate(sources)}
    work = workload("two", builder, deltas, times).at_utilisation(0.9)
    for policy in ("hnr", "bsd-naive", "fas", "fcfs"):
        fast, slow = (simulate(work, policy, settings=RunSettings(lane=lane)) for lane in (True, False))
        assert fast.finished_ns.tolist() == slow.finished_ns.tolist()


def test_charges_for_deciding_delay_results_and_are_counted() -> None:
    work = sample(load=0.6)
    free, charged = (
        simulate(work, "bsd-naive", settings=RunSettings(charge=charge)) for charge in (DecisionCost(), DecisionCost(evaluation_ns=20_000))
    )
    assert free.scheduling_ns == 0
    assert charged.scheduling_ns > 0
    assert charged.response_ns.mean() > free.response_ns.mean()
    assert charged.notes["evaluations"] > 0


def test_estimates_follow_what_is_measured_in_the_lane() -> None:
    work = sample(queries=6, tuples=400)
    outcome = simulate(work, "hnr", settings=RunSettings(adapt=True))
    assert len(outcome.query) == len(simulate(work, "hnr").query)


def test_a_network_that_is_no_set_of_paths_goes_one_order_at_a_time() -> None:
    builder = NetworkBuilder()
    left, right = builder.source("l"), builder.source("r")
    deltas = generators.window_joins(builder, left, right, 3, 1)
    times = {left: arrivals.poisson(1.0, 40, 1), right: arrivals.poisson(1.0, 40, 2)}
    work = workload("joins", builder, deltas, times).at_utilisation(0.5)
    assert len(simulate(work, "hnr", settings=RunSettings(adapt=True)).query) > 0
    with pytest.raises(SimulationError, match="not part of a simple path"):
        simulate(work, "hnr", settings=RunSettings(keep_dropped=True))


def test_all_tuples_can_be_kept_though_they_are_dropped() -> None:
    work = sample()
    kept = simulate(work, "hr", settings=RunSettings(keep_dropped=True))
    assert len(kept.query) == 12 * 120


def test_utilisation_is_what_the_run_shows() -> None:
    work = sample(queries=30, tuples=2_000, load=0.5)
    assert utilisation(work) == pytest.approx(0.5)
    outcome = simulate(work, "fcfs")
    assert outcome.busy_ns / work.span_ns == pytest.approx(0.5, rel=0.05)


def test_a_join_is_counted_in_the_utilisation() -> None:
    builder = NetworkBuilder()
    left, right = builder.source("l"), builder.source("r")
    join = Box(1e6, 0.5, left, right, window_ns=2_000_000_000)
    delta = builder.query("q", Box(2e6, 1.0, join))
    times = {left: arrivals.regular(10.0, 1_000), right: arrivals.regular(10.0, 1_000)}
    work = workload("join", builder, [delta], times)
    # 20 probes a second of 1 ms; 0.5 of 2 * 10 * 10 * 2 pairs a second, each 2 ms on top.
    assert utilisation(work) == pytest.approx(20 * 1e-3 + 0.5 * 400 * 2e-3)


def test_a_join_that_lets_all_pairs_through_joins_them_all_however_many_there_are() -> None:
    builder = NetworkBuilder()
    left, right = builder.source("l"), builder.source("r")
    delta = builder.query("q", Box(1e3, 1.0, Box(1e3, 1.0, left, right, window_ns=10_000_000_000)))
    times = {left: arrivals.regular(100.0, 100), right: arrivals.regular(100.0, 100)}
    assert len(simulate(workload("join", builder, [delta], times), "fcfs").query) == 100 * 100


def test_marked_turns_go_round() -> None:
    selector = MarkedTurnsSelector()

    class Units:
        available = np.array([True, False, True, True])
        count = 4

    class View:
        units = Units()

    selector.reset(View(), 0)  # type: ignore[arg-type]
    assert [selector.pick(View(), 0, 1)[0] for _ in range(4)] == [0, 2, 3, 0]  # type: ignore[arg-type]
    assert selector.pick(View(), 0, 3) == [2, 3, 0]  # type: ignore[arg-type]
