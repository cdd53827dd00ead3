"""Does the simulator foresee the live engine? Average response times, and the order of policies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, percent
from millstream.scheduler.simulation.plots import Line, Panel

POLICIES = ("fcfs", "hr", "round-robin")
UTILISATIONS = (0.5, 0.7, 0.9)
TOLERANCE = 0.25
GAP_MIN = 0.10
_SIZE: dict[Scale, tuple[int, int]] = {"reduced": (1, 150), "medium": (3, 300), "full": (5, 600)}


def cases(scale: Scale) -> Sequence[ExperimentCase]:
    """Return all runs, policies taking turns, so that what else the machine does meets all alike."""
    repeats, tuples = _SIZE[scale]
    return [
        ExperimentCase(
            "millstream.server.experiments.agreement_runs:run", {"policy": policy, "utilisation": load, "tuples": tuples, "seed": seed}
        )
        for load in UTILISATIONS
        for seed in range(1, repeats + 1)
        for policy in POLICIES
    ]


def medians(found: Sequence[Result]) -> dict[tuple[float, str], tuple[float, float]]:
    """Return by utilisation and policy the median over repeats of live and of simulated average response time, in ms."""
    groups: dict[tuple[float, str], list[Result]] = {}
    for one in found:
        groups.setdefault((one["utilisation"], one["policy"]), []).append(one)
    return {key: (median(one["live_ms"] for one in runs), median(one["simulated_ms"] for one in runs)) for key, runs in groups.items()}


def errors(found: Sequence[Result]) -> dict[tuple[float, str], float]:
    """Return by utilisation and policy the median over repeats of how far live is from simulated, as a share of simulated."""
    groups: dict[tuple[float, str], list[float]] = {}
    for one in found:
        groups.setdefault((one["utilisation"], one["policy"]), []).append(abs(one["live_ms"] / one["simulated_ms"] - 1.0))
    return {key: median(values) for key, values in groups.items()}


def disordered(averages: Mapping[tuple[float, str], tuple[float, float]], gap_min: float = GAP_MIN) -> list[str]:
    """Return the pairs of policies that the simulator sets apart by more than `gap_min` and the live engine orders the other way."""
    found = []
    for (load, first), (other_load, second) in itertools.permutations(averages, 2):
        if load == other_load:
            (live, simulated), (other_live, other) = averages[load, first], averages[load, second]
            if other > (1.0 + gap_min) * simulated and other_live <= live:
                found.append(f"{first} before {second} at {load}")
    return found


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    found = [results(case) for case in cases(scale)]
    averages, off = medians(found), errors(found)
    worst = max(off, key=lambda key: off[key])
    wrong = disordered(averages)
    claims = [
        Claim(
            "measured costs fed to the simulator predict the live average response time within 25%",
            percent(TOLERANCE),
            f"{percent(off[worst])} at most, {percent(median(off.values()))} in the middle",
            off[worst] <= TOLERANCE,
            f"furthest off is {worst[1]} at {worst[0]}",
        ),
        Claim(
            "policies stand in the same order wherever the simulator sets them apart by more than 10%",
            "the same order",
            "the same order" if not wrong else "turned round: " + "; ".join(wrong),
            not wrong,
        ),
    ]
    rows: list[Row] = [dict(one) for one in found]
    lines = [
        Line(f"{policy}, {word}", list(UTILISATIONS), [averages[load, policy][place] for load in UTILISATIONS])
        for policy in POLICIES
        for place, word in enumerate(("live", "simulated"))
    ]
    return Findings(rows, claims, [Panel("Average response time", "utilisation", "ms", lines, y_log=True)])


SCENARIO = Scenario(
    "agreement-live",
    "live engine against simulator",
    "does the simulator foresee the live engine?",
    "Three queries with a selection of 1, 2 and 4 ms a row each that lets 90, 50 and 20% pass, one worker, Poisson arrivals; the live run "
    "is recorded, and the recording simulated.",
    cases,
    _judge,
)
