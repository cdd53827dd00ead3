"""Average slowdown against load (Sharaf 2007, 3.8.1.1, figure 7), and the same order under other arrivals as a control."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Row, Scale, Scenario, at_least_half, reduction
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("rr", "fcfs", "srpt", "hr", "hnr")
_PAPER = {0.7: {"rr": 0.74, "srpt": 0.51, "hr": 0.18}, 0.97: {"rr": 0.75, "srpt": 0.53, "hr": 0.20}}
_CONTROLS = {"bc-paug89": "BC-pAug89, burstier", "on-off": "on/off sources, Hurst 0.8", "poisson": "Poisson"}
_CONTROL_LOAD = 0.7
_RIVALS = ("rr", "srpt", "hr", "hnr")


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _POLICIES) + [
        grid.case(scale, policy, _CONTROL_LOAD, 1, traffic) for traffic in _CONTROLS for policy in _RIVALS
    ]


def _controls(results: grid.Results, scale: Scale) -> dict[str, dict[str, float]]:
    return {
        traffic: {policy: float(results(grid.case(scale, policy, _CONTROL_LOAD, 1, traffic))["slowdown_mean"]) for policy in _RIVALS}
        for traffic in _CONTROLS
    }


def _judge(scale: Scale, results: grid.Results) -> Findings:
    claims: list[Claim] = []
    for load, effects in _PAPER.items():
        ours = {policy: grid.value(results, scale, policy, load, "slowdown_mean") for policy in _POLICIES}
        for other, paper in effects.items():
            text = f"at {load} HNR's average slowdown is below {grid.TITLES[other]}'s"
            claims.append(at_least_half(text, paper, reduction(ours["hnr"], ours[other])))
    controls = _controls(results, scale)
    for traffic, found in controls.items():
        text = f"control, {_CONTROLS[traffic]}, load {_CONTROL_LOAD}: HNR's average slowdown is the least"
        listed = ", ".join(f"{grid.TITLES[policy]} {number:.4g}" for policy, number in found.items())
        claims.append(Claim(text, "HNR least", listed, found["hnr"] == min(found.values())))
    rows: list[Row] = grid.rows(results, scale, _POLICIES, ("slowdown_mean",))
    rows += [
        {"policy": grid.TITLES[policy], "load": _CONTROL_LOAD, "seed": 1, "slowdown_mean": number, "traffic": traffic}
        for traffic, found in controls.items()
        for policy, number in found.items()
    ]
    names = list(_CONTROLS)
    panels = [
        grid.curves(results, scale, _POLICIES, "slowdown_mean", "Average slowdown, DEC-PKT-1", "times the ideal"),
        Panel(
            f"Other arrivals, utilisation {_CONTROL_LOAD}",
            "",
            "times the ideal",
            [Line(grid.TITLES[policy], names, [controls[traffic][policy] for traffic in names]) for policy in _RIVALS],
            kind="bar",
            y_log=True,
        ),
    ]
    return Findings(rows, claims, panels)


SCENARIO = Scenario("s-slowdown", "Sharaf 2007, fig. 7", "average slowdown against load", grid.SETUP, _cases, _judge, grid.SUBSTITUTED)
