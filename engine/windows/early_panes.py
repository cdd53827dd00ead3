"""Panes that end at multiples of a duration too, over any other panes: what EMIT EVERY needs of windows under a TIME ZONE and of CUMULATE.

A pane's number is the number of the pane below plus the multiple: both rise with time and either rises at each border, so numbers tell the
pieces apart and keep their order. Where a piece begins is found by bisection.
"""

from __future__ import annotations

import numpy as np
from millstream.engine.windows.assigners import Assigner, Int64Array

KNOWN_STARTS_MAX = 10_000
SLACK_US = 4 * 86_400_000_000  # how far a pane may lie from where its number says that it is, at first guess


class EarlyPanes(Assigner):
    """The windows of `below`; `panes_per_us` says about how many panes it has in a microsecond."""

    def __init__(self, below: Assigner, every_us: int, panes_per_us: float) -> None:
        self._below = below
        self._every = every_us
        self._rate = panes_per_us + 1 / every_us
        self._starts: dict[int, int] = {}

    @property
    def has_gaps(self) -> bool:
        """As below."""
        return self._below.has_gaps

    def panes(self, times: Int64Array) -> Int64Array:
        """See the module's text."""
        result: Int64Array = self._below.panes(times) + np.floor_divide(times, self._every)
        return result

    def pane_start(self, pane: int) -> int:
        """The least time with this number or a greater one."""
        found = self._starts.get(pane)
        if found is None:
            if len(self._starts) >= KNOWN_STARTS_MAX:
                self._starts.clear()
            found = self._starts[pane] = self._bisected(pane)
        return found

    def _bisected(self, pane: int) -> int:
        guess, slack = int(pane / self._rate), SLACK_US
        while self.pane_of(guess - slack) >= pane:
            slack *= 2
        low = guess - slack
        slack = SLACK_US
        while self.pane_of(guess + slack) < pane:
            slack *= 2
        high = guess + slack
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.pane_of(middle) >= pane else (middle, high)
        return high

    def windows_of(self, pane: int) -> tuple[int, int]:
        """Those of the pane below at the time at which this one begins."""
        return self._below.windows_of(self._below.pane_of(self.pane_start(pane)))

    def panes_of(self, window: int) -> tuple[int, int]:
        """From the pane of its start to that of its last microsecond."""
        first, last = self.panes(np.array([self.start(window), self.end(window) - 1], dtype=np.int64)).tolist()
        return first, last + 1

    def start(self, window: int) -> int:
        """As below."""
        return self._below.start(window)

    def end(self, window: int) -> int:
        """As below."""
        return self._below.end(window)

    def last_closed(self, watermark_us: int) -> int:
        """As below."""
        return self._below.last_closed(watermark_us)

    def closings(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """As below."""
        return self._below.closings(times)
