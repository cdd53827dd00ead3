"""The l2 norm of slowdown against the maximum selectivity, equal costs (Sharaf 2007, 3.8.1.9, figure 15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import (
    Claim,
    ExperimentCase,
    Findings,
    Result,
    Row,
    Scale,
    Scenario,
    at_least_half,
    mean,
    percent,
    reduction,
)
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.generators import COST_CLASSES
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("hr", "hnr", "bsd-naive")
_LOAD = 0.95
_NOTE = "with equal costs T is the same for all queries, so HR and HNR are one order by their own equations"
HIGHS: dict[Scale, tuple[float, ...]] = {
    "reduced": (0.1, 0.5, 1.0),
    "medium": (0.1, 0.5, 1.0),
    "full": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
}
_TUPLES: dict[Scale, int] = {"reduced": 400, "medium": 1_000, "full": 8_000}


def case(scale: Scale, policy: str, high: float, seed: int, classes: int = 1) -> ExperimentCase:
    """Return one run with selectivities from 0.1 to `high`, of equal costs or of so many classes."""
    size = grid.SIZES[scale]
    parameters = {"policy": policy, "load": _LOAD, "seed": seed, "queries": size.queries, "tuples": _TUPLES[scale], "high": high}
    if classes > 1:
        parameters["classes"] = classes
    return ExperimentCase("sharaf_runs:selectivity", parameters)


def value(results: Callable[[ExperimentCase], Result], scale: Scale, policy: str, high: float, measure: str, classes: int = 1) -> float:
    """Return a measure averaged over seeds."""
    return mean([float(results(case(scale, policy, high, seed, classes))[measure]) for seed in grid.SIZES[scale].seeds])


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    seeds = grid.SIZES[scale].seeds
    equal = [case(scale, policy, high, seed) for high in HIGHS[scale] for policy in _POLICIES for seed in seeds]
    return equal + [case(scale, policy, high, seed, COST_CLASSES) for high in (0.5, 1.0) for policy in _POLICIES for seed in seeds]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    equal = {policy: value(results, scale, policy, 0.1, "slowdown_l2") for policy in _POLICIES}
    claims = [
        Claim(
            "maximum selectivity 0.1: HR, HNR and BSD are almost the same (within 5%)",
            "almost the same",
            ", ".join(f"{grid.TITLES[policy]} {one:.4g}" for policy, one in equal.items()),
            max(equal.values()) <= 1.05 * min(equal.values()),
            "all operators are alike then, so every choice is one between equal ranks",
        )
    ]
    for high, effects in ((0.5, {"hr": 0.44, "hnr": 0.19}), (1.0, {"hr": 0.61, "hnr": 0.27})):
        for other, paper in effects.items():
            ours = [value(results, scale, policy, high, "slowdown_l2") for policy in ("bsd-naive", other)]
            text = f"maximum selectivity {high}: BSD's l2 of slowdown is below {grid.TITLES[other]}'s"
            classed = [value(results, scale, policy, high, "slowdown_l2", COST_CLASSES) for policy in ("bsd-naive", other)]
            note = f"with the five cost classes of section 3.7 {percent(reduction(*classed))}" + (f"; {_NOTE}" if other == "hr" else "")
            claims.append(at_least_half(text, paper, reduction(*ours), note))
    rows: list[Row] = [
        {"policy": grid.TITLES[policy], "selectivity_max": high, "slowdown_l2": value(results, scale, policy, high, "slowdown_l2")}
        for policy in _POLICIES
        for high in HIGHS[scale]
    ]
    lines = [
        Line(grid.TITLES[policy], HIGHS[scale], [value(results, scale, policy, high, "slowdown_l2") for high in HIGHS[scale]])
        for policy in _POLICIES
    ]
    return Findings(rows, claims, [Panel(f"Utilisation {_LOAD}", "maximum selectivity", "l2 of slowdown", lines, y_log=True)])


SCENARIO = Scenario(
    "s-selectivity",
    "Sharaf 2007, fig. 15",
    "l2 of slowdown against maximum selectivity",
    f"As s-slowdown at utilisation {_LOAD}, but all operators cost the same and selectivities lie between 0.1 and a maximum.",
    _cases,
    _judge,
    grid.SUBSTITUTED,
)
