"""A scheduler that knows which waiting tuples will make a result (Sharaf 2007, 3.8.1.10): a yardstick, not a policy.

    rate(q) = results among the tuples waiting before q / time to work them off, over T for the normalized form

Found by asking the express lane for the fates it foresees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.scheduler.selectors.rank_order import oldest_of_best
from millstream.scheduler.simulation.express import ExpressLane
from millstream.scheduler.view import View


class OracleSelector:
    """Ranks each unit by the true rate of what waits before it."""

    def __init__(self, lane: ExpressLane, *, normalized: bool) -> None:
        self.lane = lane
        self.normalized = normalized
        self.evaluations = 0
        self.moves = 0
        self._ranks = np.zeros(0)
        self._ideal: list[float] = []
        self._outputs: list[list[int]] = []
        self._work: list[list[int]] = []

    def reset(self, view: View, now_ns: int) -> None:
        """Forget what was summed and rank what is available."""
        count = view.units.count
        self._ranks = np.full(count, -np.inf)
        self._ideal = view.ideal_time_ns.tolist()
        self._outputs = [[0] for _ in range(count)]
        self._work = [[0] for _ in range(count)]
        self.changed(view, np.flatnonzero(view.units.available).tolist(), now_ns)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Rank these units anew."""
        available, rows = view.units.available, view.units.rows
        for unit in units:
            if not available.item(unit):
                self._ranks[unit] = -np.inf
                continue
            codes, costs, through, cursor = self.lane.ahead(unit)
            last = cursor + rows.item(unit)
            outputs, work = self._outputs[unit], self._work[unit]
            for code in codes[len(outputs) - 1 : last]:
                outputs.append(outputs[-1] + (code == through))
                work.append(work[-1] + costs[code])
            rate = (outputs[last] - outputs[cursor]) / max(1, work[last] - work[cursor])
            self._ranks[unit] = rate / self._ideal[unit] if self.normalized else rate
            self.evaluations += 1

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the unit of the greatest rate."""
        unit = oldest_of_best(self._ranks, view.units.head_ns)
        return [unit] if self._ranks[unit] > -np.inf else []
