"""A windowed join the slow and plain way: row by row in order of arrival, every pair looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]
Delays = tuple[int, int]


@dataclass
class JoinReference:
    """Rows are (ts, key, value); `kind` names the sides whose unmatched rows are kept. Answers are (later, earlier, left, right)."""

    lower: int | None
    upper: int | None
    delays: Delays = (0, 0)
    keep: tuple[bool, bool] = (False, False)
    null_safe: bool = False
    seq: int = 0
    state: list[tuple[int, int, Row]] = field(default_factory=list)  # side, seq, row
    matched: set[int] = field(default_factory=set)
    reached: list[float] = field(default_factory=lambda: [-math.inf, -math.inf])
    late: list[Row] = field(default_factory=list)
    answers: list[tuple[int, int, Row | None, Row | None]] = field(default_factory=list)

    @property
    def watermark(self) -> float:
        return min(self.reached)

    def equal(self, left: Any, right: Any) -> bool:
        if left is None or right is None:
            return self.null_safe and left is None and right is None
        if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
            return True
        return bool(left == right)

    def row(self, side: int, row: Row) -> None:
        seq, self.seq = self.seq, self.seq + 1
        if row[0] < self.watermark:
            self.late.append(row)
        else:
            self.state.append((side, seq, row))
            for other_side, other_seq, other in self.state[:-1]:
                if other_side != side:
                    left, right = (row, other) if side == 0 else (other, row)
                    if self.pairs(left, right):
                        self.answers.append((seq, other_seq, left, right))
                        self.matched.update((seq, other_seq))
        self.advance(side, max(self.reached[side], row[0] - self.delays[side]), seq)

    def pairs(self, left: Row, right: Row) -> bool:
        distance = right[0] - left[0]
        inside = (self.lower is None or distance >= self.lower) and (self.upper is None or distance <= self.upper)
        return inside and self.equal(left[1], right[1])

    def end(self, side: int) -> None:
        seq, self.seq = self.seq, self.seq + 1
        self.advance(side, math.inf, seq)

    def advance(self, side: int, watermark: float, seq: int) -> None:
        self.reached[side] = watermark
        kept = []
        for own_side, own_seq, row in self.state:
            reach = self.upper if own_side == 0 else None if self.lower is None else -self.lower
            gone = self.watermark == math.inf if reach is None else self.watermark > row[0] + reach
            if gone and self.keep[own_side] and own_seq not in self.matched:
                self.answers.append((seq, own_seq, *((row, None) if own_side == 0 else (None, row))))
            if not gone:
                kept.append((own_side, own_seq, row))
        self.state = kept

    def rows(self, width: int) -> list[Row]:
        blank = (None,) * width
        ordered = sorted(self.answers, key=lambda a: (a[0], a[1]))
        return [(*(left or blank), *(right or blank)) for _, _, left, right in ordered]
