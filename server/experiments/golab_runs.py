"""One run of Golab 2006, ch. 5 over the real synopses: panes of values with counts, read as the real task queue says.

Time is the processor time of this thread, set forward where there is nothing to do, so that a busy machine does not matter. An update comes
each `interval`: of all groups the newest pane is folded in and the oldest dropped. The interval is set by the machine: such that golab-none
with LOAD_QUERIES queries at the low rate asks for LOAD times what one processor has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np
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
from millstream.scheduler.experiments.scenarios.golab_runs import VALUES, WINDOWS, Costs, Load, note, tasks_of, workload
from millstream.scheduler.sharing.catalog import sharing_policy
from millstream.scheduler.sharing.tasks import Task, TaskQueue

LOW_RATE = 1_500
LOAD, LOAD_QUERIES = 1.2, 40
TOP_K = 10
QUANTILES = (0.5, 0.9, 0.95, 0.99)
_NOBODY = np.zeros(1, dtype=np.int64)  # the one group of a query without keys


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
        yield Train(schema, [column], rows=rate, lo=0, hi=rate, seq=rows, time=rows, arrival=rows, track=constant_track(0, rate, 0))


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
