"""One run of Golab 2006, ch. 5: periodic top-k and quantile queries over the synopses of packet headers, one processor.

Time is virtual. Each second all synopses get their newest interval, which costs per tuple and synopsis; in between the task queue of
the real policy says what runs. A run reads the intervals of the longest window it needs, each as many entries as it has different
values, and then sorts the values of each query's window, for top-k lists as for quantiles. What an entry costs is
set once (`ENTRY_NS`), see there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.scheduler.sharing.catalog import assign, sharing_policy
from millstream.scheduler.sharing.contract import PeriodAssignment, PeriodicQuery
from millstream.scheduler.sharing.periods import sorting
from millstream.scheduler.sharing.tasks import Task, TaskQueue

SECOND_NS = 1_000_000_000
WINDOWS = (20, 100)
WARM_UP_S = 100
# Different values per group at 1,500 tuples a second: source, destination, pairs, protocol, port, protocol and port; top-k and
# quantiles over sources and destinations are two groups each, which makes eight.
VALUES = (1_000, 1_000, 1_000, 1_000, 1_000_000, 100, 100, 10_000)
ENTRY_NS = 5_000  # what makes golab-none just too much for one processor with 40 queries at 1,500 tuples a second (load 1.2)
TUPLE_NS = 10_000  # folding one tuple into one synopsis
LOOK_UP_NS = 200_000  # a one-time query for one source address, each second


@dataclass(slots=True)
class Load:
    """What a task stands for: the sub-group's queries, their group, and when each last ran (updates)."""

    queries: tuple[PeriodicQuery, ...]
    group: int
    last: dict[str, int] = field(default_factory=dict)


def expected_values(values: int, tuples: float) -> float:
    """Return how many different values so many tuples have, drawn evenly."""
    return float(values * (1.0 - (1.0 - 1.0 / values) ** tuples))


class Costs:
    """Entries that scans and answers touch, per group."""

    def __init__(self, rate: float, values_factor: float) -> None:
        self.rate = rate
        self.values = [round(v * values_factor) for v in VALUES]
        self.interval = [expected_values(v, rate) for v in self.values]

    @property
    def update_ns(self) -> int:
        """What an update of all synopses costs, with the one-time query of that second."""
        return round(self.rate * len(VALUES) * TUPLE_NS) + LOOK_UP_NS

    def scan(self, group: int) -> Callable[[int], float]:
        """Return the cost of reading so many intervals of a group, in entries."""
        return lambda intervals: self.interval[group] * intervals

    def answer(self, group: int, window: int) -> float:
        """Return what an answer costs beyond the scan, in entries: a sort of the window's values."""
        return sorting(expected_values(self.values[group], self.rate * window))

    def run_ns(self, tasks: list[Task]) -> int:
        """Return what a joint run costs."""
        loads = [task.load for task in tasks]
        queries = [q for load in loads if isinstance(load, Load) for q in load.queries]
        group = loads[0].group if isinstance(loads[0], Load) else 0
        entries = self.interval[group] * max(q.window for q in queries) + sum(q.answer_cost for q in queries)
        return round(entries * ENTRY_NS)


def workload(queries: int, costs: Costs, seed: int) -> list[list[PeriodicQuery]]:
    """Return the queries of each group: WINDOW 20 to 100, SLIDE between one and half of it."""
    draw = random.Random(seed)
    groups: list[list[PeriodicQuery]] = [[] for _ in VALUES]
    for number in range(queries):
        group = number % len(groups)
        window = draw.randint(*WINDOWS)
        groups[group].append(PeriodicQuery(f"q{number}", window, draw.randint(1, window // 2), costs.answer(group, window)))
    return groups


def tasks_of(policy: str, group: int, queries: list[PeriodicQuery], costs: Costs) -> list[Task]:
    """Return the tasks that a policy makes of a group."""
    assignments: list[PeriodAssignment] = assign(policy, queries, costs.scan(group))
    by_period: dict[int, list[PeriodicQuery]] = {}
    if policy == "golab-none":
        return [Task(group, f"{group}:{a.period}", a.period, Load(a.sub_group.queries, group)) for a in assignments]
    for assignment in assignments:
        by_period.setdefault(assignment.period, []).extend(assignment.sub_group.queries)
    return [Task(group, f"{group}:{period}", period, Load(tuple(found), group)) for period, found in by_period.items()]


def run(policy: str, queries: int, rate: float, values_factor: float, seed: int, seconds: int) -> Mapping[str, Any]:
    """Run a workload under a policy; return queries re-executed per second, the average latency in updates, and the load.

    The load is what its tasks ask for a second, each by itself and as often as asked, in processors.
    """
    costs = Costs(rate, values_factor)
    queue = TaskQueue(sharing_policy(policy).together)
    sub_groups = 0
    for group, found in enumerate(workload(queries, costs, seed)):
        for task in tasks_of(policy, group, found, costs):
            queue.add(task)
            sub_groups += 1
    asked = sum(costs.run_ns([task]) / (task.period * SECOND_NS) for tasks in queue.tasks.values() for task in tasks)
    counts = _play(queue, costs, seconds)
    return {**counts, "tasks": sub_groups, "load": asked + costs.update_ns / SECOND_NS}


def _play(queue: TaskQueue, costs: Costs, seconds: int) -> dict[str, float]:
    update_ns = costs.update_ns
    now_ns, next_update_ns = 0, SECOND_NS
    end_ns = (WARM_UP_S + seconds) * SECOND_NS
    runs = 0
    late: dict[str, list[int]] = {}
    while now_ns < end_ns:
        while now_ns >= next_update_ns:
            queue.updated()
            now_ns += update_ns
            next_update_ns += SECOND_NS
        tasks = queue.next_tasks()
        if not tasks:
            now_ns = next_update_ns
            continue
        now_ns += costs.run_ns(tasks)
        counted = now_ns >= WARM_UP_S * SECOND_NS
        runs += note(tasks, queue.now, late) if counted else note(tasks, queue.now, {})
        queue.ran(tasks)
    means = [sum(found) / len(found) for found in late.values() if found]
    return {"throughput": runs / seconds, "latency": sum(means) / len(means) if means else float(seconds)}


def note(tasks: list[Task], now: int, late: dict[str, list[int]]) -> int:
    """Note by how many updates each query of a run exceeded its SLIDE; return how many queries there are."""
    count = 0
    for task in tasks:
        load = task.load
        assert isinstance(load, Load)
        for query in load.queries:
            late.setdefault(query.name, []).append(max(0, now - load.last.get(query.name, 0) - query.period))
            load.last[query.name] = now
            count += 1
    return count
