"""What runs next: tasks by earliest deadline, and who runs with the one that is due (Golab 2006, algorithms 1 to 3).

A task is a sub-group with its period n. After a run (late or not) its time until deadline d is n, each synopsis update takes one off;
it is on time while d >= 0. The queue is a heap of absolute deadlines, so an update touches nothing and a run re-inserts only its own tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import field
from enum import Enum

from millstream.engine.data.records import dataclass


class Together(Enum):
    """Which tasks of a group run with the one that has the earliest deadline."""

    NEVER = "none"
    SAME = "same deadline"
    LATE = "same deadline, or all that are late"
    LATE_PENDING = "same deadline; once any is late, all that are due"


@dataclass(slots=True, eq=False)
class Task:
    """One sub-group: `period` in updates, `deadline` the update at which it is due (absolute). `load` is whatever runs it."""

    group: Hashable
    name: str
    period: int
    load: object = None
    deadline: int = 0
    runs: int = 0
    alive: bool = True

    def until_deadline(self, now: int) -> int:
        """Return d(T): updates left, negative when late."""
        return self.deadline - now


@dataclass(slots=True)
class TaskQueue:
    """The tasks of one sequence of synopsis updates; `now` counts them. `early`: with nothing due, the next one runs ahead of time."""

    together: Together
    early: bool = True
    now: int = 0
    tasks: dict[Hashable, list[Task]] = field(default_factory=dict)
    _heap: list[tuple[int, int, Task]] = field(default_factory=list)
    _count: int = 0

    def add(self, task: Task) -> None:
        """Take in a task; its first deadline is a period from now."""
        task.deadline = self.now + task.period
        self.tasks.setdefault(task.group, []).append(task)
        self._push(task)

    def remove(self, task: Task) -> None:
        """Forget a task; it leaves the heap when it comes up."""
        task.alive = False
        self.tasks[task.group].remove(task)

    def updated(self) -> None:
        """The synopses moved on by one step."""
        self.now += 1

    def next_tasks(self) -> list[Task]:
        """Return what is to run now, in one go; nothing while nothing is due (or, with `early`, when all ran at this update)."""
        while self._heap and (not self._heap[0][2].alive or self._heap[0][0] != self._heap[0][2].deadline):
            heapq.heappop(self._heap)
        if not self._heap:
            return []
        first = self._heap[0][2]
        left = first.until_deadline(self.now)
        if left > 0 and (not self.early or left == first.period):
            return []
        return [first, *(t for t in self.tasks[first.group] if t is not first and self._joins(t, left))]

    def _joins(self, task: Task, left: int) -> bool:
        own = task.until_deadline(self.now)
        if self.together is Together.NEVER:
            return False
        if left < 0 and self.together is Together.LATE:
            return own < 0
        if left < 0 and self.together is Together.LATE_PENDING:
            return own <= 0
        return own == left

    def ran(self, tasks: Iterable[Task]) -> None:
        """Note that tasks were executed, late or not: their next deadline is a period from now."""
        for task in tasks:
            task.runs += 1
            task.deadline = self.now + task.period
            self._push(task)

    def _push(self, task: Task) -> None:
        heapq.heappush(self._heap, (task.deadline, self._count, task))
        self._count += 1
