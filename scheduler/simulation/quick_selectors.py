"""Selectors that find the unit that a policy's own selector finds, with less work, on an express lane.

There a unit is a path, an order is one tuple, and nothing changes but what the lane itself changes. That they pick the same units is
tested in tests/scheduler/selectors/test_quick.py one by one, and in tests/simulation/test_express.py over whole runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from millstream.scheduler.contracts import FloatColumn, Ranking
from millstream.scheduler.selectors.rank_order import RankOrder
from millstream.scheduler.selectors.turns import Arrangement
from millstream.scheduler.view import View

_NEVER = np.inf
_subtract, _multiply = np.subtract, np.multiply


@runtime_checkable
class FixedPart(Protocol):
    """What this selector asks of a ranking."""

    def fixed_part(self, view: View) -> FloatColumn:
        """Return the factor that changes only with estimates."""
        ...


class FactoredSelector:
    """A scan for ranks of the form fixed part times wait. The fixed parts are computed when estimates change, heads are kept.

        rank(x) = fixed(x) * W(x),   W(x) = now - A(x)

    Picks what a scan picks, at two operations on columns instead of the whole equation. Keeps the head's arrival and the fixed part of
    each unit that has been available; +inf stands for an unavailable one.
    """

    def __init__(self, ranking: FixedPart) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._available = 0
        self._count = 0
        self._units: list[int] = []
        self._place: list[int] = []
        self._all_fixed: FloatColumn = np.zeros(0)
        self._fixed: FloatColumn = np.zeros(0)
        self._heads: FloatColumn = np.zeros(0)
        self._ranks: FloatColumn = np.zeros(0)
        # A column of one value spares the conversion of a Python integer at every pick.
        self._now: FloatColumn = np.array(0.0)
        self._uniform = False
        self._head_at: memoryview[float] = memoryview(self._heads)  # type: ignore[arg-type]
        self._available_at: memoryview[int] = memoryview(b"")
        self._unit_heads: memoryview[int] = memoryview(b"")

    def reset(self, view: View, now_ns: int) -> None:
        """Take the fixed parts and heads anew."""
        self._all_fixed = np.ascontiguousarray(self.ranking.fixed_part(view), dtype=np.float64)
        if len(self._place) != view.units.count:
            self._place = [-1] * view.units.count
            self._units = []
        self._available_at = memoryview(view.units.available)  # type: ignore[arg-type]
        self._unit_heads = memoryview(view.units.head_ns)  # type: ignore[arg-type]
        known = set(self._units)
        known.update(np.flatnonzero(view.units.available).tolist())
        self._lay_out(view, sorted(known))

    def _lay_out(self, view: View, units: list[int]) -> None:
        """Keep columns for these units, in unit order, so that the first of equal heads is the least unit."""
        self._units = units
        self._count = len(units)
        for place, unit in enumerate(units):
            self._place[unit] = place
        index = np.array(units, dtype=np.int64)
        self._fixed = self._all_fixed[index]
        self._heads = np.where(view.units.available[index], view.units.head_ns[index].astype(np.float64), _NEVER)
        self._head_at = memoryview(self._heads)  # type: ignore[arg-type]
        self._ranks = np.empty(self._count)
        self._uniform = self._count > 0 and bool((self._fixed == self._fixed[0]).all())
        self._available = int(np.isfinite(self._heads).sum())

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Take over the heads of these units."""
        available, heads, place, head_at = self._available_at, self._unit_heads, self._place, self._head_at
        fresh: list[int] = []
        for unit in units:
            at = place[unit]
            if at < 0:
                if available[unit]:
                    fresh.append(unit)
            elif available[unit]:
                if head_at[at] == _NEVER:
                    self._available += 1
                head_at[at] = heads[unit]
            elif head_at[at] != _NEVER:
                self._available -= 1
                head_at[at] = _NEVER
        self.moves += len(units)
        if fresh:
            self._lay_out(view, sorted({*self._units, *fresh}))

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        if not self._available:
            return []
        self.evaluations += self._available
        if count == 1:
            if self._uniform:
                unit = self._units[self._heads.argmin()]
            else:
                ranks = self._ranks
                self._now[()] = now_ns
                _subtract(self._now, self._heads, ranks)
                _multiply(ranks, self._fixed, ranks)
                best = int(ranks.argmax())
                tied = (ranks == ranks[best]).nonzero()[0]
                unit = self._units[best if len(tied) < 2 else tied[self._heads[tied].argmin()]]
            # Locked since it was heard of: then all that is known is looked at again.
            return [unit] if self._available_at[unit] else self._pick_again(view, now_ns, 1)
        return self._pick_again(view, now_ns, count)

    def _pick_again(self, view: View, now_ns: int, count: int) -> list[int]:
        self._lay_out(view, self._units)
        if not self._available:
            return []
        ranks = (now_ns - self._heads) * self._fixed
        best = np.lexsort((self._heads, -ranks))[: min(count, self._available)]
        return [self._units[place] for place in best.tolist()]


