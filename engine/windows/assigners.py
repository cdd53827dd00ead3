"""Which windows a time belongs to (K1), in terms of panes: stretches of time inside which all rows have the same windows.

Windows and panes are numbered in order of time. All arithmetic floors, so times before 1970 are ordinary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import gcd

import numpy as np
import numpy.typing as npt
from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.limits import PANES_PER_WINDOW_MAX
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.language.recipes import WindowKind, WindowSpec

Int64Array = npt.NDArray[np.int64]

US_PER_DAY = 86_400_000_000


class Assigner(ABC):
    """The contract. Windows are [start, end) and numbered so that their ends never fall."""

    @property
    def has_gaps(self) -> bool:
        """Some times are in no window."""
        return True

    @abstractmethod
    def panes(self, times: Int64Array) -> Int64Array:
        """Return the pane number of each time."""

    def pane_of(self, time_us: int) -> int:
        """Return the pane of one time."""
        return int(self.panes(np.array([time_us], dtype=np.int64))[0])

    @abstractmethod
    def pane_start(self, pane: int) -> int:
        """Return where a pane begins."""

    @abstractmethod
    def windows_of(self, pane: int) -> tuple[int, int]:
        """Return the first and the last window that contain a pane; first > last in a gap between windows."""

    @abstractmethod
    def panes_of(self, window: int) -> tuple[int, int]:
        """Return the first pane of a window and the one after its last."""

    @abstractmethod
    def start(self, window: int) -> int:
        """Return where a window begins."""

    @abstractmethod
    def end(self, window: int) -> int:
        """Return where a window ends (excluded)."""

    @abstractmethod
    def last_closed(self, watermark_us: int) -> int:
        """Return the greatest window whose end is at or below W (K4)."""

    @abstractmethod
    def closings(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return for each time the end of its first window and of its last; both TIME_MIN where it is in none."""


