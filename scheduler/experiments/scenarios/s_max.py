"""Maximum response time and maximum slowdown against load (Sharaf 2007, 3.8.1.3 and 3.8.1.4, figures 9 and 10)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Scale, Scenario, at_least_half, reduction
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid

_POLICIES = ("fcfs", "lsf", "hr", "hnr", "brt", "bsd-naive")


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _POLICIES)


def _judge(scale: Scale, results: grid.Results) -> Findings:
    def at(policy: str, measure: str) -> float:
        return grid.value(results, scale, policy, 0.97, measure)

    claims = [
        at_least_half(
            "at 0.97 FCFS's maximum response time is below HR's",
            0.75,
            reduction(at("fcfs", "response_ms_max"), at("hr", "response_ms_max")),
        ),
        at_least_half(
            "at 0.97 LSF's maximum slowdown is below HNR's", 0.80, reduction(at("lsf", "slowdown_max"), at("hnr", "slowdown_max"))
        ),
    ]
    panels = [
        grid.curves(results, scale, _POLICIES, "response_ms_max", "Maximum response time", "ms"),
        grid.curves(results, scale, _POLICIES, "slowdown_max", "Maximum slowdown", "times the ideal"),
    ]
    return Findings(grid.rows(results, scale, _POLICIES, ("response_ms_max", "slowdown_max")), claims, panels)


SCENARIO = Scenario(
    "s-max", "Sharaf 2007, fig. 9, 10", "maximum response time and slowdown against load", grid.SETUP, _cases, _judge, grid.SUBSTITUTED
)
