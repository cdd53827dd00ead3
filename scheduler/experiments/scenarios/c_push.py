"""Push-through for shallow and deep networks (Carney 2005, 4.5, figure 4.14)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Row, Scale, Scenario
from millstream.scheduler.experiments.scenarios.c_qos import NETWORK, RATES
from millstream.scheduler.experiments.scenarios.carney_sweep import (
    CHARGED,
    FIXED,
    FIXED_PUSH,
    READINGS,
    SLOPE,
    SLOPE_PUSH,
    CarneySweep,
    Results,
    beside,
)

_POLICIES = (FIXED, FIXED_PUSH, SLOPE, SLOPE_PUSH)
_DEEP_TUPLES: dict[Scale, int] = {"reduced": 300, "medium": 1_500, "full": 10_000}
_SHALLOW = CarneySweep(_POLICIES, RATES, NETWORK)
# Four times the depth at a quarter of the cost; a call costs what it costs.
_DEEP_RATES: dict[Scale, Sequence[float]] = {
    "reduced": (600.0, 1_400.0),
    "medium": (600.0, 1_000.0, 1_400.0),
    "full": (400.0, 600.0, 800.0, 1_000.0, 1_200.0, 1_400.0),
}
_DEEP = CarneySweep(_POLICIES, _DEEP_RATES, {**NETWORK, "depth": 20, "cost_us": 25.0}, tuples=_DEEP_TUPLES)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [one for reading in READINGS for sweep in (_SHALLOW, _DEEP) for one in sweep.under(reading).cases(scale)]


def _claims(scale: Scale, results: Results, reading: str) -> list[Claim]:
    gains = {}
    for depth, sweep in (("shallow", _SHALLOW.under(reading)), ("deep", _DEEP.under(reading))):
        fixed, fixed_push, slope, slope_push = (sweep.average(results, scale, policy) for policy in _POLICIES)
        gains[depth] = {"fixed": fixed_push - fixed, "slope": slope_push - slope}
    listed = ", ".join(f"{depth} {kind} {gain:+.3f}" for depth, found in gains.items() for kind, gain in found.items())
    return [
        Claim(
            "push-through helps slope-slack most",
            "slope-slack most",
            listed,
            gains["shallow"]["slope"] > 0 and gains["shallow"]["slope"] > gains["shallow"]["fixed"],
        ),
        Claim(
            "push-through helps deep networks most",
            "deep most",
            listed,
            all(gains["deep"][kind] > gains["shallow"][kind] for kind in ("fixed", "slope")),
        ),
    ]


def _judge(scale: Scale, results: Results) -> Findings:
    rows: list[Row] = []
    panels = []
    for reading in READINGS:
        for depth, sweep in ((5, _SHALLOW.under(reading)), (20, _DEEP.under(reading))):
            rows += [{"charge": reading, "depth": depth, **row} for row in sweep.rows(results, scale, ("qos", "decision_share"))]
            panels.append(sweep.panel(results, scale, f"{depth} boxes an application, charge {reading}"))
    return Findings(rows, beside(lambda reading: _claims(scale, results, reading), "S"), panels)


SCENARIO = Scenario(
    "c-push",
    "Carney 2005, fig. 4.14",
    "push-through for shallow and deep networks",
    "20 applications of 5 boxes of 0.1 ms, and of 20 boxes of 0.025 ms; otherwise as c-qos.",
    _cases,
    _judge,
    (CHARGED, "the rates: those of c-qos; for the deep network, scaled to the capacity of its boxes and calls (1,220 a second)"),
)
