"""ORDER BY … LIMIT k [WITH TIES] per window, and ROW_NUMBER, RANK and DENSE_RANK OVER (PARTITION BY … ORDER BY …) within windows.

Rows wait until W has passed the end of their window, then leave together in the order asked for. Text is ordered by code point, NaN stands
above every number, NULLs where the order says (K13). Rows that the order does not tell apart stand by arrival (K11), so ROW_NUMBER gives
the same answer on every run; RANK and DENSE_RANK number them alike.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrow import plain_values
from millstream.engine.data.buffered import BufferedRows, WaitingRows, buffered, no_rows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import BIGINT
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.language.recipes import OrderColumn, RankRecipe, TopRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import made_train, progress
from millstream.protocol.values import arrow_functions as pc


def rank_values(column: Column) -> Int64Array:
    """Return integers that are ordered, and equal, as the column's values are; NULLs get 0 and the rest at least 1."""
    valid = column.validity()
    ranks: Int64Array
    if not column.type.is_ordered:  # a list has no order to people; some order is needed where equal bytes are promised
        ranks = np.unique([repr(v) for v in plain_values(column)], return_inverse=True)[1].astype(np.int64) + 1
    elif column.type.is_arrow:
        ranks = pc.rank(column.values, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        values = column.values + 0.0 if column.values.dtype == np.float64 else column.values
        _, place = np.unique(values, return_inverse=True, equal_nan=True)
        ranks = place.astype(np.int64) + 1
    return ranks if valid is None else np.where(valid, ranks, 0)


def order_keys(columns: Sequence[Column], order: Sequence[OrderColumn]) -> list[Int64Array]:
    """Return one array of sort keys per ordering column, to be sorted ascending."""
    keys: list[Int64Array] = []
    for column, wanted in zip(columns, order, strict=True):
        ranks = rank_values(column)
        signed = np.where(ranks == 0, 0, -ranks if wanted.descending else ranks)
        beyond = np.iinfo(np.int64).min if wanted.nulls_first else np.iinfo(np.int64).max
        keys.append(np.where(ranks == 0, beyond, signed))
    return keys


PRUNE_ROWS_MIN = 256


class OrderedRows(Operator):
    """Keeps rows until W has passed the end of their window. Subclasses say where that is, and which rows leave in which order."""

    state_fields: tuple[str, ...] = ("_rows", "_ordinal", "_watermark")

    def __init__(self, schema: Schema, inputs: Schema, order: Sequence[OrderColumn]) -> None:
        super().__init__([schema])
        self._order = order
        self._waiting = WaitingRows(no_rows(inputs))
        self._ordinal = 0
        self._watermark = TIME_MIN

    @property
    def _rows(self) -> BufferedRows:
        """All that waits, as the state has it."""
        return self._waiting.whole()

    @_rows.setter
    def _rows(self, rows: BufferedRows) -> None:
        self._waiting.keep(rows, self._ends(rows))

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Keep rows; let those of the windows go that W has passed, with a flush all."""
        train = inputs[0]
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        self._watermark = max(self._watermark, track.end)
        if train.rows:
            rows = buffered(train, self._ordinal)
            self._waiting.add(rows, self._ends(rows))
            self._ordinal += train.rows
        out.emit(self._closed(train, track))

    def _closed(self, train: Train, track: WatermarkTrack) -> Train:
        rows = self._waiting.leave(TIME_MAX if train.flush else track.end, self._ends)
        if not len(rows):
            return progress(train, self.schemas[0], track)
        ends = self._ends(rows)
        picked, added = self._leaving(rows, ends)
        seqs = closing_seqs(train, track, ends[picked], rows.seq[picked])
        again = np.argsort(seqs, kind="stable")
        picked = picked[again]
        columns = [*rows.take(picked).columns, *(c.take(again) for c in added)]
        return made_train(train, self.schemas[0], columns, seqs[again], rows.time[picked], track)

    @abstractmethod
    def _ends(self, rows: BufferedRows) -> Int64Array:
        """Return for each row the W at which its window is complete."""

    @abstractmethod
    def _leaving(self, rows: BufferedRows, ends: Int64Array) -> tuple[Int64Array, list[Column]]:
        """Return the places of the rows that leave, in order, and the columns that are appended to these."""

    def _keys(self, rows: BufferedRows) -> list[Int64Array]:
        return order_keys([rows.columns[o.position] for o in self._order], self._order)

    def wake_at_us(self) -> int | None:
        """Return the least end of a window that waits."""
        return self._waiting.least_end_us if self._waiting.least_end_us != TIME_MAX else None

    def state_rows(self) -> int:
        """Return the rows that wait."""
        return len(self._waiting)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._waiting.nbytes()


class Top(OrderedRows):
    """The first rows of each window in the order asked for.

    The last of the partition columns is the window's end; without any, the end of the stream is.
    """

    state_name = "top"

    def __init__(self, recipe: TopRecipe, inputs: Schema) -> None:
        super().__init__(recipe.schema, inputs, recipe.order)
        self._recipe = recipe
        self._prune_at = PRUNE_ROWS_MIN  # rows at which to look for those beyond the limit; no part of the answer

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Keep rows; let those of the windows go that W has passed. Rows beyond the limit of their window are forgotten now and then."""
        super().process(inputs, out)
        if len(self._waiting) > self._prune_at:  # later rows cannot bring them back
            self._rows = self._rows.take(np.sort(self._first_rows(self._rows)))
            self._prune_at = 2 * len(self._rows) + PRUNE_ROWS_MIN

    def _ends(self, rows: BufferedRows) -> Int64Array:
        if not self._recipe.partition:
            return np.full(len(rows), TIME_MAX, dtype=np.int64)
        ends: Int64Array = rows.columns[self._recipe.partition[-1]].values
        return ends

    def _leaving(self, rows: BufferedRows, ends: Int64Array) -> tuple[Int64Array, list[Column]]:
        return self._first_rows(rows), []

    def _first_rows(self, rows: BufferedRows) -> Int64Array:
        """Return the places of the first `limit` rows of each window, by window and the order asked for, with ties if wanted."""
        windows, keys = self._windows(rows), self._keys(rows)
        order = np.lexsort((rows.ordinal, *reversed(keys), windows))
        return order[self._within_limit(windows[order], [k[order] for k in keys])]

    def _windows(self, rows: BufferedRows) -> Int64Array:
        """Return numbers that order windows by (end, start)."""
        if not self._recipe.partition:
            return np.zeros(len(rows), dtype=np.int64)
        bounds = [rows.columns[p].values for p in reversed(self._recipe.partition)]
        order = np.lexsort(tuple(reversed(bounds)))
        changed = np.zeros(len(rows), dtype=np.bool_)
        for b in bounds:
            changed[1:] |= b[order][1:] != b[order][:-1]
        numbers = np.empty(len(rows), dtype=np.int64)
        numbers[order] = np.cumsum(changed)
        return numbers

    def _within_limit(self, windows: Int64Array, keys: Sequence[Int64Array]) -> Int64Array:
        """Return the places, in sorted rows, of the first `limit` rows of each window, with ties if wanted."""
        place = np.arange(len(windows), dtype=np.int64)
        start = np.searchsorted(windows, windows, side="left")
        inside = place - start < self._recipe.limit
        if self._recipe.with_ties and self._recipe.limit > 0:
            last = np.minimum(start + self._recipe.limit - 1, np.searchsorted(windows, windows, side="right") - 1)
            tied = np.ones(len(windows), dtype=np.bool_)
            for key in keys:
                tied &= key == key[last]
            inside |= tied
        return np.flatnonzero(inside)


class Rank(OrderedRows):
    """ROW_NUMBER, RANK or DENSE_RANK of each row in its partition, once W has closed that.

    A window's partitions leave by the arrival of their first row, a partition's rows in the order asked for.
    """

    state_name = "rank"

    def __init__(self, recipe: RankRecipe, inputs: Schema) -> None:
        super().__init__(recipe.schema, inputs, recipe.order)
        self._recipe = recipe
        self._types = [inputs.fields[p].type for p in recipe.partition]

    def _ends(self, rows: BufferedRows) -> Int64Array:
        if self._recipe.closing is None:
            return np.full(len(rows), TIME_MAX, dtype=np.int64)
        column = rows.columns[self._recipe.closing]
        ends: Int64Array = column.values + self._recipe.shift_us
        return ends if column.valid is None else np.where(column.valid, ends, TIME_MIN)

    def _leaving(self, rows: BufferedRows, ends: Int64Array) -> tuple[Int64Array, list[Column]]:
        partition = np.zeros(len(rows), dtype=np.int64)
        if self._types:
            partition = key_encoder(self._types).encode([rows.columns[p] for p in self._recipe.partition])
        first = np.full(int(partition.max()) + 1, TIME_MAX, dtype=np.int64)
        np.minimum.at(first, partition, rows.ordinal)
        keys = self._keys(rows)
        order = np.lexsort((rows.ordinal, *reversed(keys), first[partition], ends))
        begins = np.ones(len(order), dtype=np.bool_)
        begins[1:] = np.diff(partition[order]) != 0
        return order, [Column(BIGINT, self._numbers(begins, [k[order] for k in keys]))]

    def _numbers(self, begins: npt.NDArray[np.bool_], keys: Sequence[Int64Array]) -> Int64Array:
        """Return the numbers of sorted rows, given where partitions begin."""
        place = np.arange(len(begins), dtype=np.int64)
        start = np.maximum.accumulate(np.where(begins, place, 0))
        if self._recipe.function == "row_number":
            return place - start + 1
        differs = begins.copy()
        for key in keys:
            differs[1:] |= np.diff(key) != 0
        if self._recipe.function == "rank":
            return np.maximum.accumulate(np.where(differs, place, 0)) - start + 1
        different: Int64Array = np.cumsum(differs, dtype=np.int64)
        return different - different[start] + 1


def closing_seqs(train: Train, track: WatermarkTrack, ends: Int64Array, own: Int64Array) -> Int64Array:
    """Return the seq of the item that closed each row's window; the row's own where it came after that."""
    if train.flush or track.start == track.end:
        return np.full(len(ends), train.hi - 1, dtype=np.int64)
    closing = track.first_reaching(np.clip(ends, track.start + 1, track.end))
    return np.maximum(np.where(ends <= track.start, own, closing), train.lo)
