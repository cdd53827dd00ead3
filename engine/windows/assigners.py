"""Which windows a time belongs to (K1), in terms of panes: stretches of time inside which all rows have the same windows.

Windows and panes are numbered in order of time. All arithmetic floors, so times before 1970 are ordinary.

Windows under a TIME ZONE (K1): whole days and longer follow the local calendar; shorter ones, hops too, count elapsed time from each
local midnight and are cut at the next.

And panes that end at multiples of a duration too, over any other panes (`EarlyPanes`): what EMIT EVERY needs of these windows and of
CUMULATE. A pane's number is the number of the pane below plus the multiple: both rise with time and either rises at each border, so
numbers tell the pieces apart and keep their order. Where a piece begins is found by bisection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import gcd

import numpy as np
import numpy.typing as npt
from millstream.engine.data.calendar import Zone, zone
from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.limits import PANES_PER_WINDOW_MAX
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
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
    from millstream.engine.windows.assigners import EarlyPanes, calendar_assigner  # builds on this file

    if window.kind is WindowKind.CUMULATE and window.zone is None:
        steps = Cumulate(window.range_us, window.slide_us, window.offset_us)
        return EarlyPanes(steps, every_us, 1 / window.slide_us) if every_us else steps
    if window.kind is WindowKind.HOPPING:
        local, panes_per_day = calendar_assigner(window)
        return EarlyPanes(local, every_us, panes_per_day / US_PER_DAY) if every_us else local
    if window.kind is WindowKind.CUMULATE:
        raise Unsupported("CUMULATE under a TIME ZONE is not supported", hint="leave the TIME ZONE out, or use TUMBLE")
    raise Unsupported(f"a {window.kind.value} window is not supported in this place")


DAYS_PER_WEEK = 7
FIRST_MONDAY = 4  # 1970-01-05, in days since the epoch
LONGEST_DAY_US = 50 * 3_600_000_000  # longer than any local day has been, also where a date was lived twice
KNOWN_STARTS_MAX = 10_000
SLACK_US = 4 * US_PER_DAY  # how far a pane may lie from where its number says that it is, at first guess
FAR_DAY = 10**8  # beyond every day that an int64 of microseconds can name


class LocalDays:
    """Local days of a zone, numbered from 1970-01-01; `offset_us` moves where they begin."""

    def __init__(self, name: str, offset_us: int) -> None:
        self._zone: Zone = zone(name)
        self._offset_us = offset_us

    def days(self, times: Int64Array) -> Int64Array:
        """Return the local day of each instant."""
        return np.floor_divide(self._zone.to_local(times) - self._offset_us, US_PER_DAY)

    def day(self, time_us: int) -> int:
        """Return the local day of one instant; the ends of time are far away."""
        if time_us in (TIME_MIN, TIME_MAX):
            return FAR_DAY if time_us == TIME_MAX else -FAR_DAY
        return int(self.days(np.array([time_us], dtype=np.int64))[0])

    def begins(self, days: Int64Array) -> Int64Array:
        """Return the instant at which each local day begins."""
        return self._zone.to_utc(days * US_PER_DAY + self._offset_us)

    def begin(self, day: int) -> int:
        """Return the instant at which one local day begins."""
        return int(self.begins(np.array([day], dtype=np.int64))[0])


class CalendarDays(Assigner):
    """Windows of whole local days; one pane a day. Weeks begin on Monday."""

    def __init__(self, days: LocalDays, range_days: int, slide_days: int) -> None:
        self._days = days
        self._range, self._slide = range_days, slide_days
        self._first = FIRST_MONDAY if slide_days % DAYS_PER_WEEK == 0 else 0

    def panes(self, times: Int64Array) -> Int64Array:
        """Local days."""
        return self._days.days(times)

    def pane_start(self, pane: int) -> int:
        """Local midnight."""
        return self._days.begin(pane)

    def windows_of(self, pane: int) -> tuple[int, int]:
        """Window k covers the days k * slide + first … + range - 1."""
        place = pane - self._first
        return (place - self._range) // self._slide + 1, place // self._slide

    def panes_of(self, window: int) -> tuple[int, int]:
        """See `windows_of`."""
        first = window * self._slide + self._first
        return first, first + self._range

    def start(self, window: int) -> int:
        """Local midnight of the first day."""
        return self._days.begin(self.panes_of(window)[0])

    def end(self, window: int) -> int:
        """Local midnight after the last day."""
        return self._days.begin(self.panes_of(window)[1])

    def last_closed(self, watermark_us: int) -> int:
        """The window that ends with the last midnight at or before W."""
        return (self._days.day(watermark_us) - self._first - self._range) // self._slide

    def closings(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Ends of the first and the last window of each time."""
        place = self._days.days(times) - self._first
        last = np.floor_divide(place, self._slide)
        first = np.floor_divide(place - self._range, self._slide) + 1
        inside = first <= last
        ends = [self._days.begins(w * self._slide + self._first + self._range) for w in (first, last)]
        return np.where(inside, ends[0], TIME_MIN), np.where(inside, ends[1], TIME_MIN)


