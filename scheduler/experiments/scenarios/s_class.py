"""Slowdown of low-cost queries by selectivity (Sharaf 2007, 3.8.1.8, figure 14)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Row, Scale, Scenario
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("hr", "hnr", "bsd-naive")


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _POLICIES, [grid.nearest(scale, 0.95)])


def _by_selectivity(scale: Scale, results: grid.Results, policy: str) -> dict[int, float]:
    """Return mean slowdown of queries of the lowest cost by tenth of selectivity, over all seeds."""
    sums: dict[int, list[float]] = {}
    for seed in grid.SIZES[scale].seeds:
        for cost, tenth, slowdown, count in results(grid.case(scale, policy, grid.nearest(scale, 0.95), seed))["classes"]:
            if cost == 0:
                entry = sums.setdefault(int(tenth), [0.0, 0.0])
                entry[0] += slowdown * count
                entry[1] += count
    return {tenth: total / count for tenth, (total, count) in sorted(sums.items())}


def _judge(scale: Scale, results: grid.Results) -> Findings:
    table = {policy: _by_selectivity(scale, results, policy) for policy in _POLICIES}
    bias = {policy: found[min(found)] / found[max(found)] for policy, found in table.items()}
    ours = ", ".join(f"{grid.TITLES[policy]} {number:.3g}" for policy, number in bias.items())
    claims = [
        Claim(
            "bias against unproductive queries (slowdown of the least over that of the most selective class of "
            "low cost) falls from HR over HNR to BSD",
            "HR > HNR > BSD",
            ours,
            bias["hr"] > bias["hnr"] > bias["bsd-naive"],
        )
    ]
    rows: list[Row] = [
        {"policy": grid.TITLES[policy], "selectivity_from": tenth / 10, "slowdown_mean": number}
        for policy, found in table.items()
        for tenth, number in found.items()
    ]
    lines = [Line(grid.TITLES[policy], [tenth / 10 for tenth in found], list(found.values())) for policy, found in table.items()]
    return Findings(rows, claims, [Panel("Queries of the lowest cost", "selectivity from", "average slowdown", lines, y_log=True)])


SCENARIO = Scenario(
    "s-class",
    "Sharaf 2007, fig. 14",
    "slowdown of low-cost queries by selectivity, load 0.95",
    grid.SETUP,
    _cases,
    _judge,
    grid.SUBSTITUTED,
)
