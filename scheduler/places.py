"""Which worker has which operator, and which workers have as many orders as they may: their units wait, whatever the policy says.

A policy goes on ranking all units together. A worker that has room gets the best unit that is its own, as those of full workers are locked.
A unit whose operators are in several workers counts as the first one's that has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from millstream.engine.data.graph import OperatorId
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.unit_set import UnitSet
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
_NONE: IntColumn = np.zeros(0, dtype=np.int64)


class Places:
    """See the module's text. Worker 0 is nobody's own: what is in no worker."""

    def __init__(self, network: NetworkModel, orders_max: int) -> None:
        self._network = network
        self._orders_max = orders_max
        self._worker_of: dict[OperatorId, int] = {}
        self._out: dict[int, int] = {}
        self._locked: dict[int, IntColumn] = {}  # units that wait as their worker is full
        self._units_of: dict[int, IntColumn] | None = None
        self._of_unit: list[int] = []

    def note(self, units: UnitSet, workers: Iterable[tuple[OperatorId, int]]) -> list[int]:
        """Take in where operators are now; return the units that may be given out again."""
        self._worker_of.update(workers)
        self._units_of = None
        opened = [unit for worker in list(self._locked) for unit in self._open(units, worker)]
        self._shut_full(units)
        return opened

    def forget(self, operators: Sequence[OperatorId]) -> None:
        """Operators leave."""
        for operator in operators:
            self._worker_of.pop(operator, None)

    def parted(self, units: UnitSet, picked: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return the units by worker, each with its own in the order given, in as many parts as it may be given orders.

        So a worker that has nothing gets half of its units, and the others while it is at work on these.
        """
        self._sort(units)
        parts: dict[int, list[int]] = {}
        for unit in picked:
            parts.setdefault(self._of_unit[unit], []).append(unit)
        found: list[tuple[int, list[int]]] = []
        for worker, own in parts.items():
            size = -(-len(own) // max(1, self._orders_max - self._out.get(worker, 0)))
            found += [(worker, own[at : at + size]) for at in range(0, len(own), size)]
        return found

    def given(self, units: UnitSet, worker: int) -> list[int]:
        """An order was given to a worker; return the units that wait from now on."""
        self._out[worker] = self._out.get(worker, 0) + 1
        if self._out[worker] < self._orders_max or worker in self._locked:
            return []
        return self._shut(units, worker)

    def came_back(self, units: UnitSet, worker: int) -> list[int]:
        """An order came back from a worker; return the units that may be given out again."""
        self._out[worker] -= 1
        return self._open(units, worker) if worker in self._locked and self._out[worker] < self._orders_max else []

    def cut(self, units: UnitSet) -> None:
        """The network was cut anew, and nothing is locked yet."""
        self._units_of, self._locked = None, {}
        self._shut_full(units)

    def grown(self, units: UnitSet) -> None:
        """The cut has more units now."""
        self._units_of = None
        for worker in list(self._locked):
            self._open(units, worker)
        self._shut_full(units)

    def _shut_full(self, units: UnitSet) -> None:
        for worker, out in self._out.items():
            if out >= self._orders_max:
                self._shut(units, worker)

    def _shut(self, units: UnitSet, worker: int) -> list[int]:
        self._sort(units)
        own = self._locked[worker] = (self._units_of or {}).get(worker, _NONE)
        waiting: list[int] = own[units.available[own]].tolist()
        units.lock(own)
        return waiting

    def _open(self, units: UnitSet, worker: int) -> list[int]:
        own = self._locked.pop(worker)
        units.unlock(own)
        found: list[int] = own[units.available[own]].tolist()
        return found

    def _sort(self, units: UnitSet) -> None:
        if self._units_of is not None:
            return
        ids, found = self._network.operators.ids, self._worker_of
        self._of_unit = []
        for unit in range(units.count):
            workers = (found.get(identity, 0) for slot in units.members(unit) if (identity := ids[slot]) is not None)
            self._of_unit.append(next((worker for worker in workers if worker), 0))
        by_unit = np.array(self._of_unit, dtype=np.int64)
        self._units_of = {int(worker): np.flatnonzero(by_unit == worker) for worker in np.unique(by_unit)}
