"""Results that many clients subscribe to: computed, encoded and ranked once for all of them (Sharaf 2007, future work)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Result, Row, Scale, Scenario, mean, ordered, percent, reduction
from millstream.scheduler.experiments.scenarios.multicast_runs import WAYS
from millstream.scheduler.simulation.plots import Line, Panel

_LOAD = 0.9
_RANKS = ("max", "sum", "pdt")
_SIZES: dict[Scale, tuple[int, int, int, tuple[int, ...]]] = {
    "reduced": (5, 40, 150, (1,)),
    "medium": (12, 100, 300, (1,)),
    "full": (25, 300, 1_000, (1, 2, 3)),
}
"""Families of four queries, subscriptions, tuples, seeds."""


def _parameters(scale: Scale, way: str, seed: int) -> dict[str, object]:
    families, subscriptions, tuples, _ = _SIZES[scale]
    return {"way": way, "families": families, "subscriptions": subscriptions, "tuples": tuples, "seed": seed}


def _work(scale: Scale, way: str, seed: int) -> ExperimentCase:
    return ExperimentCase("multicast_runs:work", _parameters(scale, way, seed))


def _ranked(scale: Scale, rank: str, seed: int) -> ExperimentCase:
    return ExperimentCase("multicast_runs:ranked", {**_parameters(scale, "contained", seed), "policy": f"hr:sharing={rank}", "load": _LOAD})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    seeds = _SIZES[scale][3]
    works = [_work(scale, way, seed) for way in WAYS for seed in seeds]
    return works + [_ranked(scale, rank, seed) for rank in _RANKS for seed in seeds]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    seeds = _SIZES[scale][3]
    work = {way: mean([float(results(_work(scale, way, seed))["utilisation"]) for seed in seeds]) for way in WAYS}
    share = {way: one / work["apart"] for way, one in work.items()}
    response = {rank: mean([float(results(_ranked(scale, rank, seed))["response_ms_mean"]) for seed in seeds]) for rank in _RANKS}
    gains = ", ".join(f"{percent(reduction(response['pdt'], response[rank]))} below {rank.capitalize()}" for rank in ("max", "sum"))
    claims = [
        ordered(
            "each step saves work: equal queries as one, their results encoded once, narrower queries asked of wider ones",
            ["contained", "encoded once", "computed once", "apart"],
            [share[way] for way in reversed(WAYS)],
            paper="future work",
        ),
        ordered(
            "a shared result ranked by all whom it serves (PDT) comes sooner than ranked by the best of them or by the plain sum, ms",
            ["PDT", "the better of Max and Sum"],
            [response["pdt"], min(response["max"], response["sum"])],
            paper="future work",
            note=gains,
        ),
    ]
    rows: list[Row] = [{"way": way, "work": work[way], "of_apart": share[way]} for way in WAYS]
    rows += [{"way": "contained", "rank": rank, "response_ms_mean": one} for rank, one in response.items()]
    panels = [
        Panel("Work at the same rate", "", "of every subscription apart", [Line("work", list(WAYS), list(share.values()))], kind="bar"),
        Panel(f"HR at {_LOAD}", "rank of what is shared", "ms", [Line("response", list(_RANKS), list(response.values()))], kind="bar"),
    ]
    return Findings(rows, claims, panels)


SCENARIO = Scenario(
    "s-multicast",
    "Sharaf 2007, 6.2.1",
    "results that many clients subscribe to",
    f"Families of four queries (select, join, encode, send) that differ in the bound of their select; subscriptions follow a Zipf "
    f"distribution over the queries; the rest as s-slowdown, at {_LOAD} for the ranks.",
    _cases,
    _judge,
    (
        "everything: the thesis names multicast and merged results as future work, without a set-up or a number",
        "encoding costs what an operator of the query costs, sending a quarter of that",
    ),
)
