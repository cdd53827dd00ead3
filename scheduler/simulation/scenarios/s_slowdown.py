"""Average slowdown against load (Sharaf 2007, 3.8.1.1, figure 7)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.simulation.experiments import Case, Claim, Findings, Scale, Scenario, at_least_half, reduction
from millstream.scheduler.simulation.scenarios import sharaf_grid as grid

_POLICIES = ("rr", "fcfs", "srpt", "hr", "hnr")
_PAPER = {0.7: {"rr": 0.74, "srpt": 0.51, "hr": 0.18}, 0.97: {"rr": 0.75, "srpt": 0.53, "hr": 0.20}}


def _cases(scale: Scale) -> Sequence[Case]:
    return grid.cases(scale, _POLICIES)


def _judge(scale: Scale, results: grid.Results) -> Findings:
    claims: list[Claim] = []
    for load, effects in _PAPER.items():
        ours = {policy: grid.value(results, scale, policy, load, "slowdown_mean") for policy in _POLICIES}
        for other, paper in effects.items():
            text = f"at {load} HNR's average slowdown is below {grid.TITLES[other]}'s"
            claims.append(at_least_half(text, paper, reduction(ours["hnr"], ours[other])))
    panel = grid.curves(results, scale, _POLICIES, "slowdown_mean", "Average slowdown", "times the ideal")
    return Findings(grid.rows(results, scale, _POLICIES, ("slowdown_mean",)), claims, [panel])


SCENARIO = Scenario("s-slowdown", "Sharaf 2007, fig. 7", "average slowdown against load", grid.SETUP, _cases, _judge, grid.SUBSTITUTED)
