"""Schedule sharing over real synopses (Golab 2006, 5.2 and 5.3): g-low-live and g-high-live.

One run of Golab 2006, ch. 5 over the real synopses: panes of values with counts, read as the real task queue says.

Time is the processor time of this thread, set forward where there is nothing to do, so that a busy machine does not matter. An update comes
each `interval`: of all groups the newest pane is folded in and the oldest dropped. The interval is set by the machine: such that golab-none
with LOAD_QUERIES queries at the low rate asks for LOAD times what one processor has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np
from millstream.engine.data.arrivals import NO_ARRIVALS
from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.train import Numbers, Train
from millstream.engine.data.types import BIGINT, DOUBLE, list_of
from millstream.engine.data.watermarks import constant_track
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.pane_aggregates import Aggregates
from millstream.engine.windows.pane_states import Batch
from millstream.engine.windows.pane_values import Accumulator
from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, mean, ordered
from millstream.scheduler.experiments.scenarios.golab_runs import VALUES, WINDOWS, Costs, Load, note, tasks_of, workload
from millstream.scheduler.sharing.catalog import sharing_policy
from millstream.scheduler.sharing.tasks import Task, TaskQueue
from millstream.scheduler.simulation.plots import Line, Panel

_RUN = "millstream.server.experiments.golab:run"
POLICIES = ("golab-none", "conservative", "aggressive", "hybrid", "hybrid-late", "hybrid-late-pending")
QUERIES: dict[Scale, tuple[int, ...]] = {"reduced": (40, 160), "medium": (40, 80, 160, 240), "full": (40, 80, 160, 240)}
SEEDS: dict[Scale, tuple[int, ...]] = {"reduced": (1,), "medium": (1,), "full": (1, 2, 3)}
UPDATES: dict[Scale, int] = {"reduced": 60, "medium": 100, "full": 200}
_LATE = ("hybrid", "hybrid-late", "hybrid-late-pending")
_SUBSTITUTED = (
    "the packet headers: random values, with as many different values as in g-low; eight groups over six keys, because top-k and "
    "quantiles over source and destination are separate",
    "the time between updates, a second in the paper: it is measured at the start, so that golab-none with 40 queries at the low rate "
    "has a load of 1.2 on this machine",
    "top-k takes the greatest values, as TOP does, not the most frequent ones",
)
_NOTE_LATENCY = "latency counts updates in excess of SLIDE; no query is late if there is enough time"
LOW_RATE = 1_500
LOAD, LOAD_QUERIES = 1.2, 40
TOP_K = 10
QUANTILES = (0.5, 0.9, 0.95, 0.99)
_NOBODY = np.zeros(1, dtype=np.int64)  # the one group of a query without keys


class Sweep:
    """The cases of one data rate, as in the simulated experiments."""

    def __init__(self, rate: int, values_factor: float) -> None:
        self.rate, self.values_factor = rate, values_factor

    def case(self, scale: Scale, policy: str, queries: int, seed: int) -> ExperimentCase:
        """Return one run."""
        what = {"policy": policy, "queries": queries, "seed": seed, "updates": UPDATES[scale]}
        return ExperimentCase(_RUN, {**what, "rate": self.rate, "values_factor": self.values_factor})

    def cases(self, scale: Scale) -> Sequence[ExperimentCase]:
        """Return all runs, policies taking turns."""
        return [self.case(scale, p, n, seed) for seed in SEEDS[scale] for n in QUERIES[scale] for p in POLICIES]

    def values(self, scale: Scale, results: Callable[[ExperimentCase], Result], policy: str, measure: str) -> list[float]:
        """Return a measure for each number of queries, averaged over the seeds."""
        return [mean([float(results(self.case(scale, policy, n, s))[measure]) for s in SEEDS[scale]]) for n in QUERIES[scale]]

    def findings(self, scale: Scale, results: Callable[[ExperimentCase], Result], claims: Sequence[Claim]) -> Findings:
        """Return table and panels with the claims."""
        measures = ("throughput", "latency", "tasks", "interval_ms")
        rows: list[Row] = []
        panels = []
        for policy in POLICIES:
            found = {m: self.values(scale, results, policy, m) for m in measures}
            rows += [{"policy": policy, "queries": n, **{m: found[m][i] for m in measures}} for i, n in enumerate(QUERIES[scale])]
        for measure, label in (("throughput", "queries re-executed an update"), ("latency", "updates beyond SLIDE")):
            lines = [Line(p, QUERIES[scale], self.values(scale, results, p, measure)) for p in POLICIES]
            panels.append(Panel(f"{measure} at {self.rate} tuples an update", "queries", label, lines, y_log=measure == "latency"))
        return Findings(rows, claims, panels)


_LOW, _HIGH = Sweep(1_500, 1.0), Sweep(3_000, 2.0)


def _judge_low(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    def value(policy: str, measure: str) -> float:
        return mean(_LOW.values(scale, results, policy, measure))

    gain = value("hybrid", "throughput") / value("conservative", "throughput")
    cut = value("conservative", "latency") / max(1e-9, value("hybrid", "latency"))
    overload = max(_LOW.values(scale, results, "golab-none", "latency"))
    claims = [
        Claim(
            f"golab-none is overloaded (load {LOAD} with {LOAD_QUERIES} queries)", "late", f"{overload:.3g} updates late", overload > 0.0
        ),
        Claim("hybrid at least doubles conservative's throughput", "2", f"{gain:.2f}", gain >= 2.0),
        Claim("hybrid cuts conservative's latency tenfold (half of that is asked for)", "10", f"{cut:.3g}", cut >= 5.0, _NOTE_LATENCY),
        ordered("late and late-pending sharing add throughput", _LATE, [value(p, "throughput") for p in _LATE], tolerance=0.05),
        ordered("late and late-pending sharing cut latency", _LATE[::-1], [value(p, "latency") for p in reversed(_LATE)], tolerance=0.05),
        Claim(
            "aggressive has good throughput",
            "above hybrid",
            f"{value('aggressive', 'throughput'):.3g} against {value('hybrid', 'throughput'):.3g}",
            value("aggressive", "throughput") > value("hybrid", "throughput"),
        ),
    ]
    return _LOW.findings(scale, results, claims)


def _judge_high(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    throughput = {policy: mean(_HIGH.values(scale, results, policy, "throughput")) for policy in POLICIES}
    latency = {policy: mean(_HIGH.values(scale, results, policy, "latency")) for policy in POLICIES}
    best = _LATE[-1]
    gain = throughput[best] / throughput["hybrid"]
    most, least = max(throughput, key=throughput.__getitem__), min(latency, key=latency.__getitem__)
    worst = max(latency, key=latency.__getitem__)
    claims = [
        Claim("late-pending sharing more than doubles hybrid's throughput", "2", f"{gain:.2f}", gain > 2.0),
        Claim("late-pending sharing has the best throughput", best, f"{most} ({throughput[most]:.3g})", most == best),
        Claim("late-pending sharing has the best latency", best, f"{least} ({latency[least]:.3g})", least == best),
        Claim("golab-none has the worst latency", "golab-none", f"{worst} ({latency[worst]:.3g})", worst == "golab-none"),
    ]
    return _HIGH.findings(scale, results, claims)


LOW = Scenario(
    "g-low-live",
    "Golab 2006, fig. 5, 6 (live)",
    "schedule sharing over real synopses",
    "Eight groups of top-k and quantile queries, windows of 20 to 100 updates, SLIDE from one to half of that, 1,500 tuples an update; "
    "over the synopses and the task queue of the engine; processor time of the thread that runs them.",
    _LOW.cases,
    _judge_low,
    _SUBSTITUTED,
)
HIGH = Scenario(
    "g-high-live",
    "Golab 2006, fig. 7, 8 (live)",
    "schedule sharing over real synopses, twice the data",
    "As g-low-live, with twice the tuples and twice the different values in the same time.",
    _HIGH.cases,
    _judge_high,
    _SUBSTITUTED,
)


@dataclass(slots=True)
class Clock:
    """Processor time of this thread in ns from the beginning on, that can be set forward."""

    ahead_ns: int = field(default_factory=lambda: -time.thread_time_ns())

    def __call__(self) -> int:
        """Return the time."""
        return time.thread_time_ns() + self.ahead_ns

    def skip_to(self, at_ns: int) -> None:
        """Let it be then, if it is not later."""
        self.ahead_ns += max(0, at_ns - self())


class Synopsis:
    """The panes of one group of queries: as many as the longest window, newest first."""

    def __init__(self, values: int, rate: int, draw: np.random.Generator) -> None:
        schema = Schema((Field("v", BIGINT),))
        self._aggregates = Aggregates((), schema)
        self._trains = list(_headers(schema, values, rate, draw))
        self._panes: list[int] = []
        self._number = 0

    def include(self, name: str) -> Accumulator:
        """Return what answers a query: by turns a list of the k greatest and a quantile."""
        number = int(name.removeprefix("q")) // len(VALUES)
        quantile = AggregateCall("percentile_cont", (0,), DOUBLE, options=(QUANTILES[number // 2 % len(QUANTILES)],))
        return self._aggregates.include(quantile if number % 2 else AggregateCall("top", (0,), list_of(BIGINT), options=(TOP_K,)))

    def fold(self) -> None:
        """Take in an update's tuples; drop what no window reads."""
        train, table = self._trains[self._number % len(self._trains)], self._aggregates.table
        lo = table.open(self._number) * table.capacity
        self._aggregates.update(Batch(train, 0, train.rows, np.zeros(train.rows, dtype=np.int64), lo, lo + table.capacity, 0))
        self._panes.insert(0, self._number)
        self._number += 1
        if len(self._panes) > WINDOWS[1]:
            self._aggregates.close(self._panes.pop())

    def answer(self, asked: Mapping[Accumulator, Sequence[int]]) -> None:
        """Answer windows in one pass."""
        longest = max(window for windows in asked.values() for window in windows)
        slots = [self._aggregates.table.slots[pane] for pane in self._panes[:longest]]
        for accumulator, windows in asked.items():
            accumulator.answers(slots, [(window, _NOBODY) for window in windows])


