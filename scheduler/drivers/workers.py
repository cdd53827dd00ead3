"""The pool: threads that run orders and post receipts. They share one run queue, which the core keeps at one or two a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.scheduler.errors import OrderFailed
from millstream.scheduler.events import WorkDone, WorkFailure
from millstream.scheduler.instructions import ClockNs, OrderExecutor


def run_order(executor: OrderExecutor, order: WorkOrder, clock_ns: ClockNs) -> WorkDone:
    """Run an order and return what was done; after an error that is what was done before it, with the failure beside it."""
    started_ns = clock_ns()
    try:
        return WorkDone(executor.run(order, clock_ns))
    except OrderFailed as problem:
        return WorkDone(problem.receipt, WorkFailure(str(problem), problem.operator))
    except Exception as problem:
        receipt = WorkReceipt(order.id, (), order.steps, (), started_ns, clock_ns())
        return WorkDone(receipt, WorkFailure(f"{type(problem).__name__}: {problem}"))


class WorkerPool:
    """`count` threads. `give` never blocks; the bound is the core's."""

    def __init__(self, executor: OrderExecutor, count: int, clock_ns: ClockNs, done: Callable[[WorkDone], None]) -> None:
        self._executor = executor
        self._clock_ns = clock_ns
        self._done = done
        self._orders: SimpleQueue[WorkOrder | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"worker-{index}", daemon=True) for index in range(count)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def give(self, order: WorkOrder) -> None:
        """Put an order into the run queue."""
        self._orders.put(order)

    def stop(self) -> None:
        """Let every thread finish what is in the queue, and wait for it."""
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            self._done(run_order(self._executor, order, self._clock_ns))
