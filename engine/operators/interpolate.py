"""INTERPOLATE( ) with EMIT EMPTY: a window without a value lies on the line between the values before and behind it (K6).

It stands behind the rows that fill the gaps (gap_fill.py) and needs the value behind a gap: rows wait for it, and have the time of the row
that brings it. At most EMPTY_WINDOWS_MAX windows of a key wait; behind so many it is NULL up to the next value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.buffered import buffered, concat_rows, no_rows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import DOUBLE
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.recipes import InterpolateRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.windows.early import EMPTY_WINDOWS_MAX


class Interpolate(Operator):
    """Puts what lies between the values before and behind into the NULLs of some columns; a row leaves when they are known."""

    state_name = "interpolate"
    state_fields: tuple[str, ...] = ("_keys", "_held", "_has", "_values", "_times", "_newest")

    def __init__(self, recipe: InterpolateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._keys = key_encoder([inputs.fields[p].type for p in range(recipe.keys)])
        self._held = no_rows(inputs)  # rows that wait, in order
        count = len(recipe.columns)
        # By column and key: whether there is a value before, that value and its time.
        self._has: npt.NDArray[np.bool_] = np.zeros((count, 1), dtype=np.bool_)
        self._values: npt.NDArray[np.float64] = np.zeros((count, 1), dtype=np.float64)
        self._times: Int64Array = np.zeros((count, 1), dtype=np.int64)
        self._newest = TIME_MIN

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Give the rows whose values are known now, in the order of what made them known, then of their own."""
        train = inputs[0]
        if train.rows:
            self._newest = int(train.time.array()[-1])
        self._held = concat_rows(self._held, buffered(train, 0))
        rows, ends = self._held, train.track.end == TIME_MAX
        if not len(rows) or not (train.rows or ends):
            out.emit(progress(train, self.schemas[0]))
            return
        ids = self._encoded()
        moments = np.arange(len(rows), dtype=np.int64)
        known = dict(enumerate(rows.columns))
        for number, position in enumerate(self._recipe.columns):
            known[position], until = self._filled(number, known[position], ids)
            moments = np.maximum(moments, until)
        made = list(known.values())
        done = np.flatnonzero((moments < len(rows)) | ends)
        done = done[np.argsort(moments[done], kind="stable")]
        at = np.minimum(moments[done], len(rows) - 1)
        last = moments[done] == len(rows)  # only the end of the stream lets these go
        seqs = np.where(last, train.hi - 1, rows.seq[at])
        times = np.where(last, self._newest, rows.time[at])
        out.emit(made_train(train, self.schemas[0], [column.take(done) for column in made], seqs, times, train.track))
        self._held = rows.kept(moments == len(rows)) if not ends else no_rows(self.schemas[0])

    def _encoded(self) -> Int64Array:
        keys = [self._held.columns[p] for p in range(self._recipe.keys)]
        ids = self._keys.encode(keys).astype(np.int64) if keys else np.zeros(len(self._held), dtype=np.int64)
        more = (self._keys.size if keys else 1) - self._has.shape[1]
        if more > 0:
            room = ((0, 0), (0, more))
            self._has, self._values, self._times = np.pad(self._has, room), np.pad(self._values, room), np.pad(self._times, room)
        return ids

    def _filled(self, number: int, column: Column, ids: Int64Array) -> tuple[Column, Int64Array]:
        """Return the column with what is known now, and at which of the rows each was; their number where it is not known yet.

        A row that has waited for as many windows as may be is NULL, and so are those behind it up to the next value.
        """
        by_key = np.argsort(ids, kind="stable")
        keys, rows = ids[by_key], len(ids)
        values = np.asarray(column.values)[by_key]
        valid = np.ones(rows, dtype=np.bool_) if column.validity() is None else np.asarray(column.validity())[by_key]
        times = np.asarray(self._held.columns[-1].values)[by_key].astype(np.int64)
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        sizes = np.diff(np.append(starts, rows))
        first, stop = np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)
        places = np.arange(rows, dtype=np.int64)
        before = np.maximum.accumulate(np.where(valid, places, -1))
        inside = before >= first
        has = inside | self._has[number][keys]
        broken = ~valid & has & (np.where(inside, places - before, places - first + 1) > EMPTY_WINDOWS_MAX)
        behind = np.minimum.accumulate(np.where(valid | broken, places, rows)[::-1])[::-1]
        waits = ~valid & has & ~broken
        until = np.where(waits, np.where(behind < stop, behind, rows), places)
        at = np.maximum(before, 0)
        old, since = np.where(inside, values[at], self._values[number][keys]), np.where(inside, times[at], self._times[number][keys])
        between = waits & (until < rows)
        between[between] = valid[until[between]]
        to = until[between]
        share = (times[between] - since[between]) / (times[to] - since[between])
        made = np.where(valid, values, 0.0)
        made[between] = old[between] * (1.0 - share) + values[to] * share
        self._remember(number, keys, starts, np.where(valid | broken, places, -1), valid, values, times)
        moments, back, filled = np.empty(rows, dtype=np.int64), np.empty(rows), np.empty(rows, dtype=np.bool_)
        moments[by_key] = np.where(until < rows, by_key[np.minimum(until, rows - 1)], rows)
        back[by_key], filled[by_key] = made, valid | between
        return Column(DOUBLE, back, filled), moments

    def _remember(
        self, number: int, keys: Int64Array, starts: Int64Array, stops: Int64Array, valid: Any, values: Any, times: Int64Array
    ) -> None:
        """Keep the last value of each key; there is none behind a row that has waited too long."""
        last = np.maximum.reduceat(stops, starts)
        groups, at = keys[starts][last >= 0], last[last >= 0]
        self._has[number][groups] = valid[at]
        self._values[number][groups], self._times[number][groups] = values[at], times[at]

    # State -------------------------------------------------------------------------------------------------------------

    def state_rows(self) -> int:
        """Return the rows that wait."""
        return len(self._held)

    def state_bytes(self) -> int:
        """Return their bytes, and those of the keys."""
        return self._held.nbytes() + self._keys.nbytes() + int(self._has.nbytes + self._values.nbytes + self._times.nbytes)
