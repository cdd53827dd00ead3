"""What a window operator gives besides the closed windows: early answers (EMIT EVERY) and empty windows (EMIT EMPTY)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.table import aggregate_of
from millstream.engine.data.arrays import distinct, expanded
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.state.forms import state_record
from millstream.engine.windows.assigners import Assigner

EARLY_ANSWERS_MAX = 10_000  # in one go; a gap in time that would give more gives its last ones
EMPTY_WINDOWS_MAX = 10_000  # in a row; after that one notice instead of more (K6)


def moments(every_us: int, track: WatermarkTrack, newest_us: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the multiples of d inside `spans` (start < m < end) that W crosses on the track, with the seq of the item that moved it.

    `spans` are the times from each pane to the end of its last window: at other times nothing is open. None after the last event time,
    which is that of the newest row, or later where W says so: a row that was filtered out is seen in W alone.
    """
    if every_us == 0 or track.end == track.start or newest_us == TIME_MIN:
        return []
    limit = max(newest_us, track.last_open) if track.end == TIME_MAX else track.end
    first = np.array([max(start, track.start) // every_us + 1 for start, _ in spans], dtype=np.int64)
    stop = np.array([min(limit // every_us + 1, -(-end // every_us)) for _, end in spans], dtype=np.int64)
    parts = [np.arange(a, b, dtype=np.int64) for a, b in zip(first.tolist(), stop.tolist(), strict=True) if b > a]
    if not parts:
        return []
    found = distinct(np.concatenate(parts)) * every_us
    return list(zip(found.tolist(), track.first_reaching(found).tolist(), strict=True))


def moments_after(every_us: int, lower_us: int, upper_us: int, instants: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the multiples of d in [lower, upper], at most EARLY_ANSWERS_MAX after each of the rising instants and none before the first.

    What is left out of a long silence depends on the rows alone, not on how they were batched.
    """
    if len(instants) == 0 or upper_us < lower_us:
        return np.empty(0, dtype=np.int64)
    limit = (upper_us // every_us + 1) * every_us
    beyond = np.minimum(np.append(instants[1:], limit), limit)
    first = -(-np.maximum(instants, lower_us) // every_us)
    stop = -(-beyond // every_us)
    stop = np.minimum(stop, -(-instants // every_us) + EARLY_ANSWERS_MAX)
    counts = np.maximum(stop - first, 0)
    return expanded(first, counts) * every_us


def empty_answer(calls: Sequence[AggregateCall]) -> list[Column]:
    """Return one row of aggregates over nothing: counts are 0, all others NULL (K6)."""
    zero = np.zeros(1, dtype=np.int64)
    return [Column(c.type, zero) if aggregate_of(c.function).zero_if_empty else null_column(c.type, 1) for c in calls]


@state_record("empty_windows", 1, ("next_window", "in_a_row", "notes"))
class EmptyWindows:
    """Which windows without rows have been answered. `next_window` is the first that has not been looked at."""

    def __init__(self) -> None:
        self.next_window: int | None = None
        self.in_a_row = 0
        self.notes: dict[str, Any] | None = None

    def note(self, times: Int64Array, watermark_us: Int64Array, assigner: Assigner) -> None:
        """Take down the first window that rows meet and that was open when they came, W standing at `watermark_us` before each of them."""
        below = times < watermark_us
        firsts = [] if self.next_window is None else [self.next_window]
        if not below.all():
            firsts.append(assigner.windows_of(assigner.pane_of(int(times[~below].min())))[0])
        for time, watermark in zip(times[below].tolist(), watermark_us[below].tolist(), strict=True):
            first, last = assigner.windows_of(assigner.pane_of(time))
            first = max(first, assigner.last_closed(watermark) + 1)
            firsts += [first] if first <= last else []
        self.next_window = min(firsts, default=None)

    def missing(self, windows: Sequence[int], upto: int) -> list[int]:
        """Return the windows up to `upto` that hold no row, given those that do; at most EMPTY_WINDOWS_MAX in a row."""
        if self.next_window is None:
            return []
        found: list[int] = []
        start = self.next_window
        for window in [*windows, upto + 1]:
            gap = window - start
            room = max(0, EMPTY_WINDOWS_MAX - self.in_a_row)
            found.extend(range(start, start + min(gap, room)))
            self.in_a_row += gap
            if gap > room:
                self.notes = {"gap": {"empty_windows": gap - room, "from_window": start + room}}
            if window <= upto:
                self.in_a_row = 0
            start = window + 1
        self.next_window = max(self.next_window, upto + 1)
        return found
