"""Average response time against load (Sharaf 2007, 3.8.1.2, figure 8)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario, percent
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid

_POLICIES = ("rr", "fcfs", "srpt", "hr", "hnr")


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _POLICIES)


def _judge(scale: Scale, results: grid.Results) -> Findings:
    claims: list[Claim] = []
    for load, paper in ((0.7, 0.04), (0.97, 0.07)):
        ours = {policy: grid.value(results, scale, policy, load, "response_ms_mean") for policy in _POLICIES}
        best = min(ours, key=lambda policy: ours[policy])
        listed = ", ".join(f"{grid.TITLES[policy]} {number:.3g} ms" for policy, number in ours.items())
        claims.append(Claim(f"at {load} HR has the lowest average response time", "HR", listed, best == "hr"))
        excess = ours["hnr"] / ours["hr"] - 1.0
        claims.append(Claim(f"at {load} HNR is a little above HR", percent(paper), percent(excess), 0.0 <= excess <= 2.0 * paper))
    ratio = grid.value(results, scale, "fcfs", 0.97, "response_ms_mean") / grid.value(results, scale, "hr", 0.97, "response_ms_mean")
    claims.append(Claim("at 0.97 FCFS has several times the response time of HR", "630%", percent(ratio), 3.15 <= ratio <= 12.6))
    panel = grid.curves(results, scale, _POLICIES, "response_ms_mean", "Average response time", "ms")
    return Findings(grid.rows(results, scale, _POLICIES, ("response_ms_mean",)), claims, [panel])


SCENARIO = Scenario("s-response", "Sharaf 2007, fig. 8", "average response time against load", grid.SETUP, _cases, _judge, grid.SUBSTITUTED)
