"""Tardiness of windowed aggregates (Sharaf 2007, 3.8.1.13, figures 22 to 24)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, mean
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("edf", "hr", "edf-hr")
_TITLES = {"edf": "EDF", "hr": "HR", "edf-hr": "EDF-HR"}
_SIZES: dict[Scale, tuple[int, int, tuple[int, ...], tuple[float, ...]]] = {
    "reduced": (10, 3_600, (1,), (0.9, 0.99)),
    "medium": (50, 7_200, (1,), (0.5, 0.9, 0.97)),
    "full": (100, 20_000, (1, 2), (0.1, 0.5, 0.7, 0.9, 0.97, 0.99)),
}


def _case(scale: Scale, policy: str, load: float, seed: int) -> ExperimentCase:
    queries, tuples, _, _ = _SIZES[scale]
    return ExperimentCase("sharaf_runs:tardiness", {"policy": policy, "load": load, "seed": seed, "queries": queries, "tuples": tuples})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    _, _, seeds, loads = _SIZES[scale]
    return [_case(scale, policy, load, seed) for load in loads for policy in _POLICIES for seed in seeds]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    _, _, seeds, loads = _SIZES[scale]

    def value(policy: str, load: float) -> float:
        return mean([float(results(_case(scale, policy, load, seed))["tardiness_ms_mean"]) for seed in seeds])

    claims = []
    for load in loads:
        ours = {policy: value(policy, load) for policy in _POLICIES}
        listed = ", ".join(f"{_TITLES[policy]} {number:.4g} ms" for policy, number in ours.items())
        holds = ours["edf-hr"] <= min(ours["edf"], ours["hr"]) * 1.001
        claims.append(Claim(f"at {load} EDF-HR is at or below EDF and HR", "EDF-HR lowest", listed, holds))
    rows: list[Row] = [
        {"policy": _TITLES[policy], "load": load, "tardiness_ms_mean": value(policy, load)} for policy in _POLICIES for load in loads
    ]
    lines = [Line(_TITLES[policy], loads, [value(policy, load) for load in loads]) for policy in _POLICIES]
    return Findings(rows, claims, [Panel("Average tardiness", "utilisation", "ms", lines, y_log=True)])


SCENARIO = Scenario(
    "s-tardiness",
    "Sharaf 2007, fig. 22-24",
    "tardiness of windowed aggregates",
    "Queries of a select and an aggregate with a random SLIDE of 1 to 10 s; the result at a boundary is produced when every tuple "
    "before it has been processed.",
    _cases,
    _judge,
    (
        "DEC-PKT-1's UDP packets for LBL-PKT-4",
        'the range of SLIDE, "random" in the text: 1 to 10 s, the window interval of the thesis\'s table 3 (RANGE changes no deadline); '
        "100 queries instead of 500",
    ),
)
