"""Many growable vectors side by side in one arena, numbered by dense ids: the cells of each group of a sliding window.

A vector is appended to at its end and loses elements at its front. One that has no room at its end goes back to the beginning of its
room, if it has lost as many as it has; else it is moved to the arena's end with twice the room. An arena that is full becomes longer where
it stands, if little of it has been left behind, as where ever more vectors begin; else it is rewritten. All of these copy an element
about once for each that came or went. All calls take whole arrays; positions are places in the arena and hold
until the next `append`. `StoredColumns` are how columns lie in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import expanded, run_sizes, run_starts
from millstream.engine.data.arrow import column_of_values, value_array
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.key_maps import array_bytes
from millstream.engine.data.schema import Schema
from millstream.engine.state.forms import state_record

Int64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]

ARENA_MIN = 64
ROOM_MIN = 2
LEFT_BEHIND_MOST = 4  # one of so many parts of an arena that becomes longer may be what vectors have left behind
SPARE_PART = 2  # a new arena is longer by one of so many parts
SHRINK_BELOW = 16  # an arena this many times larger than what lives in it is rewritten
_NONE: Int64Array = np.empty(0, dtype=np.int64)


@state_record("vectors", 1, ("columns", "start", "size", "room", "used", "live"))
class Vectors:
    """Many growing vectors, one an id, in common arenas.

    `columns` are parallel arenas of the given dtypes; the first holds values that rise within a vector.
    """

    def __init__(self, dtypes: Sequence[Any]) -> None:
        self.columns: list[npt.NDArray[Any]] = [np.zeros(ARENA_MIN, dtype=d) for d in dtypes]
        self.start: Int64Array = np.zeros(1, dtype=np.int64)
        self.size: Int64Array = np.zeros(1, dtype=np.int64)
        self._room: Int64Array = np.zeros(1, dtype=np.int64)  # from the start on
        self._begin: Int64Array = np.zeros(1, dtype=np.int64)  # where the room begins; what has gone stood from there to the start
        self._used = 0
        self.live = 0  # elements in all vectors

    def to_state(self) -> tuple[Any, ...]:
        """Return the arena as far as it is used, and where the vectors are in it."""
        used = max(ARENA_MIN, self._used)
        return [c[:used] for c in self.columns], self.start, self.size, self._room, self._used, self.live

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Vectors:
        """Return the vectors; the next one that has no room finds the arena full."""
        made = cls(())
        made.columns, made.start, made.size = fields["columns"], fields["start"], fields["size"]
        made._room, made._used, made.live = fields["room"], fields["used"], fields["live"]
        made._begin = np.array(made.start)
        return made

    def reserve_ids(self, count: int) -> None:
        """Make ids below `count` known."""
        missing = count - len(self.start)
        if missing > 0:
            more = np.zeros(max(missing, len(self.start)), dtype=np.int64)
            self.start = np.concatenate((self.start, more))
            self.size = np.concatenate((self.size, more))
            self._room = np.concatenate((self._room, more))
            self._begin = np.concatenate((self._begin, more))

    def append(self, ids: Int64Array, values: Sequence[npt.NDArray[Any]]) -> Int64Array:
        """Append values, sorted by id, to their vectors; return the positions that they got."""
        if len(ids) == 0:
            return ids
        begins = run_starts(ids)
        which = ids[begins]
        counts = run_sizes(begins, len(ids))
        need = self.size[which] + counts
        full = need > self._room[which]
        if full.any():
            self._make_room(which, need, full)
        positions = expanded(self.start[which] + self.size[which], counts)
        for column, given in zip(self.columns, values, strict=True):
            column[positions] = given
        self.size[which] = need
        self.live += len(ids)
        return positions

    def _make_room(self, which: Int64Array, need: Int64Array, full: BoolArray) -> None:
        """Give some different vectors the room that they need; `full` are those that do not have it."""
        short = which[full]
        rooms = self.start[short] + self._room[short] - self._begin[short]
        goes_back = 2 * need[full] <= rooms
        moved = short[~goes_back]
        moved_rooms = 2 * need[full][~goes_back] + ROOM_MIN
        beyond = self._used + int(moved_rooms.sum())
        if beyond > len(self.columns[0]):
            rewritten = 2 * (self.live + len(moved)) + ROOM_MIN * int(np.count_nonzero(self.size))
            if LEFT_BEHIND_MOST * (beyond - rewritten) > beyond:
                self._rewrite(which, 2 * need + ROOM_MIN)  # of all, as a new arena takes spare room away
                return
            self._lengthen(beyond + beyond // SPARE_PART)
        back = short[goes_back]
        self._copy(back, self._begin[back], self.columns)
        self.start[back], self._room[back] = self._begin[back], rooms[goes_back]
        starts = self._used + np.cumsum(moved_rooms) - moved_rooms
        self._copy(moved, starts, self.columns)
        self.start[moved], self._begin[moved], self._room[moved] = starts, starts, moved_rooms
        self._used = beyond

    def _lengthen(self, length: int) -> None:
        """Make the arena longer. The system moves pages of memory of this size without copying them."""
        columns, self.columns = self.columns[::-1], []
        while columns:
            column = columns.pop()
            try:
                column.resize(length)
            except ValueError:  # somebody else looks at it, or it came with a state
                longer = np.zeros(length, dtype=column.dtype)
                longer[: len(column)] = column
                column = longer
            self.columns.append(column)

    def _copy(self, which: Int64Array, starts: Int64Array, into: Sequence[npt.NDArray[Any]]) -> None:
        sizes = self.size[which]
        source, target = expanded(self.start[which], sizes), expanded(starts, sizes)
        for column, other in zip(self.columns, into, strict=True):
            other[target] = column[source]

    def _rewrite(self, grown: Int64Array = _NONE, grown_rooms: Int64Array = _NONE) -> None:
        """Copy the live elements to a new arena: each vector has so much room that it stays there if it does not grow."""
        rooms = np.where(self.size > 0, 2 * self.size + ROOM_MIN, 0)
        rooms[grown] = grown_rooms
        starts = np.cumsum(rooms) - rooms
        used = int(rooms.sum())
        fresh = [np.zeros(max(ARENA_MIN, used + used // SPARE_PART), dtype=c.dtype) for c in self.columns]
        which = np.flatnonzero(self.size)
        if len(which):
            self._copy(which, starts[which], fresh)
        self.columns = fresh
        self.start, self._begin, self._room = starts, starts.copy(), rooms
        self._used = used

    def drop_front(self, ids: Int64Array, counts: Int64Array) -> None:
        """Let the first elements of some different vectors go."""
        self.start[ids] += counts
        self.size[ids] -= counts
        self._room[ids] -= counts
        self.live -= int(counts.sum())
        if len(self.columns[0]) > max(ARENA_MIN, SHRINK_BELOW * self.live):
            self._rewrite()

    def positions(self, ids: Int64Array) -> Int64Array:
        """Return the positions of all elements of some vectors, one vector after another."""
        return expanded(self.start[ids], self.size[ids])

    def above(self, ids: Int64Array, values: Int64Array) -> Int64Array:
        """Return the position of each vector's first element (of the first column) above a value; its end when there is none."""
        if len(ids) == 0:
            return ids
        column = self.columns[0]
        if len(ids) == 1 or bool((ids == ids[0]).all()):
            start = int(self.start[ids[0]])
            stop = start + int(self.size[ids[0]])
            return np.searchsorted(column[start:stop], values, side="right") + start
        low, high = self.start[ids], self.start[ids] + self.size[ids]
        last = len(column) - 1
        for _ in range(int(self.size[ids].max()).bit_length()):
            middle = (low + high) >> 1
            right = (low < high) & (column[np.minimum(middle, last)] <= values)
            low = np.where(right, middle + 1, low)
            high = np.where(right, high, middle)
        return low

    def nbytes(self) -> int:
        """Return the bytes of the arena."""
        return sum(array_bytes(c) for c in self.columns)


