"""Turns of classes by quota (Pham 2013, III-A), inside the class the unit of the greatest rank of those whose rows have been let in.

The class's source boxes (`source_boxes.py`) let rows in only when nothing else of the class waits. What an order cost is told to `charge`
when it comes back. A rank that only estimates change is computed when they do, and looked up after that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from millstream.engine.data.graph import ClassId
from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.scheduler.contracts import FloatColumn, Ranking
from millstream.scheduler.network import NetworkModel, shares_in_use
from millstream.scheduler.policies.class_quota import ClassQuotas
from millstream.scheduler.selectors.rank_order import oldest_of_best
from millstream.scheduler.selectors.scan import best_of
from millstream.scheduler.selectors.source_boxes import SourceBoxes
from millstream.scheduler.view import View
from numpy.typing import NDArray

_NOTHING: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


class ClassTurnsSelector:
    """Asks `quotas` for a class and takes the best available units of that class alone."""

    def __init__(self, ranking: Ranking, quotas: ClassQuotas) -> None:
        self.ranking = ranking
        self.quotas = quotas
        self.evaluations = 0
        self.moves = 0
        self._still = not (ranking.moves_with_time or ranking.moves_with_queue)
        self._units: dict[ClassId, NDArray[np.int64]] = {}
        self._sources = SourceBoxes()
        self._ranks: FloatColumn = np.zeros(0)
        self._cost_ns: list[float] = []
        self._version = -1
        self._original: dict[ClassId, float] = {}

    def reset(self, view: View, now_ns: int) -> None:
        """Number the units' classes anew, and rank what only estimates move."""
        network, entries = view.ledger.network, view.units.entries.tolist()
        classes = view.remembered("class_number", lambda: np.array([float(network.node(slot).class_id) for slot in entries]))
        self._units = {ClassId(int(one)): np.flatnonzero(classes == one) for one in np.unique(classes).tolist()}
        self._sources.reset(view)
        self._cost_ns = view.cost_to_end_ns.tolist()
        if self._still:
            self._ranks = self.ranking.rank(view, now_ns)
        if self._version != network.version:
            self._version = network.version
            shares = shares_in_use(network)
            if shares != self._original:
                self._original = shares
                self.quotas.begin(shares)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Nothing is kept."""

    def charge(self, class_id: ClassId, spent_ns: float) -> None:
        """Hear what an order of a class has cost."""
        self.quotas.charge(class_id, spent_ns)

    def charge_order(self, order: WorkOrder, receipt: WorkReceipt, network: NetworkModel) -> None:
        """Hear what an order took; its class is that of its first step."""
        slot = network.operators.slot_of.get(order.steps[0].operator) if order.steps else None
        if slot is not None:
            self.charge(network.node(slot).class_id, receipt.finished_ns - receipt.started_ns)

    def set_shares(self, shares: Mapping[ClassId, float]) -> None:
        """Give classes other shares."""
        self.quotas.set_shares(shares)

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return units of the class whose turn it is, the best first, no more than its credit pays for."""
        turn = self.quotas.present
        own = self._available_of(view, turn) if turn is not None and self.quotas.credit_ns[turn] > 0.0 else _NOTHING
        if not len(own):  # the turn goes on, which needs to know for which classes something waits
            waiting = [one for one in self._units if len(self._available_of(view, one))]
            turn = self.quotas.turn(waiting)
            if turn is None:
                return []
            own = self._available_of(view, turn)
        assert turn is not None
        if self._sources.picked:
            self._sources.follow(view)
        let_in = own[self._sources.open[own]]
        if len(let_in):
            own = let_in
        else:
            self._sources.run(view, own.tolist())
        picked = self._best(own, view, count) if self._still else best_of(self.ranking, view, own, now_ns, count)
        self.evaluations += len(own)
        self.moves += 1
        if len(picked) > 1:
            picked = self._affordable(view, picked, self.quotas.credit_ns[turn])
        self._sources.picked += picked
        return picked

    def _available_of(self, view: View, class_id: ClassId) -> NDArray[np.int64]:
        units = self._units.get(class_id, _NOTHING)
        return units[view.units.available[units]]

    @property
    def rows_let_in(self) -> Callable[[View, int, int], int]:
        """Tells how many of the rows that wait at a unit's entry an order may take."""
        return self._sources.rows

    def _best(self, units: NDArray[np.int64], view: View, count: int) -> list[int]:
        """Return up to `count` of these units, the best first."""
        ranks, heads = self._ranks[units], view.units.head_ns[units]
        if count == 1:
            return [int(units[oldest_of_best(ranks, heads)])]
        best: list[int] = units[np.lexsort((units, heads, -ranks))[:count]].tolist()
        return best

    def _affordable(self, view: View, picked: list[int], credit_ns: float) -> list[int]:
        """Return the first of these units that together reach the credit, at least one."""
        rows_at, costs, spent = view.units.rows_at, self._cost_ns, 0.0
        for number, unit in enumerate(picked):
            if spent >= credit_ns:
                return picked[:number]
            spent += costs[unit] * max(rows_at[unit], 1)
        return picked
