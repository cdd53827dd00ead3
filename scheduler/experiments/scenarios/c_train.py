"""Trains under bursts (Carney 2005, 3.4.4, figure 3.9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario
from millstream.scheduler.experiments.scenarios.carney_sweep import SCHEDULED, TURNS
from millstream.scheduler.simulation.plots import Line, Panel

_BURSTS = (1, 2, 4)
_TRAINS = (0.2, 0.4, 0.6, 0.8, 1.0)
_TUPLES: dict[Scale, int] = {"reduced": 320, "medium": 3_000, "full": 24_000}
_LOAD = 0.3


def _case(scale: Scale, burst: int, train: float) -> ExperimentCase:
    parameters = {"policy": TURNS, "capacity": _LOAD, "trees": 1, "depth": 5, "fan_out": 2, "tuples": _TUPLES[scale], "seed": 1}
    return ExperimentCase("carney_runs:superbox", {**parameters, "burst": burst, "train": train, "in_turn": True})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, burst, train) for burst in _BURSTS for train in _TRAINS]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    def overhead_ms(burst: int, train: float) -> float:
        found = results(_case(scale, burst, train))
        return float(found["response_ms_mean"]) - float(found["useful_ns"]) / float(found["results"]) / 1e6

    table = {burst: [overhead_ms(burst, train) for train in _TRAINS] for burst in _BURSTS}
    plain = table[1][0]
    flat = max(table[1]) / min(table[1]) - 1.0
    claims = [
        Claim("bursts of 1: trains change nothing", "flat", f"{100 * flat:.1f}% between least and most", flat <= 0.05),
        Claim(
            "bursts of 4: overhead falls markedly as trains grow",
            "falls",
            f"{table[4][0] / table[4][-1]:.2f} times from 0.2 to 1.0",
            table[4][0] >= 1.25 * table[4][-1],
        ),
        Claim(
            "with whole queues the overhead of bursts of 4 is near the unbursty one",
            "near",
            f"{table[4][-1] / plain:.2f} times",
            table[4][-1] <= 1.25 * plain,
            "the thesis says itself that they do not converge: a tuple of a burst waits for the work on those before it",
        ),
        Claim(
            "with trains of 0.2, bursts of 4 have about four times the overhead",
            "4 times",
            f"{table[4][0] / plain:.2f} times",
            2.0 <= table[4][0] / plain <= 8.0,
        ),
    ]
    rows: list[Row] = [
        {"burst": burst, "train": train, "overhead_ms": value}
        for burst, found in table.items()
        for train, value in zip(_TRAINS, found, strict=True)
    ]
    lines = [Line(f"bursts of {burst}", _TRAINS, found) for burst, found in table.items()]
    return Findings(rows, claims, [Panel("One tree of fan-out 2, depth 5", "train, share of the queue", "overhead a tuple, ms", lines)])


SCENARIO = Scenario(
    "c-train",
    "Carney 2005, fig. 3.9",
    "trains under bursts",
    "One tree of fan-out 2 and depth 5 under round-robin box at a time; bursts of 1, 2, 4 tuples an input, inputs out of step. Overhead is "
    "the time from a tuple's arrival to its result minus the work on it, because in the thesis the time that a tuple waits behind its "
    "burst counts.",
    _cases,
    _judge,
    (
        SCHEDULED,
        "the load, because the thesis does not state it here, only that the system is not saturated: 0.3 of the ideal capacity, as boxes "
        "cost as much again when they are scheduled; it was 0.5 before, and the bursts of all inputs came together",
    ),
)
