"""QoS against load: round-robin, fixed priority, slope-slack (Carney 2005, 4.3.2, figure 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario
from millstream.scheduler.experiments.scenarios.carney_sweep import CHARGED, FIXED, READINGS, SLOPE, TURNS, CarneySweep, Results, beside

NETWORK = {"applications": 20, "depth": 5, "cost_us": 100.0, "deadlines_ms": [10.0, 2_000.0]}
RATES: dict[Scale, Sequence[float]] = {
    "reduced": (800.0, 1_600.0),
    "medium": (1_200.0, 1_400.0, 1_600.0, 1_700.0, 1_800.0),
    "full": (1_200.0, 1_400.0, 1_500.0, 1_550.0, 1_600.0, 1_650.0, 1_700.0, 1_750.0, 1_800.0, 1_850.0),
}
HELD = 0.9
"""A rate is sustained up to this QoS."""
_SWEEP = CarneySweep((TURNS, FIXED, SLOPE), RATES, NETWORK)
_FREE_AT = 1_700.0
_SWEEPS = {reading: _SWEEP.under(reading) for reading in READINGS}


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [*(one for sweep in _SWEEPS.values() for one in sweep.cases(scale)), *(_free(scale, policy) for policy in _SWEEP.policies)]


def _free(scale: Scale, policy: str) -> ExperimentCase:
    """Return a run in which deciding costs nothing: what the policies themselves do."""
    return _SWEEP.under("free").case(scale, policy, _FREE_AT, 1)


def _without_charge(scale: Scale, results: Results) -> str:
    found = [float(results(_free(scale, policy))["qos"]) for policy in _SWEEP.policies]
    return "were deciding free, at {:g} a second round-robin had {:.3f}, fixed priority {:.3f}, slope-slack {:.3f}".format(_FREE_AT, *found)


def _claims(scale: Scale, results: Results, sweep: CarneySweep) -> list[Claim]:
    reach = {policy: sweep.sustained(results, scale, policy, HELD) for policy in sweep.policies}
    rate = min(reach[FIXED], reach[SLOPE])
    turns, fixed, slope = (sweep.value(results, scale, policy, rate, "qos") if rate else 0.0 for policy in sweep.policies)
    return [
        Claim(
            "fixed priority sustains at least the rate of slope-slack (at a QoS of 0.9)",
            "slope-slack <= fixed priority",
            f"slope-slack {reach[SLOPE]:g}, fixed priority {reach[FIXED]:g} tuples a second",
            reach[FIXED] >= reach[SLOPE] > 0.0,
        ),
        Claim(
            "at the highest rate that both sustain they are far above round-robin (by a quarter at least)",
            "far above",
            f"at {rate:g} a second: round-robin {turns:.3f}, fixed priority {fixed:.3f}, slope-slack {slope:.3f}",
            1.25 * turns < min(fixed, slope),
            f"round-robin sustains {reach[TURNS]:g}" + (f"; {_without_charge(scale, results)}" if sweep.reading == "S" else ""),
        ),
    ]


def _judge(scale: Scale, results: Results) -> Findings:
    panels = [sweep.panel(results, scale, f"20 applications of 5 boxes, charge {reading}") for reading, sweep in _SWEEPS.items()]
    rows = [
        {"charge": reading, **row} for reading, sweep in _SWEEPS.items() for row in sweep.rows(results, scale, ("qos", "decision_share"))
    ]
    return Findings(rows, beside(lambda reading: _claims(scale, results, _SWEEPS[reading]), "S"), panels)


SCENARIO = Scenario(
    "c-qos",
    "Carney 2005, fig. 4.4",
    "QoS against load",
    "20 applications of five boxes of 0.1 ms; deadlines 10 ms and 2 s in turn; whole queues as trains; schedules of ten boxes.",
    _cases,
    _judge,
    (
        CHARGED,
        "the rates, because the text names only 1,200 a second: around the rate at which boxes and calls alone fill the machine (1,724); "
        "2,000 a second is the ideal capacity, so overload, which is the subject of section 4.6",
    ),
)
