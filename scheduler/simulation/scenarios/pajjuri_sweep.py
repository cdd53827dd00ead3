"""What the experiments of Pajjuri 2004 share: policies, rates, sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.simulation.experiments import Case, Line, Panel, Result, Row, Scale, mean

Results = Callable[[Case], Result]

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
SIZES: dict[Scale, tuple[int, int, tuple[int, ...]]] = {"reduced": (40, 20, (1,)), "medium": (1_000, 2, (1,)), "full": (1_000, 5, (1, 2))}
TRAFFIC = {"poisson": "Poisson", "mavpad": "MavPad"}

SETUP = (
    "One query of six operators over two streams: select and project on each, a join over a window of 1000 tuples, a projection; "
    "5 windows; a quantum of 20 tuples."
)
SUBSTITUTED = (
    "the query and its costs, which the thesis does not give: 900 tuples a second on each stream are 95% of capacity",
    "beside Poisson gaps the day of 12 February 2005 of MavPad, scaled to the rate, as arrivals of the smart home itself",
)


def case(scale: Scale, policy: str, rate: float, seed: int, traffic: str) -> Case:
    """Return one run."""
    window, windows, _ = SIZES[scale]
    parameters = {"policy": policy, "rate": rate, "window": window, "windows": windows, "seed": seed, "traffic": traffic}
    return Case("pajjuri_runs:steady", parameters)


def cases(scale: Scale) -> Sequence[Case]:
    """Return all runs."""
    return [
        case(scale, policy, rate, seed, traffic)
        for traffic in TRAFFIC
        for rate in RATES[scale]
        for policy in POLICIES
        for seed in SIZES[scale][2]
    ]


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
