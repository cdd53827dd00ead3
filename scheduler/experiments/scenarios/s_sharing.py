"""Shared operators: Max, Sum and PDT (Sharaf 2007, 3.8.4, figures 29 to 31)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Result, Row, Scale, Scenario, at_least_half, mean, reduction
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

_LOAD = 0.9
_WAYS = ("max", "sum", "pdt")
_PAPER = {
    "hr": ("response_ms_mean", "response time", {"max": 0.21, "sum": 0.12}),
    "hnr": ("slowdown_mean", "slowdown", {"max": 0.24, "sum": 0.18}),
    "bsd-naive": ("slowdown_l2", "l2 of slowdown", {"max": 0.10, "sum": 0.08}),
}
_SIZES: dict[Scale, tuple[int, int, tuple[int, ...]]] = {
    "reduced": (40, 150, (1,)),
    "medium": (100, 300, (1,)),
    "full": (500, 1_000, (1, 2)),
}


def _case(scale: Scale, policy: str, way: str, seed: int) -> ExperimentCase:
    queries, tuples, _ = _SIZES[scale]
    parameters = {"policy": f"{policy}:sharing={way}", "load": _LOAD, "seed": seed, "queries": queries, "tuples": tuples, "group": 10}
    return ExperimentCase("sharaf_runs:sharing", parameters)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, policy, way, seed) for policy in _PAPER for way in _WAYS for seed in _SIZES[scale][2]]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    def value(policy: str, way: str, measure: str) -> float:
        return mean([float(results(_case(scale, policy, way, seed))[measure]) for seed in _SIZES[scale][2]])

    claims = []
    rows: list[Row] = []
    panels = []
    for policy, (measure, what, effects) in _PAPER.items():
        ours = {way: value(policy, way, measure) for way in _WAYS}
        rows += [{"policy": grid.TITLES[policy], "sharing": way, "measure": measure, "value": number} for way, number in ours.items()]
        for other, paper in effects.items():
            text = f"{grid.TITLES[policy]}'s {what}: PDT below {other.capitalize()}"
            claims.append(at_least_half(text, paper, reduction(ours["pdt"], ours[other])))
        bars = [Line(grid.TITLES[policy], ["Max", "Sum", "PDT"], [ours[way] for way in _WAYS])]
        panels.append(Panel(f"{grid.TITLES[policy]}: {what}", "priority of a shared select", measure, bars, kind="bar"))
    return Findings(rows, claims, panels)


SCENARIO = Scenario(
    "s-sharing",
    "Sharaf 2007, fig. 29-31",
    "groups of ten queries that share their select",
    f"As s-slowdown at utilisation {_LOAD}, in groups of ten queries with one select.",
    _cases,
    _judge,
    grid.SUBSTITUTED,
)
