"""Box-at-a-time against application-at-a-time (Carney 2005, 3.4.2, figure 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario
from millstream.scheduler.experiments.scenarios.carney_sweep import SCHEDULED, TURNS
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = {TURNS: "box at a time", "superbox:traversal=min-cost": "application at a time"}
_CAPACITIES: dict[Scale, tuple[float, ...]] = {
    "reduced": (0.5, 0.9),
    "medium": (0.5, 0.7, 0.8, 0.9, 0.95),
    "full": (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99),
}
_SIZES: dict[Scale, tuple[int, int]] = {"reduced": (2, 1_000), "medium": (5, 4_000), "full": (5, 40_000)}


def _case(scale: Scale, policy: str, capacity: float) -> ExperimentCase:
    trees, tuples = _SIZES[scale]
    parameters = {"policy": policy, "capacity": capacity, "trees": trees, "depth": 5, "fan_out": 3, "tuples": tuples, "seed": 1}
    return ExperimentCase("carney_runs:superbox", {**parameters, "train": 1.0})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, policy, capacity) for policy in _POLICIES for capacity in _CAPACITIES[scale]]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    capacities = _CAPACITIES[scale]
    table = {policy: [float(results(_case(scale, policy, one))["response_ms_mean"]) for one in capacities] for policy in _POLICIES}
    boxes, whole = table.values()
    # Saturated: ten times the latency of the lowest load.
    ends = [next((one for one, value in zip(capacities, found, strict=True) if value > 10.0 * found[0]), 1.0) for found in (boxes, whole)]
    claims = [
        Claim(
            "box-at-a-time saturates earlier than application-at-a-time",
            "earlier",
            f"{ends[0]:g} against {ends[1]:g}",
            ends[0] < ends[1],
        ),
        Claim(
            "application-at-a-time holds up to 90% of capacity",
            "past 0.9",
            f"latency at 0.9 is {whole[capacities.index(0.9)] / whole[0]:.1f} times that at {capacities[0]}",
            whole[capacities.index(0.9)] <= 10.0 * whole[0],
        ),
        Claim(
            "box-at-a-time's latency is above at every load",
            "above",
            ", ".join(f"{a:.3g}/{b:.3g} ms" for a, b in zip(boxes, whole, strict=True)),
            all(a > b for a, b in zip(boxes, whole, strict=True)),
        ),
    ]
    rows: list[Row] = [
        {"mode": _POLICIES[policy], "capacity": capacity, "response_ms_mean": value}
        for policy, found in table.items()
        for capacity, value in zip(capacities, found, strict=True)
    ]
    lines = [Line(_POLICIES[policy], capacities, found) for policy, found in table.items()]
    return Findings(
        rows, claims, [Panel("Trees of fan-out 3, depth 5", "share of ideal capacity", "average latency, ms", lines, y_log=True)]
    )


SCENARIO = Scenario(
    "c-superbox",
    "Carney 2005, fig. 3.6",
    "box-at-a-time against application-at-a-time",
    "5 trees of fan-out 3 and depth 5, costs 0.1 to 1 ms, evenly spaced tuples; round-robin over boxes, "
    "and over applications walked min-cost; a box takes all of its queue.",
    _cases,
    _judge,
    (SCHEDULED,),
)