def _headers(schema: Schema, values: int, rate: int, draw: np.random.Generator) -> Iterator[Train]:
    """Yield a few updates' tuples, which then come round again."""
    for _ in range(7):
        rows = Numbers(rate, start=0)
        column = Column(BIGINT, draw.integers(0, values, rate))
        yield Train(schema, [column], rows=rate, lo=0, hi=rate, seq=rows, time=rows, arrival=NO_ARRIVALS, track=constant_track(0, rate, 0))


class Machine:
    """Synopses with the queries over them, and what running these takes."""

    def __init__(self, queries: int, rate: int, values_factor: float, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.costs = Costs(rate, values_factor)
        self.groups = workload(queries, self.costs, seed)
        self.synopses = [Synopsis(values, rate, draw) for values in self.costs.values]
        self._accumulators = {
            query.name: synopsis.include(query.name) for synopsis, found in zip(self.synopses, self.groups, strict=True) for query in found
        }
        for _ in range(WINDOWS[1]):
            self.update()

    def update(self) -> None:
        """Fold an update into all groups."""
        for synopsis in self.synopses:
            synopsis.fold()

    def tasks(self, policy: str) -> list[Task]:
        """Return the tasks of all groups under a policy."""
        return [task for group, found in enumerate(self.groups) for task in tasks_of(policy, group, found, self.costs)]

    def run(self, tasks: Sequence[Task]) -> None:
        """Answer the queries of tasks of one group in one pass."""
        loads = [task.load for task in tasks if isinstance(task.load, Load)]
        asked: dict[Accumulator, list[int]] = {}
        for query in (q for load in loads for q in load.queries):
            asked.setdefault(self._accumulators[query.name], []).append(query.window)
        self.synopses[loads[0].group].answer(asked)


@lru_cache
def interval_ns(seed: int, load: float = LOAD, queries: int = LOAD_QUERIES, rate: int = LOW_RATE) -> int:
    """Return how long an update must take for golab-none to have this load on this machine."""
    machine = Machine(queries, rate, 1.0, seed)
    spent_ns = min(_timed(machine.update) for _ in range(5))
    asked_ns = sum(min(_timed_run(machine, task) for _ in range(3)) / task.period for task in machine.tasks("golab-none"))
    return round((spent_ns + asked_ns) / load)


def _timed(act: Any) -> int:
    begin_ns = time.thread_time_ns()
    act()
    return time.thread_time_ns() - begin_ns


def _timed_run(machine: Machine, task: Task) -> int:
    machine.update()  # what the last pass found is not found again
    return _timed(lambda: machine.run([task]))


def run(
    policy: str, queries: int, rate: int, values_factor: float, seed: int, updates: int, every_ns: int | None = None
) -> Mapping[str, Any]:
    """Run a workload under a policy; return queries re-executed per update and the average latency in updates."""
    every_ns = interval_ns(seed) if every_ns is None else every_ns
    machine = Machine(queries, rate, values_factor, seed)
    queue = TaskQueue(sharing_policy(policy).together)
    tasks = machine.tasks(policy)
    for task in tasks:
        queue.add(task)
    runs, late = _play(machine, queue, every_ns, updates)
    means = [sum(found) / len(found) for found in late.values() if found]
    return {
        "throughput": runs / updates,
        "latency": sum(means) / len(means) if means else float(updates),
        "tasks": len(tasks),
        "interval_ms": every_ns / 1e6,
    }


def _play(machine: Machine, queue: TaskQueue, every_ns: int, updates: int) -> tuple[int, dict[str, list[int]]]:
    clock, runs, next_ns = Clock(), 0, every_ns
    late: dict[str, list[int]] = {}
    while queue.now < updates:
        while clock() >= next_ns:
            queue.updated()
            machine.update()
            next_ns += every_ns
        tasks = queue.next_tasks()
        if not tasks:
            clock.skip_to(next_ns)
            continue
        machine.run(tasks)
        runs += note(tasks, queue.now, late)
        queue.ran(tasks)
    return runs, late
