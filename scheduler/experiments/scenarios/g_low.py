"""Schedule sharing at the low data rate (Golab 2006, 5.2, figures 5 and 6)."""

from __future__ import annotations

from millstream.scheduler.experiments.frame import Claim, Findings, Scale, Scenario, at_least_half, mean, ordered
from millstream.scheduler.experiments.scenarios.golab_sweep import AGGRESSIVE_NOTE, SUBSTITUTED, GolabSweep, Results

_SWEEP = GolabSweep(1_500.0, 1.0)


def _judge(scale: Scale, results: Results) -> Findings:
    def value(policy: str, measure: str) -> float:
        return mean(_SWEEP.values(scale, results, policy, measure))

    gain = value("hybrid", "throughput") / value("conservative", "throughput")
    tasks = value("hybrid", "tasks") / value("conservative", "tasks")
    cut = value("conservative", "latency") / max(1e-9, value("hybrid", "latency"))
    names = ("hybrid", "hybrid-late", "hybrid-late-pending")
    late = [value(name, "throughput") for name in names]
    latency = [value(name, "latency") for name in reversed(names)]
    others = {name: value(name, "latency") for name in ("aggressive", "hybrid")}
    claims = [
        Claim("hybrid at least doubles conservative's throughput", "2", f"{gain:.2f}", gain >= 2.0),
        Claim("hybrid cuts conservative's latency tenfold (half of that is asked for)", "10", f"{cut:.2f}", cut >= 5.0),
        at_least_half("hybrid shortens more than half of the periods, so half the tasks are left", 0.5, 1.0 - tasks),
        ordered("late and late-pending sharing add throughput", names, late),
        ordered("late and late-pending sharing cut latency", tuple(reversed(names)), latency),
        Claim(
            "aggressive has good throughput",
            "above hybrid",
            f"{value('aggressive', 'throughput'):.3g} against {late[0]:.3g}",
            value("aggressive", "throughput") > late[0],
        ),
        Claim(
            "aggressive has poor latency",
            "above hybrid",
            f"{others['aggressive']:.3g} against {others['hybrid']:.3g}",
            others["aggressive"] > others["hybrid"],
            AGGRESSIVE_NOTE,
        ),
    ]
    return Findings(_SWEEP.rows(scale, results), claims, _SWEEP.panels(scale, results))


SCENARIO = Scenario(
    "g-low",
    "Golab 2006, fig. 5, 6",
    "schedule sharing at 1,500 tuples a second",
    "Eight groups of top-k and quantile queries over packet headers, windows of 20 to 100 updates, SLIDE from one to half of that.",
    _SWEEP.cases,
    _judge,
    SUBSTITUTED,
)
