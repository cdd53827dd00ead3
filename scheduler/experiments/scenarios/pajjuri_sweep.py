"""What the experiments of Pajjuri 2004 share: policies, rates, sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Result, Row, Scale, mean
from millstream.scheduler.experiments.scenarios.pajjuri_runs import QUANTUM_MS
from millstream.scheduler.simulation.plots import Line, Panel

Results = Callable[[ExperimentCase], Result]

POLICIES = {
    "path-capacity": "path capacity",
    "simplified-segment": "simplified segment",
    "segment": "segment",
    "round-robin": "round-robin",
}
RATES: dict[Scale, tuple[float, ...]] = {
    "reduced": (100.0, 500.0, 900.0),
    "medium": (100.0, 500.0, 900.0),
    "full": (100.0, 300.0, 500.0, 700.0, 900.0),
}
SIZES: dict[Scale, tuple[int, int, tuple[int, ...]]] = {"reduced": (40, 10, (1,)), "medium": (1_000, 2, (1,)), "full": (1_000, 5, (1,))}
TRAFFIC = {"poisson": "Poisson", "mavpad": "MavPad"}

SETUP = (
    "One query of six operators over two streams: select and project on each, a join over a window of 1000 tuples, a projection; "
    "5 windows; a quantum of time for every operator; selectivities are measured."
)
QUERY = (
    "the query, because the thesis does not give it: six operators, two paths that meet in a join, selects of low selectivity below; "
    "sizes and costs: as in the thesis, a tuple is buffered twice under simplified segments and more often under segments"
)
SUBSTITUTED = (
    QUERY,
    "the costs, because the thesis gives none: the capacity is 60 tuples a second on each stream. In the thesis, memory rises while "
    "tuples arrive, at 40 a second with windows of 2000, and falls afterwards; and outputs that vary by 237 a second at 100 tuples a "
    "second show that its machine did not keep pace",
    'the quantum, a time in the thesis: 10 ms ("say 10" time units, 5.1.2); it was 1 s before; 5, 50 and 200 ms are shown beside it',
    "arrivals: Poisson gaps, and in addition the day of 12 February 2005 of MavPad, scaled to the rate, as arrivals of the smart home "
    "itself",
)


def case(scale: Scale, policy: str, rate: float, seed: int, traffic: str) -> ExperimentCase:
    """Return one run."""
    window, windows, _ = SIZES[scale]
    parameters = {"policy": policy, "rate": rate, "window": window, "windows": windows, "seed": seed, "traffic": traffic}
    return ExperimentCase("pajjuri_runs:steady", parameters)


QUANTA_MS = (5.0, 10.0, 50.0, 200.0)
QUANTA_RATE = 500.0
"""The rate at which quanta are compared."""


def with_quantum(scale: Scale, policy: str, quantum_ms: float) -> ExperimentCase:
    """Return a run at the middle rate with another quantum."""
    one = case(scale, policy, QUANTA_RATE, 1, "poisson")
    return one if quantum_ms == QUANTUM_MS else ExperimentCase(one.function, {**one.parameters, "quantum_ms": quantum_ms})


def quanta_note(results: Results, scale: Scale, measure: str) -> str:
    """Return the order of the policies for each quantum."""

    def order(quantum_ms: float) -> str:
        found = {policy: float(results(with_quantum(scale, policy, quantum_ms))[measure]) for policy in POLICIES}
        return " < ".join(f"{POLICIES[one]} {found[one]:.4g}" for one in sorted(found, key=lambda one: found[one]))

    return f"at {QUANTA_RATE:g} a second with a quantum of " + "; ".join(f"{one:g} ms: {order(one)}" for one in QUANTA_MS)


PACE_RATE = 855.0
"""A rate at which a machine whose capacity is 900 a second keeps pace: what the notes compare with."""


def keeping_pace(scale: Scale, policy: str) -> ExperimentCase:
    """Return a run on a machine that keeps pace, with the same quantum."""
    window, windows, _ = SIZES[scale]
    parameters = {"policy": policy, "rate": PACE_RATE, "window": window, "windows": windows, "seed": 1, "traffic": "poisson"}
    return ExperimentCase("pajjuri_runs:steady", {**parameters, "capacity": 900.0})


def pace_note(results: Results, scale: Scale, measure: str, unit: str) -> str:
    """Return what a machine that keeps pace shows."""
    found = {policy: float(results(keeping_pace(scale, policy))[measure]) for policy in POLICIES}
    listed = ", ".join(f"{POLICIES[policy]} {number:.4g}" for policy, number in sorted(found.items(), key=lambda pair: pair[1]))
    return f"with a machine at 95% of its capacity: {listed} {unit}"


def cases(scale: Scale) -> Sequence[ExperimentCase]:
    """Return all runs."""
    beside = [with_quantum(scale, policy, quantum_ms) for policy in POLICIES for quantum_ms in QUANTA_MS]
    return (
        [keeping_pace(scale, policy) for policy in POLICIES]
        + beside
        + [
            case(scale, policy, rate, seed, traffic)
            for traffic in TRAFFIC
            for rate in RATES[scale]
            for policy in POLICIES
            for seed in SIZES[scale][2]
        ]
    )


def value(results: Results, scale: Scale, policy: str, rate: float, measure: str, traffic: str = "poisson") -> float:
    """Return a measure averaged over seeds."""
    return mean([float(results(case(scale, policy, rate, seed, traffic))[measure]) for seed in SIZES[scale][2]])


def rows(results: Results, scale: Scale, measure: str) -> list[Row]:
    """Return the data."""
    return [
        {"traffic": traffic, "policy": POLICIES[policy], "rate": rate, measure: value(results, scale, policy, rate, measure, traffic)}
        for traffic in TRAFFIC
        for policy in POLICIES
        for rate in RATES[scale]
    ]


def panels(results: Results, scale: Scale, measure: str, y_label: str) -> list[Panel]:
    """Return a panel for each kind of traffic."""
    rates = RATES[scale]
    return [
        Panel(
            title,
            "tuples a second",
            y_label,
            [
                Line(POLICIES[policy], rates, [value(results, scale, policy, rate, measure, traffic) for rate in rates])
                for policy in POLICIES
            ],
        )
        for traffic, title in TRAFFIC.items()
    ]
