"""A first-in-first-out queue of fluid work with a capacity, under one load manager: what a headroom is learnt from."""

from __future__ import annotations

from collections import deque

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.aloma import Aloma
from millstream.scheduler.load.contract import CYCLE_NS, ClassCycle

CYCLE_S = CYCLE_NS / 1e9
STEPS = 10


class Plant:
    """Runs cycle by cycle; `response_s` is the mean of what left in the last one, or the age of the oldest."""

    def __init__(self, aloma: Aloma, target_ns: float, capacity: float) -> None:
        self.aloma, self.target_ns, self.capacity = aloma, target_ns, capacity
        self.response_s = 0.0
        self.dropped_share = 0.0
        self._now_s = 0.0
        self._queue: deque[list[float]] = deque()

    def cycle(self, load: float) -> None:
        """Let a cycle's load in, less what is dropped, work, and let the manager decide."""
        step_s = CYCLE_S / STEPS
        left: list[float] = []
        for _ in range(STEPS):
            self._now_s += step_s
            self._queue.append([self._now_s, load * (1.0 - self.aloma.drop) * step_s])
            left.extend(self._work(self.capacity * step_s))
        if left:
            self.response_s = sum(left) / len(left)
        else:
            self.response_s = self._now_s - self._queue[0][0] if self._queue else 0.0
        self.dropped_share += 0.02 * (self.aloma.drop - self.dropped_share)
        backlog_s = sum(work for _, work in self._queue)
        self.aloma.decide(ClassCycle(ClassId(1), load, backlog_s, self.response_s * 1e9, self.target_ns))

    def _work(self, time_s: float) -> list[float]:
        left = []
        while self._queue and time_s > 1e-15:
            done = min(time_s, self._queue[0][1])
            self._queue[0][1] -= done
            time_s -= done
            if self._queue[0][1] <= 1e-12:
                left.append(self._now_s - self._queue.popleft()[0])
        return left
