"""The proleptic Gregorian calendar in plain integers, for any year an int64 of microseconds can name.

Time zones over whole columns: instants to local time and back, with the rule of K12 for hours that occur twice or not at all.

A zone becomes a table of its transitions, found once by probing `zoneinfo`, so that one source of zone data serves everything.
"Local" microseconds are what a clock in the zone shows, counted as if it were UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

US_PER_MS = 1_000
US_PER_S = 1_000_000
US_PER_MINUTE = 60 * US_PER_S
US_PER_HOUR = 60 * US_PER_MINUTE
US_PER_DAY = 24 * US_PER_HOUR
US_PER_WEEK = 7 * US_PER_DAY

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1

DAYS_PER_ERA = 146_097  # 400 years
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    """Tell whether the year has a 29th of February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    """Return the number of days of a month (1 to 12)."""
    return 29 if month == 2 and is_leap(year) else MONTH_DAYS[month - 1]


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a calendar date; years before 1 count 0, -1, …

    Counts in years that begin in March, so that the leap day is the last of its year.
    """
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * DAYS_PER_ERA + day_of_era - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


Int64Array = npt.NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Before 1850 every zone keeps its local mean time; from 2200 on rows are answered one by one.
_TABLE_START_S = int((datetime(1850, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
_TABLE_END_S = int((datetime(2200, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
_PROBE_STEP_S = 8 * 86_400  # no zone changes its offset twice within so few days
_LAST_S = int((datetime(9998, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())


class Zone:
    """A named time zone. `zone(name)` returns the one instance for a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._info = ZoneInfo(name)
        self._starts_us, self._offsets_us = self._transitions()

    def _offset_s(self, second: int) -> int:
        moment = _EPOCH + timedelta(seconds=min(max(second, _TABLE_START_S), _LAST_S))
        offset = moment.astimezone(self._info).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    def _transitions(self) -> tuple[Int64Array, Int64Array]:
        starts, offsets = [-(2**62)], [self._offset_s(_TABLE_START_S)]
        for probe in range(_TABLE_START_S + _PROBE_STEP_S, _TABLE_END_S + _PROBE_STEP_S, _PROBE_STEP_S):
            found = self._offset_s(probe)
            if found != offsets[-1]:
                starts.append(self._first_second_after_change(probe - _PROBE_STEP_S, probe))
                offsets.append(found)
        at = np.array(starts, dtype=np.int64)
        at[1:] *= US_PER_S
        return at, np.array(offsets, dtype=np.int64) * US_PER_S

    def _first_second_after_change(self, low: int, high: int) -> int:
        before = self._offset_s(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset_s(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def offset_us(self, instants: Int64Array) -> Int64Array:
        """Return local minus UTC at each instant, in microseconds."""
        offsets = self._offsets_us[np.searchsorted(self._starts_us, instants, side="right") - 1]
        far = instants >= _TABLE_END_S * US_PER_S
        if far.any():
            offsets[far] = [self._offset_s(int(i) // US_PER_S) * US_PER_S for i in instants[far]]
        return offsets

    def to_local(self, instants: Int64Array) -> Int64Array:
        """Return what the zone's clocks show at each instant."""
        return instants + self.offset_us(instants)

    def to_utc(self, local: Int64Array) -> Int64Array:
        """Return the instant of each local time: of two the earlier; a time that does not exist moves forward by the gap (K12)."""
        before = self.offset_us(local - US_PER_DAY)
        after = self.offset_us(local + US_PER_DAY)
        first, second = local - before, local - after
        if np.array_equal(first, second):
            return first
        first_exists = self.offset_us(first) == before
        second_exists = self.offset_us(second) == after
        both_earliest = np.minimum(first, second)
        return np.where(first_exists & second_exists, both_earliest, np.where(second_exists, second, first))


@cache
def zone(name: str) -> Zone:
    """Return the zone of that name; ZoneInfoNotFoundError (a KeyError) or ValueError when there is none."""
    return Zone(name)
