"""QoS against load: round-robin, fixed priority, slope-slack (Carney 2005, 4.3.2, figure 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Scale, Scenario, ordered
from millstream.scheduler.experiments.scenarios.carney_sweep import CHARGED, FIXED, SLOPE, CarneySweep, Results

NETWORK = {"applications": 20, "depth": 5, "cost_us": 100.0, "deadlines_ms": [10.0, 2_000.0]}
RATES: dict[Scale, Sequence[float]] = {
    "reduced": (800.0, 1_600.0),
    "medium": (800.0, 1_200.0, 1_400.0, 1_600.0, 1_800.0),
    "full": (800.0, 1_000.0, 1_200.0, 1_400.0, 1_600.0, 1_800.0, 2_000.0),
}
SWEEP = CarneySweep(("round-robin", FIXED, SLOPE), RATES, NETWORK)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return SWEEP.cases(scale)


def _highest(scale: Scale, results: Results) -> str:
    """Return the QoS at the highest rate."""
    rate = RATES[scale][-1]
    names = ("round-robin", "fixed priority", "slope-slack")
    found = [SWEEP.value(results, scale, policy, rate, "qos") for policy in SWEEP.policies]
    return f"at {rate:g} a second: " + ", ".join(f"{name} {qos:.2f}" for name, qos in zip(names, found, strict=True))


def _judge(scale: Scale, results: Results) -> Findings:
    turns, fixed, slope = (SWEEP.average(results, scale, policy) for policy in SWEEP.policies)
    claims = [
        ordered(
            "over all rates, QoS of fixed priority is at least that of slope-slack",
            ["slope-slack", "fixed priority"],
            [slope, fixed],
            tolerance=0.01,
        ),
        ordered(
            "both are far above round-robin (by a quarter at least)",
            ["1.25 x round-robin", "slope-slack"],
            [1.25 * turns, slope],
            note=_highest(scale, results),
        ),
    ]
    panel = SWEEP.panel(results, scale, "20 applications of 5 boxes")
    return Findings(SWEEP.rows(results, scale, ("qos", "decision_share")), claims, [panel])


SCENARIO = Scenario(
    "c-qos",
    "Carney 2005, fig. 4.4",
    "QoS against load",
    "20 applications of five boxes of 0.1 ms; deadlines 10 ms and 2 s in turn; whole queues as trains; schedules of ten boxes.",
    _cases,
    _judge,
    (
        CHARGED,
        "the rates, because the text names only 1,200 a second: up to the rate at which boxes and calls alone fill the machine, and beyond",
    ),
)
