"""Classes, load managers and DILoS on the real engine (Pham 2013, IV and V): the simulated experiments' claims on live runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.scheduler.experiments.frame import ExperimentCase, Findings, Result, Scale, Scenario
from millstream.scheduler.experiments.scenarios.pham_claims import CLAIMS, FIGURES, SOURCE, STEPS, TITLES, findings, settled, setup

_LOAD = 0.8
"""Rate of every stream by what the engine carries when all rows wait. Trains are then longest: it carries less as rows come."""

_SECONDS: dict[str, dict[Scale, float]] = {
    "constant": {"reduced": 8.0, "medium": 30.0, "full": 120.0},
    "steps": {"reduced": 18.0, "medium": 60.0, "full": 300.0},
}


def _scenario(kind: str) -> Scenario:
    steps = kind == "steps"

    def cases(scale: Scale) -> list[ExperimentCase]:
        one = _LOAD / 1_300.0
        rates = [[one * rate for rate in STEPS], [one * 1_500.0], [one * 900.0]] if steps else [[_LOAD]] * 3
        seconds = _SECONDS["steps" if steps else "constant"][scale]
        parameters = {"load": "dilos" if steps else kind, "rates": rates, "seconds": seconds, "stepped": scale == "reduced"}
        return [ExperimentCase("millstream.server.experiments.classes_runs:classes", parameters)]

    def judge(scale: Scale, result: Callable[[ExperimentCase], Result]) -> Findings:
        (case,) = cases(scale)
        told = result(case)
        found = findings(told["classes"], CLAIMS[kind](told["classes"]))
        return replace(found, rows=[{**row, "capacity_rows_per_s": told["capacity"]} for row in found.rows])

    return Scenario(
        f"d-{kind}-live",
        f"{SOURCE}, {FIGURES[kind]} (live)",
        f"{TITLES[kind]}, on the real engine",
        setup(
            "Real queries over two streams a class, whose first operators take 0.4 to 0.8 ms a row; rates by what the engine was measured "
            "to carry just before; at reduced scale in one thread on its processor time, so that other work of the machine does not count."
        ),
        cases,
        judge,
        (
            "1,300 tuples a second by 0.8 of the rate at which a burst is worked off: rows that come one by one make shorter trains",
            "rows come ten times a second, as a watermark that comes with a shed row still passes every operator of its class",
            "the response time over time: that of the query of the class that fares worst in the cycle, which the manager sees",
            *settled(kind, live=True),
        ),
    )


NONE, COMMON, CLASS, DILOS, STEPPED = (_scenario(kind) for kind in ("none", "common", "class", "dilos", "steps"))
