"""Workers for tests: a pool of processes that many hosts use one after the other, and their ends at random."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from millstream.engine.runtime.executor import Executor
from millstream.scheduler.placement import Move
from millstream.server.run import embedded
from millstream.server.workers.operators import Placed
from millstream.server.workers.pool import Workers, started
from millstream.server.workers.process import Worker, WorkerBounds
from millstream.server.workers.segments import SharedSegments

BOUNDS = WorkerBounds(memory_bytes_max=1 << 30, step_s_max=0.0)


class Pool:
    """Processes, and the networks whose operators they have had."""

    def __init__(self, count: int, bounds: WorkerBounds = BOUNDS) -> None:
        self.workers, self.segments = started(count, bounds)

    def serve(self, network: Any, count: int) -> Workers:
        """Let the first `count` of them have the operators of a network."""
        for worker in self.workers:
            for installed in list(worker.operators.values()):
                worker.drop(installed)
        return Workers(network, self.workers[:count], self.segments)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.segments.close()


@contextmanager
def replays_served_by(pool: Pool, count: int) -> Iterator[list[Workers]]:
    """Let whatever `millstream run` does meanwhile be done by workers; gives the pools that came to be."""
    found: list[Workers] = []
    with pytest.MonkeyPatch.context() as patch:
        assemble = embedded.assemble

        def assembled(*given: Any, **how: Any) -> Any:
            host = assemble(*given, **how)
            found.append(pool.serve(host.network, count))
            return host

        patch.setattr(embedded, "assemble", assembled)
        yield found


@contextmanager
def kills(choice: random.Random, most: int, every: int) -> Iterator[list[int]]:
    """End the worker with SIGKILL before one call of `every`, at random, `most` times at most; gives the processes that were ended."""
    done: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        do = Placed.do

        def troubled(self: Placed, calls: Any, budget_ns: int | None) -> Any:
            if len(done) < most and choice.randrange(every) == 0:
                done.append(self.worker.pid)
                os.kill(self.worker.pid, signal.SIGKILL)
            return do(self, calls, budget_ns)

        patch.setattr(Placed, "do", troubled)
        yield done


@contextmanager
def moves(choice: random.Random, served: list[Workers], every: int) -> Iterator[list[int]]:
    """Let a group go to another worker before one order of `every`, at random; gives the workers to which some went."""
    done: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        run = Executor.run

        def troubled(self: Executor, order: Any, clock_ns: Any) -> Any:
            pool = served[-1]
            if choice.randrange(every) == 0 and (groups := pool.groups()):
                group, worker = choice.choice(groups), choice.choice(pool.workers)
                if pool.move(Move((group[0].id,), worker.number, "in a test")):
                    done.append(worker.number)
            return run(self, order, clock_ns)

        patch.setattr(Executor, "run", troubled)
        yield done


__all__ = ["BOUNDS", "Pool", "SharedSegments", "Worker", "kills", "moves", "replays_served_by"]
