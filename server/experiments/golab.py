"""Schedule sharing over real synopses (Golab 2006, 5.2 and 5.3): g-low-live and g-high-live."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, mean, ordered
from millstream.scheduler.simulation.plots import Line, Panel
from millstream.server.experiments.golab_runs import LOAD, LOAD_QUERIES

_RUN = "millstream.server.experiments.golab_runs:run"
POLICIES = ("golab-none", "conservative", "aggressive", "hybrid", "hybrid-late", "hybrid-late-pending")
QUERIES: dict[Scale, tuple[int, ...]] = {"reduced": (40, 160), "medium": (40, 80, 160, 240), "full": (40, 80, 160, 240)}
SEEDS: dict[Scale, tuple[int, ...]] = {"reduced": (1,), "medium": (1,), "full": (1, 2, 3)}
UPDATES: dict[Scale, int] = {"reduced": 60, "medium": 100, "full": 200}
_LATE = ("hybrid", "hybrid-late", "hybrid-late-pending")
_SUBSTITUTED = (
    "the packet headers: random values of as many different kinds as in g-low; eight groups over six keys, as top-k and quantiles over "
    "source and destination stand apart",
    "the second between updates: updates come as often as gives golab-none a load of 1.2 with 40 queries at the low rate on this machine, "
    "measured at the start",
    "top-k by the greatest values, as TOP has it, not by the most frequent ones",
)
_NOTE_LATENCY = "latency counts updates in excess of SLIDE; nobody is late where there is time enough"


class Sweep:
    """The cases of one data rate, as in the simulated experiments."""

    def __init__(self, rate: int, values_factor: float) -> None:
        self.rate, self.values_factor = rate, values_factor

    def case(self, scale: Scale, policy: str, queries: int, seed: int) -> ExperimentCase:
        """Return one run."""
        what = {"policy": policy, "queries": queries, "seed": seed, "updates": UPDATES[scale]}
        return ExperimentCase(_RUN, {**what, "rate": self.rate, "values_factor": self.values_factor})

    def cases(self, scale: Scale) -> Sequence[ExperimentCase]:
        """Return all runs, policies taking turns."""
        return [self.case(scale, p, n, seed) for seed in SEEDS[scale] for n in QUERIES[scale] for p in POLICIES]

    def values(self, scale: Scale, results: Callable[[ExperimentCase], Result], policy: str, measure: str) -> list[float]:
        """Return a measure for each number of queries, averaged over the seeds."""
        return [mean([float(results(self.case(scale, policy, n, s))[measure]) for s in SEEDS[scale]]) for n in QUERIES[scale]]

    def findings(self, scale: Scale, results: Callable[[ExperimentCase], Result], claims: Sequence[Claim]) -> Findings:
        """Return table and panels with the claims."""
        measures = ("throughput", "latency", "tasks", "interval_ms")
        rows: list[Row] = []
        panels = []
        for policy in POLICIES:
            found = {m: self.values(scale, results, policy, m) for m in measures}
            rows += [{"policy": policy, "queries": n, **{m: found[m][i] for m in measures}} for i, n in enumerate(QUERIES[scale])]
        for measure, label in (("throughput", "queries re-executed an update"), ("latency", "updates beyond SLIDE")):
            lines = [Line(p, QUERIES[scale], self.values(scale, results, p, measure)) for p in POLICIES]
            panels.append(Panel(f"{measure} at {self.rate} tuples an update", "queries", label, lines, y_log=measure == "latency"))
        return Findings(rows, claims, panels)


_LOW, _HIGH = Sweep(1_500, 1.0), Sweep(3_000, 2.0)


def _judge_low(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    def value(policy: str, measure: str) -> float:
        return mean(_LOW.values(scale, results, policy, measure))

    gain = value("hybrid", "throughput") / value("conservative", "throughput")
    cut = value("conservative", "latency") / max(1e-9, value("hybrid", "latency"))
    overload = max(_LOW.values(scale, results, "golab-none", "latency"))
    claims = [
        Claim(
            f"golab-none is overloaded (load {LOAD} with {LOAD_QUERIES} queries)", "late", f"{overload:.3g} updates late", overload > 0.0
        ),
        Claim("hybrid at least doubles conservative's throughput", "2", f"{gain:.2f}", gain >= 2.0),
        Claim("hybrid cuts conservative's latency tenfold (half of that is asked for)", "10", f"{cut:.3g}", cut >= 5.0, _NOTE_LATENCY),
        ordered("late and late-pending sharing add throughput", _LATE, [value(p, "throughput") for p in _LATE], tolerance=0.05),
        ordered("late and late-pending sharing cut latency", _LATE[::-1], [value(p, "latency") for p in reversed(_LATE)], tolerance=0.05),
        Claim(
            "aggressive has good throughput",
            "above hybrid",
            f"{value('aggressive', 'throughput'):.3g} against {value('hybrid', 'throughput'):.3g}",
            value("aggressive", "throughput") > value("hybrid", "throughput"),
        ),
    ]
    return _LOW.findings(scale, results, claims)


def _judge_high(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    throughput = {policy: mean(_HIGH.values(scale, results, policy, "throughput")) for policy in POLICIES}
    latency = {policy: mean(_HIGH.values(scale, results, policy, "latency")) for policy in POLICIES}
    best = _LATE[-1]
    gain = throughput[best] / throughput["hybrid"]
    most, least = max(throughput, key=throughput.__getitem__), min(latency, key=latency.__getitem__)
    worst = max(latency, key=latency.__getitem__)
    claims = [
        Claim("late-pending sharing more than doubles hybrid's throughput", "2", f"{gain:.2f}", gain > 2.0),
        Claim("late-pending sharing has the best throughput", best, f"{most} ({throughput[most]:.3g})", most == best),
        Claim("late-pending sharing has the best latency", best, f"{least} ({latency[least]:.3g})", least == best),
        Claim("golab-none has the worst latency", "golab-none", f"{worst} ({latency[worst]:.3g})", worst == "golab-none"),
    ]
    return _HIGH.findings(scale, results, claims)


LOW = Scenario(
    "g-low-live",
    "Golab 2006, fig. 5, 6 (live)",
    "schedule sharing over real synopses",
    "Eight groups of top-k and quantile queries, windows of 20 to 100 updates, SLIDE from one to half of that, 1,500 tuples an update; "
    "over the synopses and the task queue of the engine; processor time of the thread that runs them.",
    _LOW.cases,
    _judge_low,
    _SUBSTITUTED,
)
HIGH = Scenario(
    "g-high-live",
    "Golab 2006, fig. 7, 8 (live)",
    "schedule sharing over real synopses, twice the data",
    "As g-low-live, with twice the tuples and twice the different values in the same time.",
    _HIGH.cases,
    _judge_high,
    _SUBSTITUTED,
)
