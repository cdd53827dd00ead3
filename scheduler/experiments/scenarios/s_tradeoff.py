"""Average against maximum slowdown of HNR, LSF and BSD (Sharaf 2007, 3.8.1.5, figure 11)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Scale, Scenario, at_least_half, reduction
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("hnr", "lsf", "bsd-naive")


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _POLICIES)


def _judge(scale: Scale, results: grid.Results) -> Findings:
    load = grid.nearest(scale, 0.95)

    def at(policy: str, measure: str) -> float:
        return grid.value(results, scale, policy, load, measure)

    claims = [
        at_least_half(
            f"at {load} BSD's maximum slowdown is below HNR's", 0.44, reduction(at("bsd-naive", "slowdown_max"), at("hnr", "slowdown_max"))
        ),
        at_least_half(
            f"at {load} BSD's average slowdown is below LSF's",
            0.80,
            reduction(at("bsd-naive", "slowdown_mean"), at("lsf", "slowdown_mean")),
        ),
    ]
    lines = [Line(grid.TITLES[policy], [at(policy, "slowdown_mean")], [at(policy, "slowdown_max")]) for policy in _POLICIES]
    panels = [Panel(f"At utilisation {load}", "average slowdown", "maximum slowdown", lines, x_log=True, y_log=True)]
    return Findings(grid.rows(results, scale, _POLICIES, ("slowdown_mean", "slowdown_max")), claims, panels)


SCENARIO = Scenario("s-tradeoff", "Sharaf 2007, fig. 11", "average against maximum slowdown", grid.SETUP, _cases, _judge, grid.SUBSTITUTED)
