"""The l2 norms of slowdown and of response time against load (Sharaf 2007, 3.8.1.6 and 3.8.1.7, figures 12 and 13)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Scale, Scenario, at_least_half
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid

_SLOWDOWN = ("lsf", "hnr", "bsd-naive")
_RESPONSE = ("fcfs", "hr", "brt")


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, (*_SLOWDOWN, *_RESPONSE))


def _judge(scale: Scale, results: grid.Results) -> Findings:
    claims = []
    for measure, policy, other, paper in (
        ("slowdown_l2", "bsd-naive", "lsf", 0.57),
        ("slowdown_l2", "bsd-naive", "hnr", 0.24),
        ("response_ms_l2", "brt", "fcfs", 0.51),
        ("response_ms_l2", "brt", "hr", 0.23),
    ):
        what = "slowdown" if measure.startswith("slowdown") else "response time"
        text = f"l2 of {what}: {grid.TITLES[policy]} is up to so much below {grid.TITLES[other]}"
        claims.append(at_least_half(text, paper, grid.greatest_reduction(results, scale, policy, other, measure)))
    panels = [
        grid.curves(results, scale, _SLOWDOWN, "slowdown_l2", "l2 norm of slowdown", "l2"),
        grid.curves(results, scale, _RESPONSE, "response_ms_l2", "l2 norm of response time", "l2, ms"),
    ]
    rows = grid.rows(results, scale, (*_SLOWDOWN, *_RESPONSE), ("slowdown_l2", "response_ms_l2"))
    return Findings(rows, claims, panels)


SCENARIO = Scenario("s-l2", "Sharaf 2007, fig. 12, 13", "l2 norms against load", grid.SETUP, _cases, _judge, grid.SUBSTITUTED)
