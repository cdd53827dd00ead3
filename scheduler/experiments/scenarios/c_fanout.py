"""Trees against straight queries (Carney 2005, 4.7, figures 4.25 and 4.26)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario
from millstream.scheduler.experiments.scenarios.carney_sweep import CHARGED, FIXED_PUSH, SLOPE_PUSH, CarneySweep, Results, title

_POLICIES = (
    FIXED_PUSH,
    SLOPE_PUSH,
    "bucketing-push-through:gradients=20,slacks=20,schedule=10",
)
_RATES: dict[Scale, Sequence[float]] = {
    "reduced": (1_000.0, 2_000.0),
    "medium": (1_600.0, 2_000.0, 2_400.0, 2_800.0),
    "full": (1_200.0, 1_600.0, 2_000.0, 2_200.0, 2_400.0, 2_600.0, 2_800.0),
}
_DEADLINES = [40.0, 3_040.0]
_TUPLES: dict[Scale, int] = {"reduced": 500, "medium": 6_000, "full": 30_000}
_TREES = CarneySweep(
    _POLICIES,
    _RATES,
    {"applications": 10, "depth": 4, "fan_out": 2, "deadlines_ms": _DEADLINES, "cost_us": 100.0},
    function="trees",
    tuples=_TUPLES,
)
_STRAIGHT = CarneySweep(_POLICIES, _RATES, {"applications": 80, "depth": 4, "deadlines_ms": _DEADLINES, "cost_us": 100.0}, tuples=_TUPLES)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [*_TREES.cases(scale), *_STRAIGHT.cases(scale)]


def _judge(scale: Scale, results: Results) -> Findings:
    gaps = {
        policy: max(
            abs(_TREES.value(results, scale, policy, rate, "qos") - _STRAIGHT.value(results, scale, policy, rate, "qos"))
            for rate in _RATES[scale]
        )
        for policy in _POLICIES
    }
    listed = ", ".join(f"{title(policy)} {gap:.3f}" for policy, gap in gaps.items())
    averages = {policy: _TREES.average(results, scale, policy) for policy in _POLICIES}
    claims = [
        Claim(
            "trees and straight queries give the same curves (greatest distance of QoS at most 0.1)",
            "the same",
            listed,
            max(gaps.values()) <= 0.1,
        ),
        Claim(
            "bucketing push-through sustains the highest load",
            "bucketing",
            ", ".join(f"{title(policy)} {value:.3f}" for policy, value in averages.items()),
            averages[_POLICIES[2]] >= max(averages.values()) - 0.005,
        ),
    ]
    rows = [{"network": "trees", **row} for row in _TREES.rows(results, scale, ("qos", "decision_share"))]
    rows += [{"network": "straight", **row} for row in _STRAIGHT.rows(results, scale, ("qos", "decision_share"))]
    panels = [
        _TREES.panel(results, scale, "10 trees of fan-out 2, depth 4"),
        _STRAIGHT.panel(results, scale, "80 straight queries of depth 4"),
    ]
    return Findings(rows, claims, panels)


SCENARIO = Scenario(
    "c-fanout",
    "Carney 2005, fig. 4.25, 4.26",
    "trees against straight queries",
    "10 applications of fan-out 2 and depth 4 against 80 straight ones of depth 4; deadlines 40 ms and 3.04 s in turn; boxes of 0.1 ms.",
    _cases,
    _judge,
    (CHARGED, "the rates, because the text does not name them: up to and above the capacity of boxes and calls (2,155 a second)"),
)
