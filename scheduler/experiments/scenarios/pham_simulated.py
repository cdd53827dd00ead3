"""The simulated scenarios of Pham 2013: one a load manager, and one of steps."""

from __future__ import annotations

from collections.abc import Callable

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Result, Scale, Scenario
from millstream.scheduler.experiments.scenarios.pham_claims import (
    CLAIMS,
    FIGURES,
    SOURCE,
    STEPS,
    SUBSTITUTED,
    TITLES,
    findings,
    seconds_of,
    settled,
    setup,
)

_CONSTANT = [[1_300.0], [1_300.0], [1_300.0]]


def scenario(kind: str) -> Scenario:
    """Return the scenario of a load manager (none, common, class, dilos) or of steps."""
    steps = kind == "steps"

    def cases(scale: Scale) -> list[ExperimentCase]:
        rates = [list(STEPS), [1_500.0], [900.0]] if steps else _CONSTANT
        slow = {"reduced": 20.0, "medium": 10.0, "full": 1.0}[scale]
        return [
            ExperimentCase(
                "pham_runs:classes",
                {"load": "dilos" if steps else kind, "rates": rates, "seconds": seconds_of(scale, kind), "slow": slow, "seed": 1},
            )
        ]

    def judge(scale: Scale, result: Callable[[ExperimentCase], Result]) -> Findings:
        (case,) = cases(scale)
        found = result(case)["classes"]
        return findings(found, CLAIMS[kind](found))

    load = (
        "Two streams a class: 1,500 and 900 tuples a second for classes 2 and 3, for class 1 in turn "
        + ", ".join(f"{rate:,.0f}" for rate in STEPS)
        + "."
        if steps
        else "1,300 tuples a second on two streams for each class."
    )
    smaller = "at less than full scale rates are divided, and costs and the round of CQC multiplied, by 10 (medium) or 20 (reduced)"
    return Scenario(
        f"d-{kind}",
        f"{SOURCE}, {FIGURES[kind]}",
        TITLES[kind],
        setup(load),
        cases,
        judge,
        (*SUBSTITUTED, *settled(kind), *(("the rates of class 1, which the paper shows in a figure only",) if steps else ()), smaller),
    )


SCENARIOS = {f"d-{kind}": scenario(kind) for kind in ("none", "common", "class", "dilos", "steps")}
