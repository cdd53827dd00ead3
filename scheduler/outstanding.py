"""Orders that are out: what each was made for, and what is locked meanwhile."""

from __future__ import annotations

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.scheduler.unit_set import UnitSet
from numpy.typing import NDArray


@dataclass(slots=True)
class Outstanding:
    """An order that is out, the units it was made for, and the operators and units that are locked meanwhile.

    Where only one order may be out, nothing is locked: nobody decides before it is back, and `locked` is found when someone asks.
    """

    order: WorkOrder
    cut: UnitSet
    units: list[int]
    conflicts: NDArray[np.int64] | None = None
    operators: list[int] | None = None

    @property
    def locked(self) -> list[int]:
        """The operators that the order may run."""
        if self.operators is not None:
            return self.operators  # the units may have got more members since
        return list(dict.fromkeys(slot for unit in self.units for slot in self.cut.members(unit)))

    def unit_ns(self, receipt: WorkReceipt) -> float:
        """Return what a unit took on average, those that were not reached counting by the steps of the others."""
        if len(self.units) == 1 and not receipt.unfinished:
            return float(receipt.finished_ns - receipt.started_ns)
        steps = len(self.order.steps)
        done = max(1, steps - len(receipt.unfinished))
        return (receipt.finished_ns - receipt.started_ns) * steps / (done * max(1, len(self.units)))
