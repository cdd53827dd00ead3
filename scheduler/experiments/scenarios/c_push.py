"""Push-through for shallow and deep networks (Carney 2005, 4.5, figure 4.14)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario
from millstream.scheduler.experiments.scenarios.c_qos import NETWORK, RATES
from millstream.scheduler.experiments.scenarios.carney_sweep import CHARGED, FIXED, FIXED_PUSH, SLOPE, SLOPE_PUSH, CarneySweep, Results

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
    return [*_SHALLOW.cases(scale), *_DEEP.cases(scale)]


def _judge(scale: Scale, results: Results) -> Findings:
    gains = {}
    for depth, sweep in (("shallow", _SHALLOW), ("deep", _DEEP)):
        fixed, fixed_push, slope, slope_push = (sweep.average(results, scale, policy) for policy in _POLICIES)
        gains[depth] = {"fixed": fixed_push - fixed, "slope": slope_push - slope}
    listed = ", ".join(f"{depth} {kind} {gain:+.3f}" for depth, found in gains.items() for kind, gain in found.items())
    claims = [
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
    rows = [{"depth": 5, **row} for row in _SHALLOW.rows(results, scale, ("qos", "decision_share"))]
    rows += [{"depth": 20, **row} for row in _DEEP.rows(results, scale, ("qos", "decision_share"))]
    panels = [_SHALLOW.panel(results, scale, "5 boxes an application"), _DEEP.panel(results, scale, "20 boxes an application")]
    return Findings(rows, claims, panels)


SCENARIO = Scenario(
    "c-push",
    "Carney 2005, fig. 4.14",
    "push-through for shallow and deep networks",
    "20 applications of 5 boxes of 0.1 ms, and of 20 boxes of 0.025 ms; otherwise as c-qos.",
    _cases,
    _judge,
    (CHARGED, "the rates: those of c-qos; for the deep network, scaled to the capacity of its boxes and calls (1,220 a second)"),
)
