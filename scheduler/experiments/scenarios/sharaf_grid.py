"""The grid of policy by load by seed that most experiments of Sharaf 2007, chapter 3, read from; and words they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.scheduler.experiments.frame import ExperimentCase, Result, Row, Scale, mean
from millstream.scheduler.simulation.plots import Line, Panel

Results = Callable[[ExperimentCase], Result]

POLICIES = ("rr", "srpt", "fcfs", "hr", "hnr", "lsf", "brt", "bsd-naive", "chain")
TITLES = {
    "bsd-naive": "BSD",
    "rr": "RR",
    "srpt": "SRPT",
    "fcfs": "FCFS",
    "hr": "HR",
    "hnr": "HNR",
    "lsf": "LSF",
    "brt": "BRT",
    "chain": "Chain",
}

SETUP = (
    "500 queries of a select, a join with a stored relation and a projection; costs K·2^i (i 0 to 4), "
    "selectivity 0.1 to 1.0 of select and join; "
    "every tuple goes to all queries; K set for the utilisation; one tuple at a time, query level."
)
SUBSTITUTED = (
    "pieces of DEC-PKT-1's UDP hour for LBL-PKT-4's hour, with gaps times 0.64 (same archive, same kind of link)",
    "the form of the predicates, because the thesis does not state it: a select (join) passes tuples whose first (second) attribute is "
    "up to a bound",
)


@dataclass(frozen=True)
class Size:
    """How much is run at a scale."""

    queries: int
    tuples: int
    seeds: tuple[int, ...]
    loads: tuple[float, ...]


SIZES: dict[Scale, Size] = {
    "reduced": Size(60, 400, (1,), (0.7, 0.97)),
    "medium": Size(500, 2_500, (1,), (0.7, 0.97)),
    "full": Size(500, 20_000, (1,), (0.1, 0.5, 0.7, 0.9, 0.95, 0.97, 0.99)),
}


def case(scale: Scale, policy: str, load: float, seed: int, traffic: str = "dec-pkt-1") -> ExperimentCase:
    """Return one point of the grid."""
    size = SIZES[scale]
    return ExperimentCase(
        "sharaf_runs:grid",
        {"policy": policy, "load": load, "seed": seed, "queries": size.queries, "tuples": size.tuples, "traffic": traffic},
    )


def cases(scale: Scale, policies: Sequence[str], loads: Sequence[float] | None = None) -> list[ExperimentCase]:
    """Return the points of these policies at these loads, all of the scale's by default."""
    size = SIZES[scale]
    return [case(scale, policy, load, seed) for load in loads or size.loads for policy in policies for seed in size.seeds]


def value(results: Results, scale: Scale, policy: str, load: float, measure: str) -> float:
    """Return a measure, averaged over seeds."""
    return mean([float(results(case(scale, policy, load, seed))[measure]) for seed in SIZES[scale].seeds])


def loads_of(scale: Scale) -> tuple[float, ...]:
    """Return the loads of a scale."""
    return SIZES[scale].loads


def nearest(scale: Scale, load: float) -> float:
    """Return the load of the scale that is nearest to the one a claim names."""
    return min(SIZES[scale].loads, key=lambda one: abs(one - load))


def curves(results: Results, scale: Scale, policies: Sequence[str], measure: str, title: str, y_label: str, *, y_log: bool = True) -> Panel:
    """Return a panel of a measure against utilisation."""
    loads = loads_of(scale)
    lines = [Line(TITLES[policy], loads, [value(results, scale, policy, load, measure) for load in loads]) for policy in policies]
    return Panel(title, "utilisation", y_label, lines, y_log=y_log)


def rows(results: Results, scale: Scale, policies: Sequence[str], measures: Sequence[str]) -> list[Row]:
    """Return the data: one row a policy, load and seed."""
    found: list[Row] = []
    for load in loads_of(scale):
        for policy in policies:
            for seed in SIZES[scale].seeds:
                result = results(case(scale, policy, load, seed))
                found.append({"policy": TITLES[policy], "load": load, "seed": seed, **{name: result[name] for name in measures}})
    return found


def greatest_reduction(results: Results, scale: Scale, policy: str, other: str, measure: str) -> float:
    """Return the greatest reduction over all loads: what a paper's "up to" means."""
    return max(1.0 - value(results, scale, policy, load, measure) / value(results, scale, other, load, measure) for load in loads_of(scale))
