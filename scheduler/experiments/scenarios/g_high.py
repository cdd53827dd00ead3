"""Schedule sharing at the high data rate (Golab 2006, 5.3, figures 7 and 8)."""

from __future__ import annotations

from millstream.scheduler.experiments.frame import Claim, Findings, Scale, Scenario, mean
from millstream.scheduler.experiments.scenarios.golab_sweep import AGGRESSIVE_NOTE, POLICIES, SUBSTITUTED, GolabSweep, Results

_SWEEP = GolabSweep(3_000.0, 2.0)
_BEST = "hybrid-late-pending"


def _judge(scale: Scale, results: Results) -> Findings:
    throughput = {policy: mean(_SWEEP.values(scale, results, policy, "throughput")) for policy in POLICIES}
    latency = {policy: mean(_SWEEP.values(scale, results, policy, "latency")) for policy in POLICIES}
    gain = throughput[_BEST] / throughput["hybrid"]
    most, least = max(throughput, key=throughput.__getitem__), min(latency, key=latency.__getitem__)
    claims = [
        Claim("late-pending sharing more than doubles hybrid's throughput", "2", f"{gain:.2f}", gain > 2.0),
        Claim("late-pending sharing has the best throughput", _BEST, f"{most} ({throughput[most]:.3g})", most == _BEST, AGGRESSIVE_NOTE),
        Claim("late-pending sharing has the best latency", _BEST, f"{least} ({latency[least]:.3g})", least == _BEST, AGGRESSIVE_NOTE),
        Claim(
            "golab-none has the worst latency",
            "golab-none",
            max(latency, key=latency.__getitem__),
            max(latency, key=latency.__getitem__) == "golab-none",
        ),
    ]
    return Findings(_SWEEP.rows(scale, results), claims, _SWEEP.panels(scale, results))


SCENARIO = Scenario(
    "g-high",
    "Golab 2006, fig. 7, 8",
    "schedule sharing at 3,000 tuples a second",
    "As g-low, with twice the tuples and twice the different values.",
    _SWEEP.cases,
    _judge,
    SUBSTITUTED,
)
