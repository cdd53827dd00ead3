"""EMIT EMPTY with keys: the rows of windows in which a key that is known has none (K6).

It stands behind the aggregate, whose rows come window by window. A key is known from the first window in which it has a row. Each window
that W passes from then on has a row of it: behind those of the aggregate, in the order in which keys became known, COUNT 0 and the others
NULL, or, inside LOCF( ), what it was last. What is held is each key once, and its last value of each LOCF( ). At the end of the stream
nothing is filled behind the last window that has rows, or that W had passed.

A row comes by the item that moved W past the end of its window, with the window's time, as those of the aggregate do.
INTERPOLATE( ) stands behind it (interpolate.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack
from millstream.engine.language.recipes import GapFillRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import for_each_row, made_train, progress, timestamps
from millstream.engine.windows.assigners import assigner_for
from millstream.engine.windows.early import EMPTY_WINDOWS_MAX, empty_answer

FILLED_ROWS_MAX = 100_000  # in windows in a row in which no key has one: a long silence of many keys is told instead (K6)


@dataclass(frozen=True, slots=True)
class _Filled:
    """One window: its rows of the aggregate, start to stop, then the known keys that have none; `seq` is the item that closed it."""

    window: int
    seq: int
    start: int
    stop: int
    missing: Int64Array


class GapFill(Operator):
    """Rows for the known keys that a window lacks."""

    state_name = "gap_fill"
    state_fields: tuple[str, ...] = ("_keys", "_known", "_next", "_in_a_row", "_reached", "_notes", "_last")

    def __init__(self, recipe: GapFillRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._assigner = assigner_for(recipe.window, 0)
        self._keys = key_encoder([inputs.fields[p].type for p in range(recipe.keys)])
        self._known = np.empty(0, dtype=np.int64)  # in the order in which they became so
        self._next: int | None = None  # the first window that has not been given
        self._in_a_row = 0  # windows without rows since the last one with some
        self._reached = TIME_MIN
        self._notes: dict[str, Any] | None = None
        self._carried = [recipe.keys + place for place, call in enumerate(recipe.aggregates) if call.carried]
        self._last = [null_column(inputs.fields[p].type, 0) for p in self._carried]  # by key

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up W where the input stands."""
        self._reached = watermarks_us[0]
        return super().attached(watermarks_us, idle)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Give the rows of the windows that have come, and of those that W has passed without any."""
        train = inputs[0]
        ids, ends = self._encoded(train)
        filled = list(self._windows(train, ids, ends))
        if train.track.end != TIME_MAX:
            self._reached = max(self._reached, train.track.end)
        made = self._rows(train, filled, ids)
        made.notes = self._notes or made.notes
        out.emit(made)

    # Which windows -----------------------------------------------------------------------------------------------------

    def _windows(self, train: Train, ids: Int64Array, ends: Int64Array) -> Iterator[_Filled]:
        """Yield the windows that are due, in order; without keys those that have come."""
        starts = np.flatnonzero(np.diff(ends, prepend=TIME_MIN)) if train.rows else np.empty(0, dtype=np.int64)
        stops = [*starts[1:].tolist(), train.rows]
        for start, stop in zip(starts.tolist(), stops, strict=False):
            window = self._assigner.last_closed(int(ends[start]))
            yield from self._empty(window, train.track)
            present = ids[start:stop]
            yield _Filled(window, int(train.seq.array()[start]), start, stop, self._without(present))
            self._learn(present)
            self._next, self._in_a_row = window + 1, 0
        if self._next is not None and self._recipe.keys:
            yield from self._empty(self._upto(train.track) + 1, train.track)

    def _encoded(self, train: Train) -> tuple[Int64Array, Int64Array]:
        if not train.rows:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        keys = [train.column(p) for p in range(self._recipe.keys)]
        ids = self._keys.encode(keys).astype(np.int64) if keys else np.zeros(train.rows, dtype=np.int64)
        return ids, train.column(len(self._recipe.schema) - 1).values.astype(np.int64)

    def _upto(self, track: WatermarkTrack) -> int:
        """Return the last window that W has passed; at the end of the stream, that it had passed by itself."""
        reached = max(self._reached, track.last_open if track.end == TIME_MAX else track.end)
        return self._assigner.last_closed(reached)

    def _empty(self, before: int, track: WatermarkTrack) -> Iterator[_Filled]:
        """Yield the windows without rows up to `before` (excluded), as many in a row as may be."""
        if self._next is None or before <= self._next or not self._recipe.keys:
            return
        first, gap = self._next, before - self._next
        most = min(EMPTY_WINDOWS_MAX, FILLED_ROWS_MAX // max(1, len(self._known)))
        room = max(0, most - self._in_a_row)
        windows = range(first, first + min(gap, room))
        self._in_a_row += gap
        if gap > room:
            self._notes = {"gap": {"empty_windows": gap - room, "from_window": first + room}}
        self._next = before
        if windows:
            ends = np.array([self._assigner.end(window) for window in windows], dtype=np.int64)
            for window, seq in zip(windows, track.first_reaching(ends).tolist(), strict=True):
                yield _Filled(window, seq, 0, 0, self._known)

    def _without(self, present: Int64Array) -> Int64Array:
        """Return the known keys that are not among these."""
        if not len(self._known):
            return self._known
        lacking = np.ones(self._size, dtype=np.bool_)
        lacking[present] = False
        return self._known[lacking[self._known]]

    @property
    def _size(self) -> int:
        """How many keys have a number."""
        return self._keys.size if self._recipe.keys else 1

    def _learn(self, present: Int64Array) -> None:
        new = np.ones(self._size, dtype=np.bool_)
        new[self._known] = False
        self._known = np.concatenate((self._known, present[new[present]]))

    # Their rows --------------------------------------------------------------------------------------------------------

    def _rows(self, train: Train, filled: Sequence[_Filled], ids: Int64Array) -> Train:
        if not any(len(one.missing) for one in filled) and not (self._carried and train.rows):
            return train if train.rows else progress(train, self.schemas[0])
        sizes = [one.stop - one.start + len(one.missing) for one in filled]
        missing = np.concatenate([one.missing for one in filled])
        places, at = [], train.rows
        for one in filled:
            places += [np.arange(one.start, one.stop), np.arange(at, at + len(one.missing))]
            at += len(one.missing)
        order = np.concatenate(places)
        keys = self._keys.columns(missing) if self._recipe.keys else []
        nothing = np.zeros(len(missing), dtype=np.int64)
        columns: list[Column] = []
        for position, column in enumerate([*keys, *(one.take(nothing) for one in empty_answer(self._recipe.aggregates))]):
            columns.append(concat_columns([train.column(position), column]).take(order) if train.rows else column.take(order))
        if self._carried:
            self._carry(columns, np.concatenate((ids, missing))[order])
        ends = [self._assigner.end(one.window) for one in filled]
        columns += [timestamps([self._assigner.start(one.window) for one in filled], sizes), timestamps(ends, sizes)]
        seqs = for_each_row([one.seq for one in filled], sizes).array()
        times = for_each_row([end - 1 for end in ends], sizes).array()
        return made_train(train, self.schemas[0], columns, seqs, times, train.track)

    def _carry(self, columns: list[Column], ids: Int64Array) -> None:
        """Put the last value of each key in the place of NULLs, and keep what is the last now; `ids` are the keys of the rows."""
        by_key = np.argsort(ids, kind="stable")
        groups = ids[by_key]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        first = np.repeat(starts, np.diff(np.append(starts, len(groups))))
        places = np.arange(len(groups), dtype=np.int64)
        for number, position in enumerate(self._carried):
            column, before = columns[position], self._last[number]
            if len(before) < self._size:
                before = concat_columns([before, null_column(column.type, self._size - len(before))])
            valid = column.validity()
            known = np.ones(len(groups), dtype=np.bool_) if valid is None else np.asarray(valid)[by_key]
            latest = np.maximum.accumulate(np.where(known, places, -1))
            inside = latest >= first  # of the same key, at or before the row
            source = np.where(inside, len(before) + by_key[np.maximum(latest, 0)], groups)
            index = np.empty(len(groups), dtype=np.int64)
            index[by_key] = source
            both = concat_columns([before, column])
            columns[position] = both.take(index)
            ends = np.append(starts[1:], len(groups)) - 1
            kept = np.arange(self._size, dtype=np.int64)
            kept[groups[ends]] = source[ends]
            self._last[number] = both.take(kept)

    # State -------------------------------------------------------------------------------------------------------------

    def wake_at_us(self) -> int | None:
        """Return the end of the next window, once a key is known: a stream by ARRIVAL must tick then."""
        if self._next is None or self._in_a_row >= EMPTY_WINDOWS_MAX:
            return None
        return self._assigner.end(self._next)

    def state_rows(self) -> int:
        """Return the keys that are known."""
        return len(self._known)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._keys.nbytes() + int(self._known.nbytes) + sum(column.nbytes() for column in self._last)
