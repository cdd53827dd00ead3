"""Which stretch of event time an answer was given from, for each kind of window: what its receipt counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.recipes import AggregateRecipe, EmitKind, WindowKind, WindowSpec
from millstream.engine.windows.assigners import Assigner, assigner_for

Int64Array = npt.NDArray[np.int64]
Bounds = tuple[Int64Array, Int64Array]


class AnswerSpan(Protocol):
    """Cells of event time, and the cells of each answer. `drops_late`: a row below W is in no window at all, however many are open."""

    drops_late: bool

    def cells(self, times: Int64Array) -> Int64Array:
        """Return the cell of each time."""
        ...

    def of(self, answers: Train) -> Bounds:
        """Return for each answer its first cell and the one after its last."""
        ...

    def kept_from(self, watermark_us: int) -> int | None:
        """Return the first cell that an answer may still ask for when W stands there; None when that is not known."""
        ...

    def cuts(self, grain_us: int) -> bool:
        """Whether some window begins or ends between multiples of a grain."""
        ...


class WindowBounds:
    """Windows that show [window_start, window_end) in two columns: sessions, rows of sessions, LIMIT per window."""

    drops_late = False

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end

    def cells(self, times: Int64Array) -> Int64Array:
        """Every microsecond is a cell."""
        return times

    def of(self, answers: Train) -> Bounds:
        """Read the two columns."""
        return answers.column(self._start).values, answers.column(self._end).values

    def kept_from(self, watermark_us: int) -> int | None:
        """Any start may still come."""
        return None

    def cuts(self, grain_us: int) -> bool:
        """Any time may be a border."""
        return grain_us > 1


class PaneBounds(WindowBounds):
    """Hopping, tumbling and cumulating windows: a cell is a pane."""

    def __init__(self, start: int, end: int, assigner: Assigner) -> None:
        super().__init__(start, end)
        self._assigner = assigner

    def cells(self, times: Int64Array) -> Int64Array:
        """Return the panes."""
        return self._assigner.panes(times)

    def of(self, answers: Train) -> Bounds:
        """Return from pane to pane."""
        start, end = super().of(answers)
        return self._assigner.panes(start), self._assigner.panes(end - 1) + 1

    def kept_from(self, watermark_us: int) -> int | None:
        """Return the first pane of the first window that is open."""
        if watermark_us in (TIME_MIN, TIME_MAX):
            return None
        return self._assigner.panes_of(self._assigner.last_closed(watermark_us) + 1)[0]

    def cuts(self, grain_us: int) -> bool:
        """Look where panes begin; those of a calendar are taken for what they are near the epoch."""
        return any(self._assigner.pane_start(pane) % grain_us for pane in (0, 1))


class SlidingBounds(WindowBounds):
    """[RANGE t]: the window at an instant is (instant − t, instant]."""

    drops_late = True

    def __init__(self, start: int, end: int, width_us: int) -> None:
        super().__init__(start, end)
        self._width_us = width_us

    def of(self, answers: Train) -> Bounds:
        """Read the columns, open at the start and closed at the end."""
        start, end = super().of(answers)
        return start + 1, end + 1

    def kept_from(self, watermark_us: int) -> int | None:
        """Return the start of the next window."""
        return None if watermark_us in (TIME_MIN, TIME_MAX) else watermark_us - self._width_us


class RowBounds(WindowBounds):
    """[ROWS n]: from the time of the window's oldest row to that of its newest, both included, whatever the partition.

    `advances`: there is one window, whose start never goes back.
    """

    drops_late = True

    def __init__(self, start: int, end: int, *, advances: bool) -> None:
        super().__init__(start, end)
        self._advances = advances
        self._last: int | None = None

    def of(self, answers: Train) -> Bounds:
        """Read the columns, closed at both ends."""
        start, end = super().of(answers)
        self._last = int(start[-1])
        return start, end + 1

    def kept_from(self, watermark_us: int) -> int | None:
        """Return the start of the last window."""
        return self._last if self._advances else None


class SessionBounds(WindowBounds):
    """[SESSION gap]: `oldest_us` tells the least event time in an open session, None when there is none."""

    def __init__(self, start: int, end: int, gap_us: int, oldest_us: Callable[[], int | None]) -> None:
        super().__init__(start, end)
        self._gap_us = gap_us
        self._oldest_us = oldest_us

    def kept_from(self, watermark_us: int) -> int | None:
        """Return where the oldest session began, or could still begin."""
        if watermark_us in (TIME_MIN, TIME_MAX):
            return None
        oldest = self._oldest_us()
        return watermark_us - self._gap_us if oldest is None else min(oldest, watermark_us - self._gap_us)


class Everything:
    """What never closes: all rows from the landmark on; with EMIT EVERY those below the moment, which the last column shows."""

    drops_late = False

    def __init__(self, from_us: int | None, end: int | None) -> None:
        self._from = TIME_MIN if from_us is None else from_us
        self._end = end

    def cells(self, times: Int64Array) -> Int64Array:
        """Every microsecond is a cell."""
        return times

    def of(self, answers: Train) -> Bounds:
        """Return from the landmark to the moment."""
        start = np.full(answers.rows, self._from, dtype=np.int64)
        end = np.full(answers.rows, TIME_MAX, dtype=np.int64) if self._end is None else answers.column(self._end).values
        return start, end

    def kept_from(self, watermark_us: int) -> int | None:
        """Everything is asked for again."""
        return None

    def cuts(self, grain_us: int) -> bool:
        """Any moment may be asked for, or none."""
        return grain_us > 1 and self._end is not None


def span_of(recipe: AggregateRecipe, oldest_us: Callable[[], int | None]) -> AnswerSpan | None:
    """Return what the answers of an aggregate are given from; None for a change log, whose rows belong to no one window."""
    if recipe.emit.kind is EmitKind.CHANGES or recipe.retracts is not None or recipe.emit.instants:
        return None
    start = len(recipe.keys) + len(recipe.aggregates)
    window = recipe.window
    every = recipe.emit.kind is EmitKind.EVERY
    if window is None:
        return None if every else Everything(None, None)
    match window.kind:
        case WindowKind.HOPPING | WindowKind.CUMULATE:
            return PaneBounds(start, start + 1, assigner_for(window, recipe.emit.every_us if every else 0))
        case WindowKind.SLIDING | WindowKind.NOW:
            return SlidingBounds(start, start + 1, 1 if window.kind is WindowKind.NOW else window.range_us)
        case WindowKind.ROWS:
            return RowBounds(start, start + 1, advances=not window.partition and not recipe.keys and not every)
        case WindowKind.SESSION:
            return SessionBounds(start, start + 1, window.gap_us, oldest_us)
        case _:
            return Everything(window.from_us, start + 1 if every else None)


def shared_bounds(window: WindowSpec, answers: Train) -> Bounds:
    """Return [start, end) of the answers of a hopping or cumulating window whose columns may not be shown."""
    end = answers.time.array() + 1
    if window.kind is WindowKind.CUMULATE:
        start = np.floor_divide(end - 1 - window.offset_us, window.range_us) * window.range_us + window.offset_us
    else:
        start = end - window.range_us
    return start, end
