"""Runs for Carney 2005, chapters 3 and 4: universal boxes under the Aurora schedulers. Plain values in and out; the store keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from millstream.scheduler.drivers.virtual import DecisionCost
from millstream.scheduler.qos import late_from_ns
from millstream.scheduler.simulation import arrivals, generators
from millstream.scheduler.simulation.networks import Asked, NetworkBuilder, SimulatedSource
from millstream.scheduler.simulation.outcome import RunOutcome
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.simulation.workloads import Workload, utilisation, workload
from millstream.scheduler.trains import TrainShape

CALL_NS = 16_000
"""What a box call costs beside its tuples. Calibrated once against c-10000: 10,000 boxes of 5 µs sustained 4,500 tuples a second with 4%
of overhead for scheduling, so a box took 1 s / 45,000 less 4% less 5 µs."""

SCHEDULED_NS = 550_000
"""Chapter 3: what a scheduled box costs beside its work. With boxes of 0.55 ms on the average, superboxes saved almost half of the time
(3.4.5), and what they save is one trip to the scheduler and the storage manager for each box (3.3.1). Chapter 4 bounds the same cost: its
network of 0.1 ms boxes holds 1,200 tuples a second, which leaves at most 67 µs a box. The chapters differ, so each has its own."""

MOVE_NS = 8_900
RUNNABLE_NS = {"fixed-priority": 17_300, "slope-slack": 40_600, "user": 40_600}
NETWORK_NS = {"fixed-priority": 2_170, "slope-slack": 4_630, "user": 4_630}
"""Chapter 4: what deciding costs. No one linear charge gives all of its results, so there are two.

R   section 4.4 sorts the runnable boxes: RUNNABLE_NS for each box that can run when a decision is made, calibrated on the three overheads
    of c-10000 (bucketing 4, fixed priority 7.5, slope-slack 16%)
S   the least by which c-size's curves can fall at schedules of one box: NETWORK_NS a decision for each box of the network that has a
    priority

A policy of one's own computes every rank at every decision, as slope-slack does. Buckets are spared both, and turns need no search: MOVE_NS
for a box that moves or has its turn."""


def kind_of(policy: str) -> str:
    """Return the policy without its options and without pushing through."""
    return policy.split(":", maxsplit=1)[0].removesuffix("-push-through")


def charge(policy: str, boxes: int, reading: str) -> DecisionCost:
    """Return what deciding costs under a policy in a network of so many boxes, by charge R or S, or nothing (`free`)."""
    kind = kind_of(policy)
    if reading == "free":
        return DecisionCost()
    if kind not in RUNNABLE_NS:
        return DecisionCost(move_ns=MOVE_NS)
    return DecisionCost(evaluation_ns=RUNNABLE_NS[kind]) if reading == "R" else DecisionCost(order_ns=NETWORK_NS[kind] * boxes)


def counted(policy: str, reading: str) -> str:
    """Return the policy in the form that counts what it is charged for: of runnable boxes each is looked at."""
    if reading != "R" or kind_of(policy) != "fixed-priority":
        return policy
    return policy + ("," if ":" in policy else ":") + "selector=scan"


def ranked(policy: str, applications: int, depth: int) -> int:
    """Return how many boxes of straight applications have a priority: all, or those at the inputs that are pushed through from."""
    return applications if "push-through" in policy else applications * depth


def graph(deadline_ms: float) -> tuple[tuple[float, float], ...]:
    """Return the graph of a deadline: full utility until it, none 0.1 ms later."""
    return ((0.0, 1.0), (deadline_ms / 1e3, 1.0), (deadline_ms / 1e3 + 1e-4, 0.0))


def spread(sources: Sequence[SimulatedSource], rate: float, tuples: int, seed: int) -> dict[SimulatedSource, arrivals.Times]:
    """Return a Poisson stream of `rate` a second, each tuple at an input chosen at random."""
    times = arrivals.poisson(rate, tuples, seed)
    return deal(sources, times, seed)


def deal(sources: Sequence[SimulatedSource], times: arrivals.Times, seed: int) -> dict[SimulatedSource, arrivals.Times]:
    """Send each tuple to an input chosen at random."""
    chosen = np.random.default_rng(seed + 104_729).integers(0, len(sources), len(times))
    return {source: times[chosen == index] for index, source in enumerate(sources)}


def chain_network(
    applications: int, depth: int, cost_us: float, deadlines_ms: Sequence[float], call_ns: float
) -> tuple[NetworkBuilder, list[SimulatedSource], list[Any]]:
    """Return straight applications, one input each, deadlines going round."""
    builder = NetworkBuilder()
    sources = [builder.source(f"i{index}") for index in range(applications)]
    asked = [Asked(qos=graph(deadline), deadline_ns=round(deadline * 1e6)) for deadline in deadlines_ms]
    return builder, sources, generators.chains(builder, sources, depth, cost_us * 1e3, asked=asked, call_ns=call_ns)


def facts(outcome: RunOutcome) -> dict[str, Any]:
    """Return what the QoS experiments look at."""
    found = outcome.summary()
    utility = outcome.utility
    found["qos"] = outcome.average_by_application(utility)
    found["waiting"] = float(outcome.waiting)
    return found


def chains(
    policy: str,
    applications: int,
    depth: int,
    cost_us: float,
    deadlines_ms: list[float],
    rate: float,
    tuples: int,
    seed: int,
    reading: str = "R",
) -> dict[str, Any]:
    """Straight applications under a steady stream (tables 4.2 and 4.4)."""
    builder, sources, deltas = chain_network(applications, depth, cost_us, deadlines_ms, CALL_NS)
    work = workload("chains", builder, deltas, spread(sources, rate, tuples, seed))
    settings = RunSettings(train=TrainShape(share=1.0), charge=charge(policy, ranked(policy, applications, depth), reading))
    return {**facts(simulate(work, counted(policy, reading), seed=seed, settings=settings)), "load": utilisation(work)}


def trees(
    policy: str,
    applications: int,
    depth: int,
    fan_out: int,
    deadlines_ms: list[float],
    cost_us: float,
    rate: float,
    tuples: int,
    seed: int,
    reading: str = "R",
) -> dict[str, Any]:
    """Applications that are trees, their leaves' inputs fed alike (section 4.7)."""
    builder = NetworkBuilder()
    deltas, sources = [], []
    for index in range(applications):
        asked = Asked(qos=graph(deadlines_ms[index % len(deadlines_ms)]))
        delta, own = generators.tree(builder, f"a{index}", depth, fan_out, lambda: cost_us * 1e3, asked=asked, call_ns=CALL_NS)
        deltas.append(delta)
        sources += own
    work = workload("trees", builder, deltas, spread(sources, rate, tuples, seed))
    settings = RunSettings(train=TrainShape(share=1.0), charge=charge(policy, len(sources), reading))
    return facts(simulate(work, counted(policy, reading), seed=seed, settings=settings))


