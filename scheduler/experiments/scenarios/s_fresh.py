"""Freshness-aware scheduling (Sharaf 2007, 4.5, figures 36 to 42)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.scheduler.experiments.frame import (
    Claim,
    ExperimentCase,
    Findings,
    Result,
    Row,
    Scale,
    Scenario,
    at_least_half,
    mean,
    ordered,
    percent,
    reduction,
)
from millstream.scheduler.simulation.plots import Line, Panel

_POLICIES = ("rr", "fcfs", "hr", "fas")
_BETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
_SIZES: dict[Scale, tuple[int, int, tuple[int, ...], tuple[float, ...]]] = {
    "reduced": (50, 100, (1,), (0.95,)),
    "medium": (250, 400, (1,), (0.5, 0.95)),
    "full": (250, 10_000, (1,), (0.1, 0.5, 0.7, 0.9, 0.95)),
}
_SKEWS: dict[Scale, tuple[float, ...]] = {"reduced": (0.0, 3.0), "medium": (0.0, 1.0, 3.0), "full": (0.0, 1.0, 2.0, 3.0)}
_BURSTY: dict[Scale, tuple[int, ...]] = {"reduced": (5,), "medium": (0, 5, 10), "full": (0, 2, 5, 8, 10)}


def _case(scale: Scale, policy: str, load: float, seed: int, *, bursty: int = 5, **more: Any) -> ExperimentCase:
    queries, tuples, _, _ = _SIZES[scale]
    parameters = {"policy": policy, "load": load, "seed": seed, "queries": queries, "tuples": tuples, "bursty": bursty}
    return ExperimentCase("sharaf_runs:fresh", {**parameters, **more})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    _, _, seeds, loads = _SIZES[scale]
    found = []
    for seed in seeds:
        found += [_case(scale, policy, load, seed) for load in loads for policy in _POLICIES]
        found += [_case(scale, f"fas:beta={beta}", 0.95, seed) for beta in _BETAS]
        found += [_case(scale, policy, 0.95, seed, skew=skew, classes=1) for skew in _SKEWS[scale] for policy in ("hr", "fas")]
        found += [_case(scale, policy, 0.95, seed, bursty=bursty) for bursty in _BURSTY[scale] for policy in ("hr", "fas")]
        found += [_case(scale, policy, 0.95, seed, keep=True) for policy in ("hr", "fas")]
    return found


class _Reader:
    def __init__(self, scale: Scale, results: Callable[[ExperimentCase], Result]) -> None:
        self.scale, self.results = scale, results

    def __call__(self, policy: str, measure: str, load: float = 0.95, **more: Any) -> float:
        seeds = _SIZES[self.scale][2]
        return mean([float(self.results(_case(self.scale, policy, load, seed, **more))[measure]) for seed in seeds])


def _panels(
    scale: Scale, value: _Reader, by_beta: dict[float, tuple[float, float]], by_skew: list[float], normalized: list[float]
) -> list[Panel]:
    loads, skews, bursts = _SIZES[scale][3], _SKEWS[scale], _BURSTY[scale]
    return [
        Panel(
            "Staleness",
            "utilisation",
            "share of time",
            [Line(policy.upper(), loads, [value(policy, "staleness", load) for load in loads]) for policy in _POLICIES],
        ),
        Panel("β at 0.95", "response time, ms", "staleness", [Line(f"β = {beta:g}", [one[0]], [one[1]]) for beta, one in by_beta.items()]),
        Panel("Skewed selectivity at 0.95", "Zipf parameter", "staleness saved against HR", [Line("FAS", skews, by_skew)]),
        Panel("Bursty streams of ten at 0.95", "bursty streams", "staleness over HR's", [Line("FAS", bursts, normalized)]),
    ]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    value = _Reader(scale, results)
    loads, skews, bursts = _SIZES[scale][3], _SKEWS[scale], _BURSTY[scale]
    stale = {policy: value(policy, "staleness") for policy in _POLICIES}
    slower = value("fas", "response_ms_mean") / value("hr", "response_ms_mean") - 1.0
    others = {
        "queries": value("fas", "response_ms_by_query") / value("hr", "response_ms_by_query") - 1.0,
        "all tuples, filtered ones too": value("fas", "response_ms_mean", keep=True) / value("hr", "response_ms_mean", keep=True) - 1.0,
        "results of bursty streams": value("fas", "response_ms_bursty") / value("hr", "response_ms_bursty") - 1.0,
        "results of calm streams": value("fas", "response_ms_calm") / value("hr", "response_ms_calm") - 1.0,
    }
    by_skew = [reduction(value("fas", "staleness", skew=one, classes=1), value("hr", "staleness", skew=one, classes=1)) for one in skews]
    by_beta = {beta: (value(f"fas:beta={beta}", "response_ms_mean"), value(f"fas:beta={beta}", "staleness")) for beta in _BETAS}
    normalized = [value("fas", "staleness", bursty=one) / value("hr", "staleness", bursty=one) for one in bursts]
    claims = [
        at_least_half("at 0.95 FAS's staleness is below HR's", 0.40, reduction(stale["fas"], stale["hr"])),
        Claim(
            "at the price of more response time",
            percent(0.23),
            percent(slower),
            0.0 <= slower <= 0.46,
            "averaged over results; over " + ", ".join(f"{name} {percent(one)}" for name, one in others.items()),
        ),
        ordered(
            "at 0.95 staleness: FAS lowest, then HR",
            ["FAS", "HR", "the better of RR and FCFS"],
            [stale["fas"], stale["hr"], min(stale["rr"], stale["fcfs"])],
        ),
        ordered(
            "a greater β gives less staleness",
            [f"β {beta:g}" for beta in reversed(_BETAS)],
            [by_beta[beta][1] for beta in reversed(_BETAS)],
            tolerance=0.01,
        ),
        at_least_half("skewed selectivity, equal costs: the gain goes up to so much", 0.55, max(by_skew)),
    ]
    rows: list[Row] = [
        {
            "experiment": "load",
            "policy": policy,
            "x": load,
            "staleness": value(policy, "staleness", load),
            "response_ms_mean": value(policy, "response_ms_mean", load),
        }
        for policy in _POLICIES
        for load in loads
    ]
    rows += [
        {"experiment": "beta", "policy": "fas", "x": beta, "staleness": one[1], "response_ms_mean": one[0]} for beta, one in by_beta.items()
    ]
    rows += [
        {"experiment": "skew", "policy": "fas over hr", "x": skew, "staleness": 1 - gain} for skew, gain in zip(skews, by_skew, strict=True)
    ]
    rows += [
        {"experiment": "bursty", "policy": "fas over hr", "x": one, "staleness": share}
        for one, share in zip(bursts, normalized, strict=True)
    ]
    return Findings(rows, claims, _panels(scale, value, by_beta, by_skew, normalized))


SCENARIO = Scenario(
    "s-fresh",
    "Sharaf 2007, fig. 36-42",
    "freshness-aware scheduling",
    "250 queries over ten Poisson streams, half of them in bursts of ten; costs K, 2K, 4K; selectivity "
    "0.1 to 1.0 (Zipf towards 1.0 where skewed).",
    _cases,
    _judge,
    ('the cost of the calendar queue, which the thesis charges and calls "slightly", is not charged',),
)
