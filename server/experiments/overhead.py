"""Tuples, trains and superboxes on the real engine (Carney 2005, figure 3.10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, ordered
from millstream.scheduler.simulation.plots import Line, Panel

_MODES = {
    "tuple at a time": "round-robin:train=1,schedule=1",
    "trains": "round-robin:train=all,schedule=1",
    "superboxes": "superbox:traversal=min-cost,train=all,schedule=1",
}
_TUPLES: dict[Scale, int] = {"reduced": 30, "medium": 300, "full": 3_000}


def _case(scale: Scale, mode: str) -> ExperimentCase:
    parameters = {"policy": _MODES[mode], "trees": 4, "fan_out": 3, "depth": 3, "tuples": _TUPLES[scale]}
    return ExperimentCase("millstream.server.experiments.overhead_runs:trees", parameters)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, mode) for mode in _MODES]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    found = {mode: results(_case(scale, mode)) for mode in _MODES}
    total = {mode: (one["deciding_ns"] + one["running_ns"]) / 1e9 for mode, one in found.items()}
    share = {mode: one["deciding_ns"] / (one["deciding_ns"] + one["running_ns"]) for mode, one in found.items()}
    claims = [
        Claim(
            "trains take far less time than tuple at a time (a third less at least)",
            "far below",
            ", ".join(f"{mode} {value * 1e3:.3g} ms" for mode, value in total.items()),
            total["trains"] <= 0.67 * total["tuple at a time"],
        ),
        Claim(
            "superboxes about halve the time of trains",
            "half",
            f"{total['superboxes'] / total['trains']:.2f} of it",
            total["superboxes"] <= 0.75 * total["trains"],
        ),
        ordered("the scheduler's share grows from tuples over trains to superboxes", list(share), list(share.values())),
    ]
    rows: list[Row] = [{"mode": mode, "total_s": total[mode], "deciding_share": share[mode], **one} for mode, one in found.items()]
    parts = (("running_ns", "operators and their calls"), ("deciding_ns", "scheduler"))
    lines = [Line(title, list(_MODES), [float(found[mode][name]) / 1e9 for mode in _MODES]) for name, title in parts]
    return Findings(rows, claims, [Panel("Processor time for all tuples", "", "s", lines, kind="bar", y_log=True)])


SCENARIO = Scenario(
    "c-overhead-live",
    "Carney 2005, fig. 3.10 (live)",
    "where the time goes, on the real engine",
    "Four trees of fan-out 3 and depth 3, a filter and a union a box, all tuples waiting at the start; processor time of "
    "deciding and running.",
    _cases,
    _judge,
    (
        "depth 5 by 3",
        "a box's own work is not told apart from calling it: a filter of one integer costs next to nothing",
    ),
)