def superbox(
    policy: str,
    capacity: float,
    trees: int,
    depth: int,
    fan_out: int,
    tuples: int,
    seed: int,
    burst: int = 1,
    train: float = 1.0,
    cost_us: float | None = None,
    call_ns: int = CALL_NS,
    selectivity: float | None = None,
    charged: bool = True,
    in_turn: bool = False,
) -> dict[str, Any]:
    """Application trees at a share of the ideal capacity, evenly spaced tuples (section 3.4).

    Costs are drawn from 0.1 to 1 ms unless one is given; bursts gather tuples of one input. Each unit that
    is scheduled, a box or a superbox, costs `SCHEDULED_NS`.
    """
    work = tree_workload(capacity, trees, depth, fan_out, tuples, seed, burst, cost_us, call_ns, selectivity, in_turn=in_turn)
    settings = RunSettings(
        train=TrainShape(count=1) if train == 0.0 else TrainShape(share=train),
        charge=DecisionCost(order_ns=SCHEDULED_NS) if charged else DecisionCost(),
        sample_ns=None,
    )
    outcome = simulate(work, policy, seed=seed, settings=settings)
    useful = sum(node.cost_ns * rows for node, rows in zip([n for n in work.nodes if n.inputs], _expected_rows(work), strict=True))
    total = outcome.busy_ns + outcome.scheduling_ns
    calls = outcome.busy_ns - useful
    return {
        **outcome.summary(),
        "useful_ns": useful,
        "call_ns": calls,
        "total_ns": float(total),
        "scheduling_ns": float(outcome.scheduling_ns),
    }


def _expected_rows(work: Workload) -> list[float]:
    """Return how many tuples each box takes (exact for selectivity 1)."""
    made: dict[int, float] = {log: float(len(times)) for log, times in work.arrivals.items()}
    edge_log = {edge.id: edge.log for delta in work.deltas for edge in delta.edges}
    rows = []
    for node in work.nodes:
        if node.inputs:
            rows.append(sum(made.get(edge_log[edge], 0.0) for edge in node.inputs))
            for log in node.outputs:
                made[log] = rows[-1] * node.selectivity
    return rows