class Hopping(Assigner):
    """[RANGE w SLIDE s OFFSET o]: starts are the multiples of s, moved by o. Tumbling when w = s; s may exceed w.

    With `every_us` panes end at its multiples too, so that early answers can be had there.
    """

    def __init__(self, range_us: int, slide_us: int, offset_us: int = 0, every_us: int = 0) -> None:
        if range_us <= 0 or slide_us <= 0:
            word, value = ("size", range_us) if range_us <= 0 else ("slide", slide_us)
            raise InvalidDefinition(f"a window's {word} must be positive, not {value} µs")
        self.range_us, self.slide_us, self.offset_us = range_us, slide_us, offset_us
        self.pane_us = gcd(range_us, slide_us, every_us, offset_us if every_us else 0)
        self._base = 0 if every_us else offset_us  # where pane 0 begins
        per_window = range_us // self.pane_us
        if per_window > PANES_PER_WINDOW_MAX:
            raise Unsupported(
                f"a window of {range_us} µs that slides by {slide_us} µs needs {per_window} panes of state per group",
                hint="choose a slide that shares a greater divisor with the range",
            )

    @property
    def has_gaps(self) -> bool:
        """Some times are in no window."""
        return self.slide_us > self.range_us

    def panes(self, times: Int64Array) -> Int64Array:
        """Floor division by the pane."""
        shifted = times - self._base if self._base else times
        result: Int64Array = np.floor_divide(shifted, self.pane_us)
        return result

    def pane_of(self, time_us: int) -> int:
        """As `panes`."""
        return (time_us - self._base) // self.pane_us

    def pane_start(self, pane: int) -> int:
        """Multiples of the pane."""
        return pane * self.pane_us + self._base

    def windows_of(self, pane: int) -> tuple[int, int]:
        """Windows that start at or before the pane and end after it."""
        place = self.pane_start(pane) - self.offset_us
        return (place - self.range_us) // self.slide_us + 1, place // self.slide_us

    def panes_of(self, window: int) -> tuple[int, int]:
        """From start to end."""
        first = (self.start(window) - self._base) // self.pane_us
        return first, first + self.range_us // self.pane_us

    def start(self, window: int) -> int:
        """Multiples of the slide."""
        return window * self.slide_us + self.offset_us

    def end(self, window: int) -> int:
        """Start plus range."""
        return window * self.slide_us + self.offset_us + self.range_us

    def last_closed(self, watermark_us: int) -> int:
        """Solve end <= W."""
        return (watermark_us - self.range_us - self.offset_us) // self.slide_us

    def closings(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Ends of the first and the last window of each time."""
        shifted = times - self.offset_us
        last = np.floor_divide(shifted, self.slide_us)
        first = np.floor_divide(shifted - self.range_us, self.slide_us) + 1
        inside = first <= last
        reach = self.range_us + self.offset_us
        return (
            np.where(inside, first * self.slide_us + reach, TIME_MIN),
            np.where(inside, last * self.slide_us + reach, TIME_MIN),
        )


class Cumulate(Assigner):
    """CUMULATE: windows that begin at multiples of the size and end at each step inside it. Window k ends with pane k."""

    def __init__(self, size_us: int, step_us: int, offset_us: int = 0) -> None:
        if size_us <= 0 or step_us <= 0:
            raise InvalidDefinition("a cumulating window's size and step must be positive")
        if size_us % step_us:
            raise InvalidDefinition(f"a cumulating window's size ({size_us} µs) must be a multiple of its step ({step_us} µs)")
        self.size_us, self.step_us, self.offset_us = size_us, step_us, offset_us
        self.per_window = size_us // step_us

    def panes(self, times: Int64Array) -> Int64Array:
        """One pane a step."""
        result: Int64Array = np.floor_divide(times - self.offset_us, self.step_us)
        return result

    def pane_start(self, pane: int) -> int:
        """Multiples of the step."""
        return pane * self.step_us + self.offset_us

    def windows_of(self, pane: int) -> tuple[int, int]:
        """All windows that end with this pane or a later one of the same size."""
        return pane, (pane // self.per_window + 1) * self.per_window - 1

    def panes_of(self, window: int) -> tuple[int, int]:
        """From the size's beginning."""
        return window // self.per_window * self.per_window, window + 1

    def start(self, window: int) -> int:
        """The size's beginning."""
        return window // self.per_window * self.size_us + self.offset_us

    def end(self, window: int) -> int:
        """The step's end."""
        return (window + 1) * self.step_us + self.offset_us

    def last_closed(self, watermark_us: int) -> int:
        """Solve end <= W."""
        return (watermark_us - self.offset_us) // self.step_us - 1

    def closings(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The step's end and the size's end."""
        panes = self.panes(times)
        last = (np.floor_divide(panes, self.per_window) + 1) * self.size_us + self.offset_us
        return (panes + 1) * self.step_us + self.offset_us, last


def assigner_for(window: WindowSpec, every_us: int = 0) -> Assigner:
    """Return the assigner of a window made of panes. Unsupported for other kinds."""
    if window.kind is WindowKind.HOPPING and window.zone is None:
        return Hopping(window.range_us, window.slide_us, window.offset_us, every_us)
    from millstream.engine.windows.calendar_assigners import EarlyPanes, calendar_assigner  # builds on this file

    if window.kind is WindowKind.CUMULATE and window.zone is None:
        steps = Cumulate(window.range_us, window.slide_us, window.offset_us)
        return EarlyPanes(steps, every_us, 1 / window.slide_us) if every_us else steps
    if window.kind is WindowKind.HOPPING:
        local, panes_per_day = calendar_assigner(window)
        return EarlyPanes(local, every_us, panes_per_day / US_PER_DAY) if every_us else local
    if window.kind is WindowKind.CUMULATE:
        raise Unsupported("CUMULATE under a TIME ZONE is not supported", hint="leave the TIME ZONE out, or use TUMBLE")
    raise Unsupported(f"a {window.kind.value} window is not supported in this place")
