"""What the scheduler's drivers ask of whoever executes orders: the engine, or a cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from millstream.engine.data.graph import EdgeId
from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.scheduler.instructions import Instruction, Splice

ClockNs = Callable[[], int]
SpliceHandler = Callable[[Splice], Mapping[EdgeId, int] | None]
"""Carries out a `Splice` in the engine; returns the cursor (rows ever appended) of each edge it attached to an existing log."""

InstructionHandler = Callable[[Instruction], None]


class OrderExecutor(Protocol):
    """Follows orders and makes no choice."""

    def run(self, order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        """Do the order's steps one after the other and tell what was done; raise `OrderFailed` when a step fails.

        `rows_max` of a step: None takes everything waiting; a number at most so many rows over all inputs; 0 takes only control
        items that stand before the next row. Control items reached on the way are always taken.
        """
        ...