def tree_workload(
    capacity: float,
    trees: int,
    depth: int,
    fan_out: int,
    tuples: int,
    seed: int,
    burst: int,
    cost_us: float | None,
    call_ns: int,
    selectivity: float | None,
    *,
    in_turn: bool = False,
) -> Workload:
    """Return application trees whose inputs send evenly spaced tuples at a rate that fills a share of the ideal capacity.

    The phases of the inputs are drawn. With `in_turn` they are evenly spaced too, for single tuples as for bursts: in step, the bursts of
    all inputs would be one.
    """
    chance = np.random.default_rng(seed)
    builder = NetworkBuilder()
    deltas, sources = [], []
    for index in range(trees):
        delta, own = generators.tree(
            builder,
            f"t{index}",
            depth,
            fan_out,
            lambda: float(chance.uniform(100.0, 1_000.0)) * 1e3 if cost_us is None else cost_us * 1e3,
            selectivity=lambda: 1.0 if selectivity is None else float(chance.uniform(selectivity, 1.0)),
            call_ns=call_ns,
        )
        deltas.append(delta)
        sources += own
    each = max(1, tuples // len(sources))
    # The ideal capacity knows no call overhead: costs alone at one tuple a second an input, then the rate that fills the share.
    bare = workload("trees", builder, deltas, {source: arrivals.regular(1.0, 100) for source in sources})
    work_s = sum(node.cost_ns * rows for node, rows in zip([n for n in bare.nodes if n.inputs], _expected_rows(bare), strict=True)) / 1e11
    rate = capacity / work_s
    times = {}
    for index, source in enumerate(sources):
        if in_turn:
            shift = round(index / len(sources) * burst / rate * 1e9)
            times[source] = arrivals.gather(arrivals.regular(rate, each), burst) + shift
        else:
            times[source] = arrivals.gather(arrivals.regular(rate, each, seed * 10_007 + index + 1), burst)
    return workload("trees", builder, deltas, times)


def sustained(
    policy: str,
    applications: int,
    depth: int,
    cost_us: float,
    deadlines_ms: list[float],
    tuples: int,
    seed: int,
    load: float,
    share: float,
    reading: str = "R",
) -> dict[str, Any]:
    """The most tightly constrained application gets a share of all tuples (section 4.6.1): fixed priority ranks it before all others."""
    tight = applications - 2  # A19 of A1 to A20
    each_ms = [deadlines_ms[index % len(deadlines_ms)] for index in range(applications)]
    each_ms[tight] = min(deadlines_ms) - 0.1
    builder, sources, deltas = chain_network(applications, depth, cost_us, each_ms, CALL_NS)
    per_tuple_s = depth * cost_us * 1e-6  # Capacity is ideal: the cycles that boxes need for tuples, and no overhead (3.4.1).
    others, heavy = (1.0 - share) * load / per_tuple_s, share * load / per_tuple_s
    span_s = tuples / (others + heavy)
    rest = [source for index, source in enumerate(sources) if index != tight]
    times = spread(rest, others, round(others * span_s), seed)
    times[sources[tight]] = arrivals.poisson(heavy, round(heavy * span_s), seed + 1)
    work = workload("sustained", builder, deltas, times)
    decided = charge(policy, ranked(policy, applications, depth), reading)
    settings = RunSettings(train=TrainShape(share=1.0), charge=decided, until_ns=work.span_ns)
    outcome = simulate(work, counted(policy, reading), seed=seed, settings=settings)
    return facts(outcome)


def fluctuating(
    policy: str,
    applications: int,
    depth: int,
    cost_us: float,
    deadlines_ms: list[float],
    tuples: int,
    seed: int,
    low: float,
    high: float,
    reading: str = "R",
) -> dict[str, Any]:
    """60% of capacity for 40,000 of every 55,000 tuples, 130% for 15,000 (section 4.6.2); shorter times where not even one fits."""
    builder, sources, deltas = chain_network(applications, depth, cost_us, deadlines_ms, CALL_NS)
    per_tuple_s = depth * cost_us * 1e-6  # Capacity is ideal: the cycles that boxes need for tuples, and no overhead (3.4.1).
    period = min(tuples, 55_000)
    place = np.arange(tuples) % period
    heavy = place >= period * 40_000 // 55_000
    chance = np.random.default_rng(seed)
    gaps = chance.exponential(1.0, tuples) * np.where(heavy, per_tuple_s / high, per_tuple_s / low)
    stamps = np.cumsum(gaps * 1e9).round().astype(np.int64)
    work = workload("fluctuating", builder, deltas, deal(sources, stamps, seed))
    settings = RunSettings(train=TrainShape(share=1.0), charge=charge(policy, ranked(policy, applications, depth), reading))
    outcome = simulate(work, counted(policy, reading), seed=seed, settings=settings)
    made_heavy = heavy[np.minimum(np.searchsorted(stamps, outcome.arrival_ns), tuples - 1)]
    missed = outcome.missed()
    order = np.argsort(outcome.finished_ns, kind="stable")
    recent = outcome.utility[order]
    step = max(1, len(recent) // 200)
    tight = np.array([late_from_ns(one.qos) for one in outcome.queries]) < max(deadlines_ms) * 1e6
    return {
        **facts(outcome),
        "overload_missed": float((missed & made_heavy).sum()),
        "overload_made": float((~missed & made_heavy).sum()),
        "underload_missed": float((missed & ~made_heavy).sum()),
        "underload_made": float((~missed & ~made_heavy).sum()),
        "loose_missed": float((missed & ~tight[outcome.query]).sum()),
        "recent": [float(recent[at : at + step].mean()) for at in range(0, len(recent) - step + 1, step)],
    }
