"""Memory over time under bursts (Pajjuri 2004, 6.5, figure 6.7)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Scale, Scenario, ordered
from millstream.scheduler.experiments.scenarios import pajjuri_sweep as sweep
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("segment", "simplified-segment", "path-capacity", "round-robin")
_SIZES: dict[Scale, tuple[int, int, int]] = {"reduced": (50, 10, 40), "medium": (500, 10, 4), "full": (2_000, 10, 1)}


def _case(scale: Scale, policy: str) -> ExperimentCase:
    window, windows, quick = _SIZES[scale]
    return ExperimentCase("pajjuri_runs:burst", {"policy": policy, "window": window, "windows": windows, "seed": 1, "quick": quick})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, policy) for policy in _POLICIES]


def _judge(scale: Scale, results: sweep.Results) -> Findings:
    found = {policy: results(_case(scale, policy)) for policy in _POLICIES}
    names = [sweep.POLICIES[policy] for policy in _POLICIES[:3]]

    def least(measure: str) -> tuple[list[str], list[float]]:
        others = min(float(found[policy][measure]) for policy in _POLICIES[1:])
        return ["segment", "the least of the others"], [float(found["segment"][measure]), others]

    claims = [
        ordered("segment's memory is lowest on the average", *least("memory_bytes_mean")),
        ordered("segment's memory is flattest (least deviation over time)", *least("memory_deviation")),
        ordered(
            "maximum memory: segment, then simplified segment, then path capacity",
            names,
            [float(found[policy]["memory_bytes_max"]) for policy in _POLICIES[:3]],
        ),
    ]
    rows = [
        {
            "policy": sweep.POLICIES[policy],
            **{name: found[policy][name] for name in ("memory_bytes_mean", "memory_bytes_max", "memory_deviation")},
        }
        for policy in _POLICIES
    ]
    lines = [Line(sweep.POLICIES[policy], found[policy]["at_s"], found[policy]["bytes"]) for policy in _POLICIES]
    return Findings(rows, claims, [Panel("Bursts of 80 a second", "s", "bytes in queues", lines, kind="step")])


SCENARIO = Scenario(
    "p-burst",
    "Pajjuri 2004, fig. 6.7",
    "memory over time under bursts",
    "The query of p-latency with windows of 2000 tuples, 10 windows; 40 tuples a second on each stream, "
    "80 from 150 to 200 s and from 300 to 350 s.",
    _cases,
    _judge,
    (
        sweep.QUERY,
        "the costs: the machine of p-latency, with a join over twice the window at twice the cost, so the capacity is 30 tuples a "
        "second: in the thesis, memory rises as long as tuples arrive",
        sweep.SUBSTITUTED[2],
    ),
)
