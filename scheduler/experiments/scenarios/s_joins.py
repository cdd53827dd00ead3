"""The l2 norm of slowdown of two-stream queries (Sharaf 2007, 3.8.1.12, figure 21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Result, Row, Scale, Scenario, at_least_half, mean, within
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("rr", "fcfs", "hr", "hnr", "bsd-naive")
_SIZES: dict[Scale, tuple[int, int, tuple[int, ...], tuple[float, ...]]] = {
    "reduced": (20, 60, (1,), (0.9,)),
    "medium": (50, 300, (1,), (0.7, 0.9)),
    "full": (250, 600, (1, 2), (0.5, 0.7, 0.8, 0.9, 0.95)),
}
_GAP_S = 1.0


def _case(scale: Scale, policy: str, load: float, seed: int) -> ExperimentCase:
    queries, tuples, _, _ = _SIZES[scale]
    parameters = {"policy": policy, "load": load, "seed": seed, "queries": queries, "tuples": tuples, "gap_s": _GAP_S}
    return ExperimentCase("sharaf_runs:joins", parameters)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    _, _, seeds, loads = _SIZES[scale]
    return [_case(scale, policy, load, seed) for load in loads for policy in _POLICIES for seed in seeds]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    _, _, seeds, loads = _SIZES[scale]

    def value(policy: str, load: float) -> float:
        return mean([float(results(_case(scale, policy, load, seed))["slowdown_l2"]) for seed in seeds])

    best = max(1.0 - value("bsd-naive", load) / value("hnr", load) for load in loads)
    claims = [
        at_least_half("BSD's l2 of slowdown is up to so much below HNR's", 0.14, best),
        within("at 0.9 RR's l2 is a multiple of BSD's", 17.0, value("rr", 0.9) / value("bsd-naive", 0.9)),
        within("at 0.9 FCFS's l2 is a multiple of BSD's", 15.0, value("fcfs", 0.9) / value("bsd-naive", 0.9)),
    ]
    rows: list[Row] = [
        {"policy": grid.TITLES[policy], "load": load, "slowdown_l2": value(policy, load)} for policy in _POLICIES for load in loads
    ]
    lines = [Line(grid.TITLES[policy], loads, [value(policy, load) for load in loads]) for policy in _POLICIES]
    return Findings(rows, claims, [Panel("Two-stream queries", "utilisation", "l2 of slowdown", lines, y_log=True)])


SCENARIO = Scenario(
    "s-joins",
    "Sharaf 2007, fig. 21",
    "l2 of slowdown of windowed joins of two streams",
    "Queries that select from two Poisson streams (one tuple a second each), join over 1 to 10 s and "
    "project; costs and selectivities as in s-slowdown.",
    _cases,
    _judge,
    ("250 queries instead of 500, and the rates of the streams, because the thesis does not state them",),
)
