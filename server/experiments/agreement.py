"""Does the simulator foresee the live engine? Average response times, and the order of policies.

One live run beside its simulation: the same arrivals, the same fates of tuples, costs as the live run measured them.

Queries `SELECT v FROM s WHERE u_i <= bound_i` whose selections take a set time a row, at least ten times what dispatching takes. The
values u_i are drawn from a seed; the simulation looks the same values up, so that the same rows pass.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.graph import OperatorId
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.drivers.virtual import DecisionCost
from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, percent
from millstream.scheduler.simulation import recording
from millstream.scheduler.simulation.arrivals import Times, poisson
from millstream.scheduler.simulation.path_outcomes import AttributeDraws
from millstream.scheduler.simulation.plots import Line, Panel
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.server.experiments.rig import LiveEngine, SteppedEngine, quick_switching
from millstream.server.host.recordings import ArrivalRecording
from numpy.typing import NDArray

POLICIES = ("fcfs", "hr", "round-robin")
UTILISATIONS = (0.5, 0.7, 0.9)
TOLERANCE = 0.25
GAP_MIN = 0.10
_SIZE: dict[Scale, tuple[int, int]] = {"reduced": (1, 150), "medium": (3, 300), "full": (5, 600)}
QUERIES: tuple[tuple[float, float], ...] = ((1.0, 0.9), (2.0, 0.5), (4.0, 0.2))
_WARM_UP_ROWS = 40
_SETTINGS = "train=1,schedule=1"


def cases(scale: Scale) -> Sequence[ExperimentCase]:
    """Return all runs, policies taking turns, so that what else the machine does meets all alike."""
    repeats, tuples = _SIZE[scale]
    return [
        ExperimentCase(
            "millstream.server.experiments.agreement:run", {"policy": policy, "utilisation": load, "tuples": tuples, "seed": seed}
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
            "policies have the same order wherever they differ by more than 10% in the simulator",
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
    "does the simulator predict the live engine?",
    "Three queries with a selection of 1, 2 and 4 ms a row each that lets 90, 50 and 20% pass, one worker, Poisson arrivals; the live run "
    "is recorded, and the recording simulated.",
    cases,
    _judge,
)


# Cost of the selection in ms a row and its selectivity, a query each: what is cheap is productive, so that policies differ.


def run(policy: str, utilisation: float, tuples: int, seed: int, stepped: bool = False) -> Mapping[str, Any]:
    """Run live, then simulate what was recorded; return both averages and medians of the response time in ms.

    `stepped` keeps to this thread and the processor time it spends (see rig.py), for machines that have other things to do.
    """
    named = f"{policy}:{_SETTINGS}"
    with quick_switching(), SteppedEngine(named) if stepped else LiveEngine(named) as engine:
        values = np.random.default_rng(seed).uniform(size=(len(QUERIES), tuples))
        _prepare(engine)
        _warm_up(engine)
        spent_ns = engine.scheduler.ask(_work_per_tuple)
        times = poisson(utilisation * 1e9 / spent_ns, tuples, seed)
        told, measured = _live(engine, values, times)
    predicted = _simulated(policy, told, values, seed)
    return {
        "policy": policy,
        "utilisation": utilisation,
        "live_ms": measured["mean"],
        "live_p50_ms": measured["p50"],
        "simulated_ms": predicted["response_ms_mean"],
        "simulated_p50_ms": predicted["response_ms_p50"],
        "live_results": measured["results"],
        "simulated_results": predicted["results"],
        "dispatch_us": json.loads(told[0])["order_ns"] / 1e3,
    }


def _prepare(engine: LiveEngine) -> None:
    columns = ", ".join(f"u{place} DOUBLE" for place in range(len(QUERIES)))
    engine.execute(f"CREATE STREAM s (ts BIGINT, v BIGINT, {columns}) TIMESTAMP BY ts UNIT us")
    for place, (cost_ms, bound) in enumerate(QUERIES):
        engine.execute(f"CREATE QUERY q{place} AS SELECT v FROM s WHERE u{place} <= {bound}")
        engine.slow_down(engine.operator(f"q{place}", "select"), round(cost_ms * 1e6))


def _rows(engine: LiveEngine, values: NDArray[np.float64]) -> list[Any]:
    count = values.shape[1]
    names = {f"u{place}": pa.array(column) for place, column in enumerate(values)}
    batch = pa.record_batch({"ts": pa.array(range(count)), "v": pa.array(range(count)), **names})
    return [engine.columns("s", batch.slice(number, 1)) for number in range(count)]


def _warm_up(engine: LiveEngine) -> None:
    """Let every operator be measured: rows that pass everywhere, one at a time."""
    for row in _rows(engine, np.zeros((len(QUERIES), _WARM_UP_ROWS))):
        engine.push("s", row)
        engine.settle()


def _work_per_tuple(core: SchedulerCore) -> float:
    """Return what a row of the stream costs in all, in ns: what a time share is made of."""
    core.estimates.refresh(force=True)
    network, selections = core.network, 0.0
    for query in network.queries.values():
        slots = [network.operators.slot_of[one] for one in query.operators]
        place = next(number for number, slot in enumerate(slots) if network.node(slot).kind == "select")
        bound = QUERIES[int(query.name.removeprefix("q"))][1]
        costs = [core.estimates.cost_ns.item(slot) for slot in slots]
        selections += costs[place] + bound * sum(costs[place + 1 :])
    return selections


def _live(engine: LiveEngine, values: NDArray[np.float64], times: Times) -> tuple[list[str], dict[str, float]]:
    scheduler, rows = engine.scheduler, _rows(engine, values)
    engine.measure_anew()
    begin_ns = engine.clock_ns()
    noted = ArrivalRecording(scheduler, engine.host.network, begin_ns)
    engine.runtime.record(noted)
    engine.play("s", rows, times.tolist(), begin_ns)
    engine.runtime.record(None)
    measures = scheduler.measures()
    assert measures is not None
    report = measures.report(engine.clock_ns()).output
    told = noted.end(engine.clock_ns())
    return told.lines, {
        "mean": report.response_ms_mean,
        "p50": report.response_ms_p50,
        "results": float(report.outputs),
    }


def _simulated(policy: str, lines: Sequence[str], values: NDArray[np.float64], seed: int) -> Mapping[str, float]:
    found = recording.parse(lines)
    (log,) = found.arrivals
    bounds: dict[OperatorId, tuple[int, float]] = {}
    for delta in found.deltas:
        place = int(delta.query.name.removeprefix("q"))
        selection = next(node.id for node in delta.operators if node.kind == "select")
        bounds[selection] = (place, QUERIES[place][1])
    work = replace(found.workload("live"), draws=lambda _seed: AttributeDraws({log: values}, bounds))
    settings = RunSettings(charge=DecisionCost(order_ns=int(found.about["order_ns"])))
    return simulate(work, f"{policy}:{_SETTINGS}", seed=seed, settings=settings).summary()
