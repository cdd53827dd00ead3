"""Windows the slow and plain way: one row at a time, one dictionary entry a window, as the semantics say it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import gcd
from typing import Any

Row = tuple[Any, ...]


@dataclass
class HoppingReference:
    """Rows are (ts, …); `key` gives the group, answers are (end, start, group, rows by pane) in the order of K20."""

    range_us: int
    slide_us: int
    delay_us: int = 0
    offset_us: int = 0
    key: Callable[[Row], Any] = lambda row: ()
    windows: dict[tuple[int, int], dict[Any, list[Row]]] = field(default_factory=dict)
    watermark: float = -math.inf
    late: list[Row] = field(default_factory=list)
    partly_late: int = 0
    answers: list[tuple[int, int, Any, list[Row]]] = field(default_factory=list)

    def starts(self, ts: int) -> list[int]:
        first = (ts - self.offset_us) // self.slide_us * self.slide_us + self.offset_us
        found = []
        while first > ts - self.range_us:
            found.append(first)
            first -= self.slide_us
        return found

    def row(self, row: Row) -> None:
        starts = self.starts(row[0])
        open_ = [s for s in starts if s + self.range_us > self.watermark]
        if starts and not open_:
            self.late.append(row)
        elif len(open_) < len(starts):
            self.partly_late += 1
        for start in open_:
            self.windows.setdefault((start + self.range_us, start), {}).setdefault(self.key(row), []).append(row)
        self.advance(max(self.watermark, row[0] - self.delay_us))

    def advance(self, watermark: float) -> None:
        self.watermark = watermark
        for end, start in sorted(w for w in self.windows if w[0] <= watermark):
            groups = self.windows.pop((end, start))
            self.answers.extend((end, start, group, rows) for group, rows in groups.items())

    def panes(self, rows: Sequence[Row]) -> list[list[Row]]:
        pane = gcd(self.range_us, self.slide_us)
        parts: dict[int, list[Row]] = {}
        for row in rows:
            parts.setdefault((row[0] - self.offset_us) // pane, []).append(row)
        return [parts[p] for p in sorted(parts)]


def fold_sum(panes: Sequence[Sequence[Any]]) -> Any:
    """A sequential fold per pane, panes then added in order; None without values."""
    sums = []
    for values in panes:
        present = [v for v in values if v is not None]
        total = 0.0 if any(isinstance(v, float) for v in present) else 0
        for v in present:
            total = total + v
        if present:
            sums.append(total)
    if not sums:
        return None
    total = sums[0]
    for s in sums[1:]:
        total = total + s
    return total


def extreme(values: Sequence[Any], greatest: bool) -> Any:
    present = [v for v in values if v is not None]
    if not present:
        return None
    if any(isinstance(v, float) and math.isnan(v) for v in present):
        return math.nan
    best = max(present) if greatest else min(present)
    return best + 0.0 if isinstance(best, float) else best


def average(panes: Sequence[Sequence[Any]]) -> Any:
    count = sum(v is not None for values in panes for v in values)
    total = fold_sum(panes)
    return None if total is None else float(total) / count


def rounded_average(values: Sequence[Decimal], scale: int) -> Decimal:
    exact = sum((Fraction(v) for v in values), Fraction(0)) / len(values) * 10**scale
    whole = int(abs(exact) + Fraction(1, 2))
    return Decimal(whole if exact >= 0 else -whole).scaleb(-scale)


def same(left: Any, right: Any) -> bool:
    """Equal, and for floats the same bits save the payload of NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or (left == right and math.copysign(1, left) == math.copysign(1, right))
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right and (left is None) == (right is None))
