"""Where the time goes: tuples, trains, superboxes (Carney 2005, 3.4.5, figure 3.10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, ordered
from millstream.scheduler.experiments.scenarios.carney_sweep import CHARGED
from millstream.scheduler.simulation.plots import Line, Panel

_MODES = {
    "tuple at a time": ("round-robin", 0.0),
    "trains": ("round-robin", 1.0),
    "superboxes": ("superbox:traversal=min-cost", 1.0),
}
_TUPLES: dict[Scale, int] = {"reduced": 500, "medium": 4_000, "full": 100_000}


_CHEAP_US = 5.0


def _case(scale: Scale, mode: str, cost_us: float | None = None) -> ExperimentCase:
    policy, train = _MODES[mode]
    parameters = {"policy": policy, "capacity": 0.9, "trees": 4, "depth": 5, "fan_out": 3, "tuples": _TUPLES[scale], "seed": 1}
    return ExperimentCase("carney_runs:superbox", {**parameters, "train": train, "cost_us": cost_us})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, mode, cost_us) for cost_us in (None, _CHEAP_US) for mode in _MODES]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    found = {mode: results(_case(scale, mode)) for mode in _MODES}
    total = {mode: float(one["total_ns"]) / 1e9 for mode, one in found.items()}
    share = {
        mode: float(one["scheduling_ns"]) / max(float(one["scheduling_ns"]) + float(one["call_ns"]), 1.0) for mode, one in found.items()
    }
    listed = ", ".join(f"{mode} {value:.4g} s" for mode, value in total.items())
    cheap = {mode: float(results(_case(scale, mode, _CHEAP_US))["total_ns"]) / 1e9 for mode in _MODES}
    note = (
        f"calls of 16 µs are 3% of boxes of 0.1 to 1 ms in every mode; with boxes of {_CHEAP_US:g} µs trains take "
        f"{cheap['trains'] / cheap['tuple at a time']:.2f} of the time of tuples, superboxes {cheap['superboxes'] / cheap['trains']:.2f} "
        "of that of trains"
    )
    claims = [
        Claim(
            "trains take far less time than tuple at a time (a third less at least)",
            "far below",
            listed,
            total["trains"] <= 0.67 * total["tuple at a time"],
            note,
        ),
        Claim(
            "superboxes about halve the time of trains",
            "half",
            f"{total['superboxes'] / total['trains']:.2f} of it",
            total["superboxes"] <= 0.75 * total["trains"],
            note,
        ),
        ordered("the scheduler's share of the overhead grows from tuples over trains to superboxes", list(share), list(share.values())),
    ]
    rows: list[Row] = [
        {
            "mode": mode,
            "total_s": total[mode],
            "call_s": float(one["call_ns"]) / 1e9,
            "scheduling_s": float(one["scheduling_ns"]) / 1e9,
            "useful_s": float(one["useful_ns"]) / 1e9,
        }
        for mode, one in found.items()
    ]
    parts = (("useful_ns", "boxes' own work"), ("call_ns", "box calls"), ("scheduling_ns", "scheduler"))
    lines = [Line(title, list(_MODES), [float(found[mode][name]) / 1e9 for mode in _MODES]) for name, title in parts]
    return Findings(rows, claims, [Panel("Time for all tuples", "", "s", lines, kind="bar")])


SCENARIO = Scenario(
    "c-overhead",
    "Carney 2005, fig. 3.10",
    "where the time goes",
    "Four trees of fan-out 3 and depth 5, costs 0.1 to 1 ms, evenly spaced tuples.",
    _cases,
    _judge,
    (
        CHARGED,
        "one cost for each box call, for worker and storage overhead",
        "the load, because the thesis does not state it: 0.9 of the ideal capacity, up to which superboxes hold (figure 3.6)",
    ),
)
