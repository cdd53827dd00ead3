"""Average memory against load, and Chain under the other measures (Sharaf 2007, 3.8.2, figures 25 and 26)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario, at_least_half, within
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid

_POLICIES = ("chain", "hr", "brt", "hnr", "bsd-naive")


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _POLICIES)


def _judge(scale: Scale, results: grid.Results) -> Findings:
    load = 0.97
    memory = {policy: grid.value(results, scale, policy, load, "memory_bytes_mean") for policy in _POLICIES}
    listed = ", ".join(f"{grid.TITLES[policy]} {number:.4g}" for policy, number in memory.items())
    slowdown = {policy: grid.value(results, scale, policy, load, "slowdown_mean") for policy in ("chain", "hnr")}
    claims = [
        Claim(f"at {load} Chain needs the least memory", "Chain least", listed, min(memory, key=lambda one: memory[one]) == "chain"),
        at_least_half(
            "HNR's memory is up to so much below HR's", 0.22, grid.greatest_reduction(results, scale, "hnr", "hr", "memory_bytes_mean")
        ),
        at_least_half(
            "BSD's memory is up to so much below HNR's",
            0.13,
            grid.greatest_reduction(results, scale, "bsd-naive", "hnr", "memory_bytes_mean"),
        ),
        within(f"at {load} Chain's average slowdown is a multiple of HNR's", 3.0, slowdown["chain"] / slowdown["hnr"]),
    ]
    panels = [
        grid.curves(results, scale, _POLICIES, "memory_bytes_mean", "Average memory in queues", "tuples"),
        grid.curves(results, scale, _POLICIES, "slowdown_mean", "Average slowdown", "times the ideal"),
    ]
    return Findings(grid.rows(results, scale, _POLICIES, ("memory_bytes_mean", "memory_bytes_max", "slowdown_mean")), claims, panels)


SCENARIO = Scenario("s-memory", "Sharaf 2007, fig. 25, 26", "memory against load", grid.SETUP, _cases, _judge, grid.SUBSTITUTED)
