"""Rows kept by operators that work in event-time order: a few arrays side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX
from millstream.engine.state.forms import state_record

BoolArray = npt.NDArray[np.bool_]


@state_record("rows", 1, ("columns", "time", "seq", "ordinal"))
class BufferedRows:
    """Columns with event time, seq and ordinal: the place of a row on its edge, which breaks ties (K11)."""

    __slots__ = ("columns", "ordinal", "seq", "time")

    def __init__(self, columns: Sequence[Column], time: Int64Array, seq: Int64Array, ordinal: Int64Array) -> None:
        self.columns = list(columns)
        self.time = time
        self.seq = seq
        self.ordinal = ordinal

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """What stands beside the columns, in the order in which a buffer is made of it."""
        return self.time, self.seq, self.ordinal

    def take(self, index: Int64Array) -> Self:
        """Return the rows at the positions `index`."""
        return type(self)([c.take(index) for c in self.columns], *[array[index] for array in self.arrays])

    def slice(self, start: int, stop: int) -> Self:
        """Return rows start to stop (excluded) without copying; itself when that is all of them."""
        if start == 0 and stop == len(self):
            return self
        return type(self)([c.slice(start, stop) for c in self.columns], *[array[start:stop] for array in self.arrays])

    def copied(self) -> Self:
        """Return the same rows in memory of their own, so that what they were a part of can be freed."""
        return self.take(np.arange(len(self), dtype=np.int64))

    def kept(self, mask: BoolArray) -> Self:
        """Return the rows where the mask is true; itself when that is all of them."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def in_order(self) -> Self:
        """Return the rows by event time, ties by arrival."""
        if len(self) < 2:
            return self
        times, ordinals = self.time[1:] - self.time[:-1], self.ordinal[1:] - self.ordinal[:-1]
        if bool(np.all((times > 0) | ((times == 0) & (ordinals > 0)))):
            return self
        return self.take(np.lexsort((self.ordinal, self.time)))

    def nbytes(self) -> int:
        """Return the bytes held."""
        return sum(c.nbytes() for c in self.columns) + 24 * len(self)


def no_rows(schema: Schema) -> BufferedRows:
    """Return an empty buffer."""
    nothing = np.empty(0, dtype=np.int64)
    return BufferedRows([null_column(f.type, 0) for f in schema.fields], nothing, nothing, nothing)


def buffered(train: Train, ordinal: int) -> BufferedRows:
    """Return a train's rows; the first has the ordinal given."""
    ordinals = np.arange(ordinal, ordinal + train.rows, dtype=np.int64)
    return BufferedRows(train.columns(), train.time.array(), train.seq.array(), ordinals)


Rows = TypeVar("Rows", bound=BufferedRows)


def concat_rows(*parts: Rows, join: Callable[[list[Column]], Column] = concat_columns) -> Rows:
    """Return the rows of some buffers, at least one, one after the other; a buffer itself where no other has rows."""
    full = [p for p in parts if len(p)]
    if len(full) < 2:
        return full[0] if full else parts[0]
    columns = [join(list(one)) for one in zip(*(p.columns for p in full), strict=True)]
    return type(full[0])(columns, *[np.concatenate(one) for one in zip(*(p.arrays for p in full), strict=True)])


class WaitingRows:
    """Rows in order of arrival, each of which leaves when W reaches its end.

    They lie in runs. Runs of like size are joined, so a row is copied about log2(rows) times however few come at once, and nothing is
    looked through before W reaches the least end. Whoever holds this tells the ends of rows, as it would be part of a ring if it could ask.
    """

    __slots__ = ("_runs", "least_end_us")

    def __init__(self, nothing: BufferedRows) -> None:
        self._runs = [nothing]
        self.least_end_us = TIME_MAX

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self._runs))

    def nbytes(self) -> int:
        """Return the bytes held."""
        return sum(run.nbytes() for run in self._runs)

    def add(self, rows: BufferedRows, ends: Int64Array) -> None:
        """Append rows, at least one."""
        self.least_end_us = min(self.least_end_us, int(ends.min()))
        self._runs.append(rows)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = concat_rows(self._runs[-1], last)

    def whole(self) -> BufferedRows:
        """Return all rows as one."""
        if len(self._runs) > 1:
            self._runs = [concat_rows(*self._runs)]
        return self._runs[0]

    def keep(self, rows: BufferedRows, ends: Int64Array) -> None:
        """Hold these rows in place of all others."""
        self._runs = [rows]
        self.least_end_us = int(ends.min()) if len(ends) else TIME_MAX

    def leave(self, reached_us: int, ends_of: Callable[[BufferedRows], Int64Array]) -> BufferedRows:
        """Return the rows whose end W has reached, and hold the others."""
        if reached_us < self.least_end_us:
            return self._runs[0].slice(0, 0)
        rows = self.whole()
        ends = ends_of(rows)
        due = ends <= reached_us
        self.keep(rows.kept(~due), ends[~due])
        return rows.kept(due)
