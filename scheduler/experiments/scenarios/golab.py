"""The experiments of Golab, Bijay and Özsu 2006, 5.2 and 5.3: six ways to share schedules at a low and at a high data rate."""

from __future__ import annotations

from millstream.scheduler.experiments.frame import Claim, Findings, Scale, Scenario, at_least_half, mean, ordered
from millstream.scheduler.experiments.scenarios.golab_sweep import AGGRESSIVE_NOTE, POLICIES, QUERIES, SUBSTITUTED, GolabSweep, Results

# ---- g-low
# Schedule sharing at the low data rate (Golab 2006, 5.2, figures 5 and 6).

_LOW_SWEEP = GolabSweep(1_500.0, 1.0)


def _low_judge(scale: Scale, results: Results) -> Findings:
    def value(policy: str, measure: str) -> float:
        return mean(_LOW_SWEEP.values(scale, results, policy, measure))

    gain = value("hybrid", "throughput") / value("conservative", "throughput")
    tasks = value("hybrid", "tasks") / value("conservative", "tasks")
    cut = value("conservative", "latency") / max(1e-9, value("hybrid", "latency"))
    names = ("hybrid", "hybrid-late", "hybrid-late-pending")
    late = [value(name, "throughput") for name in names]
    latency = [value(name, "latency") for name in reversed(names)]
    others = {name: value(name, "latency") for name in ("aggressive", "hybrid")}
    claims = [
        Claim(
            "hybrid at least doubles conservative's throughput (half as much again is asked for)",
            "2",
            f"{gain:.2f}",
            gain >= 1.5,
            f"by seed {_LOW_SWEEP.by_seed(scale, results, 'hybrid', 'conservative', 'throughput')}; the loads of golab-none with "
            f"{QUERIES[scale][0]} queries are {_LOW_SWEEP.loads(scale, results)}",
        ),
        Claim(
            "hybrid cuts conservative's latency tenfold (half of that is asked for)",
            "10",
            f"{cut:.2f}",
            cut >= 5.0,
            f"by seed {_LOW_SWEEP.by_seed(scale, results, 'conservative', 'hybrid', 'latency')}",
        ),
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
    return Findings(_LOW_SWEEP.rows(scale, results), claims, _LOW_SWEEP.panels(scale, results))


LOW = Scenario(
    "g-low",
    "Golab 2006, fig. 5, 6",
    "schedule sharing at 1,500 tuples a second",
    "Eight groups of top-k and quantile queries over packet headers, windows of 20 to 100 updates, SLIDE from one to half of that.",
    _LOW_SWEEP.cases,
    _low_judge,
    SUBSTITUTED,
)


# ---- g-high
# Schedule sharing at the high data rate (Golab 2006, 5.3, figures 7 and 8).

_HIGH_SWEEP = GolabSweep(3_000.0, 2.0)
_HIGH_BEST = "hybrid-late-pending"


def _high_judge(scale: Scale, results: Results) -> Findings:
    throughput = {policy: mean(_HIGH_SWEEP.values(scale, results, policy, "throughput")) for policy in POLICIES}
    latency = {policy: mean(_HIGH_SWEEP.values(scale, results, policy, "latency")) for policy in POLICIES}
    gain = throughput[_HIGH_BEST] / throughput["hybrid"]
    most, least = max(throughput, key=throughput.__getitem__), min(latency, key=latency.__getitem__)
    claims = [
        Claim(
            "late-pending sharing more than doubles hybrid's throughput (more than half as much again is asked for)",
            "2",
            f"{gain:.2f}",
            gain > 1.5,
            f"by seed {_HIGH_SWEEP.by_seed(scale, results, _HIGH_BEST, 'hybrid', 'throughput')}",
        ),
        Claim(
            "late-pending sharing has the best throughput",
            _HIGH_BEST,
            f"{most} ({throughput[most]:.3g})",
            most == _HIGH_BEST,
            AGGRESSIVE_NOTE,
        ),
        Claim(
            "late-pending sharing has the best latency", _HIGH_BEST, f"{least} ({latency[least]:.3g})", least == _HIGH_BEST, AGGRESSIVE_NOTE
        ),
        Claim(
            "golab-none has the worst latency",
            "golab-none",
            max(latency, key=latency.__getitem__),
            max(latency, key=latency.__getitem__) == "golab-none",
        ),
    ]
    return Findings(_HIGH_SWEEP.rows(scale, results), claims, _HIGH_SWEEP.panels(scale, results))


HIGH = Scenario(
    "g-high",
    "Golab 2006, fig. 7, 8",
    "schedule sharing at 3,000 tuples a second",
    "As g-low, with twice the tuples and twice the different values.",
    _HIGH_SWEEP.cases,
    _high_judge,
    SUBSTITUTED,
)


SCENARIOS = {scenario.name: scenario for scenario in (LOW, HIGH)}
