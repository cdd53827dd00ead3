"""Time zones over whole columns: instants to local time and back, with the rule of K12 for hours that occur twice or not at all.

A zone becomes a table of its transitions, found once by probing `zoneinfo`, so that one source of zone data serves everything.
"Local" microseconds are what a clock in the zone shows, counted as if it were UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
from millstream.engine.expressions.calendar import US_PER_DAY, US_PER_S

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
