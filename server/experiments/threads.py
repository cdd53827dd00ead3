"""Thread per operator against one scheduler (Carney 2005, figure 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario
from millstream.scheduler.simulation.plots import Line, Panel
from millstream.server.experiments.threads_runs import FILTERS

_RUNS = "millstream.server.experiments.threads_runs"
_CHAINS: dict[Scale, tuple[int, ...]] = {"reduced": (1, 10, 100), "medium": (1, 10, 50, 200), "full": (1, 10, 50, 200, 500)}
_CALLS: dict[Scale, int] = {"reduced": 3_000, "medium": 20_000, "full": 60_000}
_WAYS = ("thread per operator", "scheduler, 1 worker", "scheduler, 2 workers")


def _case(scale: Scale, way: str, chains: int) -> ExperimentCase:
    trains = max(3, _CALLS[scale] // (chains * (FILTERS + 1)))
    if way == _WAYS[0]:
        return ExperimentCase(f"{_RUNS}:threaded", {"chains": chains, "trains": trains})
    return ExperimentCase(f"{_RUNS}:scheduled", {"chains": chains, "trains": trains, "workers": 1 + _WAYS.index(way) - 1})


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, way, chains) for chains in _CHAINS[scale] for way in _WAYS]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    chains = _CHAINS[scale]
    found = {way: [float(results(_case(scale, way, number))["call_us"]) for number in chains] for way in _WAYS}
    few, many = (number * FILTERS for number in (chains[0], chains[-1]))
    grown = {way: times[-1] / times[0] for way, times in found.items()}
    threads = _WAYS[0]
    claims = [
        Claim(
            f"from {few} to {many} operators a call under thread per operator gets dearer by at least twice the factor as under {way}",
            "degrades far faster",
            f"{grown[threads]:.2f} times as dear against {grown[way]:.2f}",
            grown[threads] >= 2.0 * grown[way],
        )
        for way in _WAYS[1:]
    ]
    claims += [
        Claim(
            f"with {many} operators a call takes at least twice as long under thread per operator as under {way}",
            "far above",
            f"{found[threads][-1]:.0f} µs against {found[way][-1]:.0f} µs",
            found[threads][-1] >= 2.0 * found[way][-1],
        )
        for way in _WAYS[1:]
    ]
    operators = [number * FILTERS for number in chains]
    rows: list[Row] = [
        {"way": way, "operators": count, "call_us": time} for way in _WAYS for count, time in zip(operators, found[way], strict=True)
    ]
    lines = [Line(way, operators, found[way]) for way in _WAYS]
    return Findings(rows, claims, [Panel("Processor time of an operator's call", "operators", "µs", lines, x_log=True, y_log=True)])


SCENARIO = Scenario(
    "c-threads",
    "Carney 2005, fig. 3.3 (live)",
    "a thread for each operator against one scheduler",
    "Chains of five filters on one stream, on the real engine: ten rows enter at a time, the next when all "
    "results are there; processor time of the process, switching threads included.",
    _cases,
    _judge,
    (
        "the thesis's C++ server by this engine, whose threads share the interpreter's lock",
        "with few operators a call carries more of what letting a train in and waiting for its results costs",
    ),
)
