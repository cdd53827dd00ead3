"""The door before the executor: open for any number of orders at once, and now and then closed for a look at what operators hold."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.scheduler.executor import ClockNs, OrderExecutor


class Gate:
    """Runs orders through `executor`. An order that finds the door closed waits before its first step."""

    def __init__(self, executor: OrderExecutor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running = 0
        self._closed = 0

    @property
    def is_closed(self) -> bool:
        """Whether an order would have to wait now."""
        return self._closed > 0

    def run(self, order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        """Run the order, once the door is open."""
        with self._lock:  # the condition's own: entering that takes four times as many calls
            while self._closed:
                self._changed.wait()
            self._running += 1
        try:
            return self._executor.run(order, clock_ns)
        finally:
            with self._lock:
                self._running -= 1
                if self._closed and not self._running:
                    self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close the door, wait until nothing runs behind it, and open it again at the end."""
        with self._changed:
            self._closed += 1
            while self._running:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._closed -= 1
                self._changed.notify_all()
