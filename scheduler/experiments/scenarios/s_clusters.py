"""What BSD's implementations cost (Sharaf 2007, 3.8.3, figures 27 and 28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, mean, ordered, percent
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

_LOAD = 0.95
_COUNTS: dict[Scale, tuple[int, ...]] = {"reduced": (2, 12), "medium": (2, 6, 12, 24), "full": (2, 4, 6, 8, 10, 12, 16, 24, 48, 96)}
_TUPLES: dict[Scale, int] = {"reduced": 300, "medium": 1_500, "full": 4_000}


def _case(scale: Scale, policy: str, seed: int, *, charged: bool, **more: bool) -> ExperimentCase:
    parameters = {"policy": policy, "load": _LOAD, "seed": seed, "queries": grid.SIZES[scale].queries, "tuples": _TUPLES[scale]}
    return ExperimentCase("cluster_runs:clusters", {**parameters, "charged": charged, **more})


def _plain(scale: Scale, seed: int) -> list[ExperimentCase]:
    return [
        _case(scale, "bsd-naive", seed, charged=False),
        _case(scale, "bsd-naive", seed, charged=True),
        _case(scale, "hnr", seed, charged=False),
        _case(scale, "bsd-log:clusters=12", seed, charged=False),
        _case(scale, "bsd-log:clusters=12", seed, charged=True, pruned=False),
    ]


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    found: list[ExperimentCase] = []
    for seed in grid.SIZES[scale].seeds:
        found += _plain(scale, seed)
        found += [
            _case(scale, f"bsd-{kind}:clusters={count}", seed, charged=True) for kind in ("log", "uniform") for count in _COUNTS[scale]
        ]
    return found


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    seeds = grid.SIZES[scale].seeds

    def value(policy: str, *, charged: bool, **more: bool) -> float:
        return mean([float(results(_case(scale, policy, seed, charged=charged, **more))["slowdown_l2"]) for seed in seeds])

    free = value("bsd-naive", charged=False)
    counts = _COUNTS[scale]
    over = {
        kind: {count: value(f"bsd-{kind}:clusters={count}", charged=True) / free - 1.0 for count in counts} for kind in ("log", "uniform")
    }
    naive, hnr = value("bsd-naive", charged=True) / free - 1.0, value("hnr", charged=False) / free - 1.0
    linear = value("bsd-log:clusters=12", charged=True, pruned=False) / free
    few = counts[0]
    claims = [
        Claim(
            "BSD-log with 12 clusters is near overhead-free BSD",
            "5% above",
            f"{percent(over['log'][12])} above",
            over["log"][12] <= 0.10,
            f"{percent(value('bsd-log:clusters=12', charged=False) / free - 1.0)} above where deciding costs nothing; "
            f"overhead-free HNR is {percent(hnr)} above",
        ),
        Claim(
            "uniform clusters are far worse than logarithmic ones while they are few",
            "far above",
            f"with {few}: uniform {percent(over['uniform'][few])}, log {percent(over['log'][few])} above",
            over["uniform"][few] >= 2.0 * max(over["log"][few], 0.05),
        ),
        ordered(
            "pruning the search gains on clusters alone, and these on naive BSD (l2 over that of overhead-free BSD)",
            ["clusters, pruned", "clusters", "naive"],
            [1.0 + over["log"][12], linear, 1.0 + naive],
        ),
        Claim("naive BSD is unusable when deciding costs", "6470% above", f"{percent(naive)} above", naive >= 10.0),
    ]
    rows: list[Row] = [
        {"policy": f"BSD-{kind}", "clusters": count, "slowdown_l2_over_free": share}
        for kind, found in over.items()
        for count, share in found.items()
    ]
    rows += [{"policy": "BSD-naive", "slowdown_l2_over_free": naive}, {"policy": "HNR", "slowdown_l2_over_free": hnr}]
    lines = [Line(f"BSD-{kind}", counts, [1.0 + found[count] for count in counts]) for kind, found in over.items()]
    lines += [Line("HNR", counts, [1.0 + hnr] * len(counts)), Line("BSD without overhead", counts, [1.0] * len(counts))]
    panel = Panel(f"Utilisation {_LOAD}", "clusters", "l2 of slowdown over that of free BSD", lines, x_log=True, y_log=True)
    return Findings(rows, claims, [panel])


SCENARIO = Scenario(
    "s-clusters",
    "Sharaf 2007, fig. 27, 28",
    "what the implementations of BSD cost",
    f"As s-slowdown at utilisation {_LOAD}. Every priority computed costs twice the cheapest operator: once to compute, once to compare.",
    _cases,
    _judge,
    grid.SUBSTITUTED,
)