@state_record("stored_columns", 1, ("positions", "_types", "_first"))
class StoredColumns:
    """How the columns at `positions` of a schema lie in an arena, from its column `first` on."""

    def __init__(self, inputs: Schema, positions: Sequence[int], first: int) -> None:
        self.positions = tuple(positions)
        self._types = [inputs.fields[p].type for p in positions]
        self._first = first

    @property
    def dtypes(self) -> list[Any]:
        """The types of the arena's columns, two for each of the schema's."""
        return [d for t in self._types for d in (np.object_ if t.is_arrow else numpy_dtype(t), np.bool_)]

    def stored(self, columns: Sequence[Column], rows: int) -> list[Array]:
        """Return the arrays to append."""
        arrays: list[Array] = []
        for position in self.positions:
            column = columns[position]
            arrays.append(value_array(column))
            arrays.append(np.ones(rows, dtype=np.bool_) if column.valid is None else column.valid)
        return arrays

    def gathered(self, vectors: Vectors, at: Int64Array) -> list[Column]:
        """Return the columns of the elements at some places of the arena."""
        columns: list[Column] = []
        for number, type_ in enumerate(self._types):
            place = self._first + 2 * number
            columns.append(column_of_values(vectors.columns[place][at], type_, vectors.columns[place + 1][at]))
        return columns
