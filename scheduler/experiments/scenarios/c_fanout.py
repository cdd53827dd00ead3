"""Trees against straight queries (Carney 2005, 4.7, figures 4.25 and 4.26)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario
from millstream.scheduler.experiments.scenarios.c_qos import HELD
from millstream.scheduler.experiments.scenarios.carney_sweep import (
    CHARGED,
    FIXED_PUSH,
    READINGS,
    SLOPE_PUSH,
    CarneySweep,
    Results,
    beside,
    title,
)

_POLICIES = (
    FIXED_PUSH,
    SLOPE_PUSH,
    "bucketing-push-through:gradients=20,slacks=20,schedule=10",
)
_RATES: dict[Scale, Sequence[float]] = {
    "reduced": (1_000.0, 2_000.0),
    "medium": (1_600.0, 2_000.0, 2_400.0, 2_800.0),
    "full": (1_600.0, 2_000.0, 2_100.0, 2_200.0, 2_300.0, 2_400.0, 2_500.0, 2_600.0, 2_700.0, 2_800.0),
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
    return [one for reading in READINGS for sweep in (_TREES, _STRAIGHT) for one in sweep.under(reading).cases(scale)]


def _claims(scale: Scale, results: Results, reading: str) -> list[Claim]:
    trees, straight = _TREES.under(reading), _STRAIGHT.under(reading)
    gaps = {
        policy: max(
            abs(trees.value(results, scale, policy, rate, "qos") - straight.value(results, scale, policy, rate, "qos"))
            for rate in _RATES[scale]
        )
        for policy in _POLICIES
    }
    listed = ", ".join(f"{title(policy)} {gap:.3f}" for policy, gap in gaps.items())
    reach = {policy: trees.sustained(results, scale, policy, HELD) for policy in _POLICIES}
    return [
        Claim(
            "trees and straight queries give the same curves (greatest distance of QoS at most 0.1)",
            "the same",
            listed,
            max(gaps.values()) <= 0.1,
        ),
        Claim(
            "bucketing push-through sustains the highest load (at a QoS of 0.9)",
            "bucketing",
            ", ".join(f"{title(policy)} {rate:g}" for policy, rate in reach.items()),
            reach[_POLICIES[2]] > max(reach[policy] for policy in _POLICIES[:2]),
        ),
    ]


def _judge(scale: Scale, results: Results) -> Findings:
    rows = [{"network": "trees", **row} for row in _TREES.rows(results, scale, ("qos", "decision_share"))]
    rows += [{"network": "straight", **row} for row in _STRAIGHT.rows(results, scale, ("qos", "decision_share"))]
    panels = [
        _TREES.panel(results, scale, "10 trees of fan-out 2, depth 4"),
        _STRAIGHT.panel(results, scale, "80 straight queries of depth 4"),
    ]
    return Findings(rows, beside(lambda reading: _claims(scale, results, reading), "R"), panels)


SCENARIO = Scenario(
    "c-fanout",
    "Carney 2005, fig. 4.25, 4.26",
    "trees against straight queries",
    "10 applications of fan-out 2 and depth 4 against 80 straight ones of depth 4; deadlines 40 ms and 3.04 s in turn; boxes of 0.1 ms.",
    _cases,
    _judge,
    (CHARGED, "the rates, because the text does not name them: up to and above the capacity of boxes and calls (2,155 a second)"),
)
