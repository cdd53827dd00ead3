"""What a scheduler that knows the future would gain (Sharaf 2007, 3.8.1.10, figure 16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Result, Row, Scale, Scenario, at_least_half, ordered, reduction
from millstream.scheduler.experiments.scenarios import s_selectivity as base
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

_PAIRS = (("hr", "response_ms_mean"), ("hnr", "slowdown_mean"))


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    policies = [name for policy, _ in _PAIRS for name in (policy, f"oracle-{policy}")]
    return [base.case(scale, policy, high, seed) for high in base.HIGHS[scale] for policy in policies for seed in grid.SIZES[scale].seeds]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    highs = base.HIGHS[scale]
    gains = {
        policy: [
            reduction(base.value(results, scale, f"oracle-{policy}", high, measure), base.value(results, scale, policy, high, measure))
            for high in highs
        ]
        for policy, measure in _PAIRS
    }
    claims = []
    for policy, found in gains.items():
        title = grid.TITLES[policy]
        claims.append(at_least_half(f"maximum selectivity 0.1: the oracle improves on {title} by so much", 0.80, found[0]))
        claims.append(at_least_half(f"maximum selectivity 1.0: the oracle improves on {title} by so much", 0.12, found[-1]))
        claims.append(ordered(f"the oracle's gain over {title} falls as selectivity grows", ["at 1.0", "at 0.1"], [found[-1], found[0]]))
    rows: list[Row] = [
        {"policy": grid.TITLES[policy], "selectivity_max": high, "gain": gain}
        for policy, found in gains.items()
        for high, gain in zip(highs, found, strict=True)
    ]
    lines = [Line(f"{grid.TITLES[policy]}-O against {grid.TITLES[policy]}", highs, found) for policy, found in gains.items()]
    return Findings(rows, claims, [Panel("Gain of the oracle", "maximum selectivity", "share of the measure saved", lines)])


SCENARIO = Scenario(
    "s-oracle",
    "Sharaf 2007, fig. 16",
    "gain of a scheduler that knows which tuples pass",
    "As s-selectivity; HR by response time, HNR by slowdown. The oracle ranks by the true rate of the tuples that wait.",
    _cases,
    _judge,
    grid.SUBSTITUTED,
)