class MarkedTurnsSelector:
    """What turns pick, from a row of bytes instead of a search of the units' columns.

    Keeps a cursor, and a byte a unit in the order of the turns: 1 where the unit was available when it was last heard of.
    """

    def __init__(self, arrangement: Arrangement | None = None) -> None:
        self.arrangement = arrangement
        self.cursor = 0
        self.evaluations = 0
        self.moves = 0
        self._marks = bytearray()
        self._units: Sequence[int] = []
        self._place: Sequence[int] = []
        self._available_at: memoryview[int] = memoryview(b"")

    def reset(self, view: View, now_ns: int) -> None:
        """Take the marks anew; keep the cursor where it still points at a unit."""
        count = view.units.count
        self.cursor = self.cursor % count if count else 0
        order = np.arange(count) if self.arrangement is None else self.arrangement(view)
        self._units, self._place = order.tolist(), order.argsort().tolist()
        self._marks = bytearray(view.units.available[order].tobytes())
        self._available_at = memoryview(view.units.available)  # type: ignore[arg-type]

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Mark what became available, unmark what no longer is."""
        marks, place, available = self._marks, self._place, self._available_at
        for unit in units:
            marks[place[unit]] = available[unit]

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the next available units in turn."""
        marks, units, available = self._marks, self._units, self._available_at
        picked: list[int] = []
        cursor = last = self.cursor
        for start, end in ((cursor, len(marks)), (0, cursor)):
            place = start - 1
            while len(picked) < count:
                place = marks.find(1, place + 1, end)
                if place < 0:
                    break
                if available[units[place]]:
                    picked.append(units[place])
                    last = place
                else:
                    # Locked since it was marked; it is heard of again when it is let go.
                    marks[place] = 0
        if picked:
            self.moves += len(picked)
            self.cursor = (last + 1) % len(marks)
        return picked


class OrderSelector:
    """For ranks that only estimates change: all units are sorted once, and a pick looks for the first available one (`rank_order.py`).

    Picks the units that a heap picks and costs a search of a row of bytes instead of a push and a pop. Sorting anew costs more than a
    heap's reset only where estimates change at almost every decision.
    """

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._order = RankOrder(np.zeros(0))

    def reset(self, view: View, now_ns: int) -> None:
        """Rank everything anew and sort."""
        self._order = RankOrder(self.ranking.rank(view, now_ns))
        self.evaluations += view.units.count
        self._order.follow(view, range(view.units.count))

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """List what is available, and by its head."""
        self._order.follow(view, units)
        self.moves += len(units)

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        order, available = self._order, view.units.available_at
        if count == 1:
            while (unit := order.first()) >= 0 and not available[unit]:
                order.drop(unit)  # locked since it was listed; it is heard of again when it is let go
            return [unit] if unit >= 0 else []
        return [unit for unit in order.listed() if available[unit]][:count]