class WithinDays(Assigner):
    """Windows shorter than a day: starts at midnight + i * slide, cut at the next midnight. Numbers leave room for the longest day."""

    def __init__(self, days: LocalDays, range_us: int, slide_us: int) -> None:
        self._days = days
        self._range, self._slide = range_us, slide_us
        self._pane = gcd(range_us, slide_us)
        self._windows = -(-LONGEST_DAY_US // slide_us)
        self._panes = -(-LONGEST_DAY_US // self._pane)

    @property
    def panes_per_day(self) -> int:
        """By how much a pane's number rises from one day to the next."""
        return self._panes

    def panes(self, times: Int64Array) -> Int64Array:
        """Elapsed time since midnight in panes."""
        days = self._days.days(times)
        panes: Int64Array = days * self._panes + np.floor_divide(times - self._days.begins(days), self._pane)
        return panes

    def pane_start(self, pane: int) -> int:
        """Midnight and so many panes; a number that no row has, since its day is over before, begins with the next day."""
        day, place = divmod(pane, self._panes)
        return min(self._days.begin(day) + place * self._pane, self._days.begin(day + 1))

    def windows_of(self, pane: int) -> tuple[int, int]:
        """No window reaches over midnight."""
        day, place = divmod(pane, self._panes)
        elapsed = place * self._pane
        first = max(0, (elapsed - self._range) // self._slide + 1)
        return day * self._windows + first, day * self._windows + elapsed // self._slide

    def panes_of(self, window: int) -> tuple[int, int]:
        """The panes of its day that it covers."""
        day, place = divmod(window, self._windows)
        first = place * self._slide // self._pane
        return day * self._panes + first, day * self._panes + min(first + self._range // self._pane, self._panes)

    def start(self, window: int) -> int:
        """Midnight and so many slides."""
        day, place = divmod(window, self._windows)
        return self._days.begin(day) + place * self._slide

    def end(self, window: int) -> int:
        """Start plus range, or the next midnight."""
        return min(self.start(window) + self._range, self._days.begin(window // self._windows + 1))

    def last_closed(self, watermark_us: int) -> int:
        """All windows of the days before, and those of W's day that have ended."""
        day = self._days.day(watermark_us)
        if abs(day) == FAR_DAY:
            return day * self._windows
        elapsed = watermark_us - self._days.begin(day)
        return day * self._windows + max(-1, (elapsed - self._range) // self._slide)

    def closings(self, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Ends of the first and the last window of each time."""
        days = self._days.days(times)
        midnight, next_midnight = self._days.begins(days), self._days.begins(days + 1)
        elapsed = times - midnight
        last = np.floor_divide(elapsed, self._slide)
        first = np.maximum(np.floor_divide(elapsed - self._range, self._slide) + 1, 0)
        inside = first <= last
        ends = [np.minimum(midnight + w * self._slide + self._range, next_midnight) for w in (first, last)]
        return np.where(inside, ends[0], TIME_MIN), np.where(inside, ends[1], TIME_MIN)


def calendar_assigner(window: WindowSpec) -> tuple[Assigner, float]:
    """Return the assigner of a hopping window under a time zone, and by how much its panes' numbers rise in a day."""
    assert window.zone is not None
    if window.range_us <= 0 or window.slide_us <= 0:
        raise InvalidDefinition("a window's size and slide must be positive")
    days = LocalDays(window.zone, window.offset_us)
    if window.range_us % US_PER_DAY == 0 and window.slide_us % US_PER_DAY == 0:
        return CalendarDays(days, window.range_us // US_PER_DAY, window.slide_us // US_PER_DAY), 1.0
    if window.range_us >= US_PER_DAY or window.slide_us >= US_PER_DAY:
        raise Unsupported(
            "under a TIME ZONE a window's size and slide are whole days, or both shorter than a day", hint="leave the TIME ZONE out"
        )
    within = WithinDays(days, window.range_us, window.slide_us)
    return within, float(within.panes_per_day)


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
        """Return the pane of each event time (µs), shape as given."""
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
