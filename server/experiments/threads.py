"""Thread per operator against one scheduler (Carney 2005, figure 3.3).

A thread for each operator against one scheduler with workers (Carney 2005, 3.2.1): the only place where there is such a thing.

Both run the same operators, queues and executor. With threads, each operator's thread sleeps until the one before it has put something
out. One train enters at a time, and the next when all results of the one before are there: so neither gains from longer trains. What is
measured is the processor time of the whole process, switching between threads included: other processes do not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.work import OrderId, Step, WorkOrder
from millstream.engine.flow.running import RunningOperator
from millstream.engine.runtime.executor import Executor
from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario
from millstream.scheduler.simulation.plots import Line, Panel
from millstream.server.benchmarks.embedding import Embedded
from millstream.server.experiments.rig import LiveEngine, quick_switching
from millstream.server.statements.selects import Submission, submit

_RUNS = "millstream.server.experiments.threads"
_CHAINS: dict[Scale, tuple[int, ...]] = {"reduced": (1, 10, 100), "medium": (1, 10, 50, 200), "full": (1, 10, 50, 200, 500)}
_CALLS: dict[Scale, int] = {"reduced": 3_000, "medium": 20_000, "full": 60_000}
_WAYS = ("thread per operator", "scheduler, 1 worker", "scheduler, 2 workers")
FILTERS = 5
_ROWS = 10
_STREAM = "CREATE STREAM s (ts BIGINT, a BIGINT) TIMESTAMP BY ts UNIT us"


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
            f"from {few} to {many} operators the cost of a call under thread per operator grows by at least twice the factor as under "
            f"{way}",
            "degrades far faster",
            f"{grown[threads]:.2f} times the cost against {grown[way]:.2f}",
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
    "Chains of five filters on one stream, on the real engine: ten rows enter at a time; the next ten enter when all results are there; "
    "processor time of the process, switching threads included.",
    _cases,
    _judge,
    (
        "this engine, whose threads share the interpreter's lock, for the thesis's C++ server",
        "with few operators a call carries more of what letting a train in and waiting for its results costs",
    ),
)


def chain_plan(number: int) -> dict[str, Any]:
    """Return a chain of five filters that let everything pass, with constants of its own."""
    node: dict[str, Any] = {"op": "source", "stream": "s"}
    for step in range(FILTERS):
        node = {"op": "select", "condition": f"a < {1_000 + number * FILTERS + step}", "input": node}
    return {"version": 1, "root": node}


def _batch() -> pa.RecordBatch:
    return pa.record_batch({"ts": pa.array(range(_ROWS)), "a": pa.array(range(_ROWS))})


def scheduled(chains: int, trains: int, workers: int) -> Mapping[str, Any]:
    """Return the processor time of an operator's call under the scheduler, in µs."""
    with quick_switching(), LiveEngine("round-robin", workers=workers) as engine:
        engine.execute(_STREAM)
        for number in range(chains):
            submit(engine.host, Submission(plan=chain_plan(number), name=f"q{number}"), engine)
        columns = engine.columns("s", _batch())
        spent_ns = 0
        for number in range(trains + 1):
            begin_ns = time.process_time_ns()
            engine.push("s", columns)
            engine.settle()
            spent_ns += time.process_time_ns() - begin_ns if number else 0  # the first meets cold code
        return _told(engine.results.rows, chains, trains, spent_ns)


def threaded(chains: int, trains: int) -> Mapping[str, Any]:
    """Return the same with a thread for each operator."""
    engine = Embedded(_STREAM)
    for number in range(chains):
        engine.submit(chain_plan(number), f"q{number}")
    with quick_switching(), _Threads(engine) as threads:
        columns = engine.columns("s", _batch())
        spent_ns = 0
        for number in range(trains + 1):
            begin_ns = time.process_time_ns()
            engine.push("s", columns)
            threads.run_once()
            spent_ns += time.process_time_ns() - begin_ns if number else 0
        return _told(engine.results.rows, chains, trains, spent_ns)


def _told(rows: int, chains: int, trains: int, spent_ns: int) -> Mapping[str, Any]:
    assert rows == chains * (trains + 1) * _ROWS, f"{rows} results"
    calls = chains * trains * (FILTERS + 1)
    return {"operators": chains * FILTERS, "call_us": spent_ns / 1e3 / calls}


class _Threads:
    """A thread for each operator of an engine; a signal wakes the first of a chain, and each wakes the next."""

    def __init__(self, engine: Embedded) -> None:
        self._executor = Executor(engine.host.network, fuse=False)
        self._first: list[SimpleQueue[bool]] = []
        self._every: list[SimpleQueue[bool]] = []
        self._ended = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        network = engine.host.network
        for query in network.queries.values():
            self._chain(query.blueprint.operators)

    def _chain(self, operators: list[RunningOperator] | tuple[RunningOperator, ...]) -> None:
        woken: list[SimpleQueue[bool]] = [SimpleQueue() for _ in operators]
        self._first.append(woken[0])
        self._every.extend(woken)
        for place, operator in enumerate(operators):
            following = woken[place + 1] if place + 1 < len(woken) else None
            thread = threading.Thread(target=self._run, args=(operator.id, woken[place], following), daemon=True)
            self._threads.append(thread)

    def _run(self, operator: OperatorId, woken: SimpleQueue[bool], following: SimpleQueue[bool] | None) -> None:
        order = WorkOrder(OrderId(1), (Step(operator),))
        while woken.get():
            self._executor.run(order, time.perf_counter_ns)
            if following is None:
                self._ended.release()
            else:
                following.put(True)

    def __enter__(self) -> _Threads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        for one in self._every:
            one.put(False)
        for thread in self._threads:
            thread.join()

    def run_once(self) -> None:
        """Wake all chains and wait for all."""
        for one in self._first:
            one.put(True)
        for _ in self._first:
            self._ended.acquire()
