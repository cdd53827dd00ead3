"""ORDER BY … LIMIT k [WITH TIES] per window: rows wait until W has passed their window's end, then leave in the order asked for.

Text is ordered by code point, NaN stands above every number, NULLs where the order says (K13).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrow import plain_values
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import Kind
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.language.recipes import OrderColumn, TopRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import made_train, progress
from millstream.protocol.values import arrow_functions as pc


def rank_values(column: Column) -> Int64Array:
    """Return integers that are ordered, and equal, as the column's values are; NULLs get 0 and the rest at least 1."""
    valid = column.validity()
    ranks: Int64Array
    if column.type.kind is Kind.LIST:  # a list has no order to people; some order is needed where equal bytes are promised
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


class Top(Operator):
    """The first rows of each window in the order asked for.

    The last of the partition columns is the window's end; without any, the end of the stream is.
    """

    state_fields: tuple[str, ...] = ("_rows", "_ordinal", "_watermark")

    def __init__(self, recipe: TopRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._rows = no_rows(inputs)
        self._ordinal = 0
        self._watermark = TIME_MIN
        self._prune_at = PRUNE_ROWS_MIN  # rows at which to look for those beyond the limit; no part of the answer

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Keep rows; let the windows that W has passed go."""
        train = inputs[0]
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        self._watermark = max(self._watermark, track.end)
        if train.rows:
            self._rows = concat_rows(self._rows, buffered(train, self._ordinal))
            self._ordinal += train.rows
        out.emit(self._closed(train, track))
        if len(self._rows) > self._prune_at:
            self._prune()

    def _prune(self) -> None:
        """Forget the rows that are beyond the limit of their window already; later rows cannot bring them back."""
        order, windows, keys = self._in_order(self._rows)
        picked = order[self._within_limit(windows[order], [k[order] for k in keys])]
        self._rows = self._rows.take(np.sort(picked))
        self._prune_at = 2 * len(self._rows) + PRUNE_ROWS_MIN

    def _in_order(self, rows: BufferedRows) -> tuple[Int64Array, Int64Array, list[Int64Array]]:
        """Return the permutation that sorts rows by window and the order asked for, the windows' numbers and the ordering keys."""
        windows = self._windows(rows)
        keys = order_keys([rows.columns[o.position] for o in self._recipe.order], self._recipe.order)
        return np.lexsort((rows.ordinal, *reversed(keys), windows)), windows, keys

    def _ends(self, rows: BufferedRows) -> Int64Array:
        if not self._recipe.partition:
            return np.full(len(rows), TIME_MAX, dtype=np.int64)
        ends: Int64Array = rows.columns[self._recipe.partition[-1]].values
        return ends

    def _closed(self, train: Train, track: WatermarkTrack) -> Train:
        ends = self._ends(self._rows)
        # A flush lets all go that is here.
        due = ends <= (TIME_MAX if train.flush else track.end)
        if not due.any():
            return progress(train, self.schemas[0], track)
        rows, ends = self._rows.take(np.flatnonzero(due)), ends[due]
        self._rows = self._rows.take(np.flatnonzero(~due))
        order, windows, keys = self._in_order(rows)
        picked = order[self._within_limit(windows[order], [k[order] for k in keys])]
        seqs = closing_seqs(train, track, ends[picked], rows.seq[picked])
        again = np.argsort(seqs, kind="stable")
        picked = picked[again]
        return made_train(train, self.schemas[0], rows.take(picked).columns, seqs[again], rows.time[picked], track)

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
        """Return the places of the first `limit` rows of each window, with ties if wanted."""
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

    def wake_at_us(self) -> int | None:
        """Return the least end of a window that waits."""
        ends = self._ends(self._rows)
        return int(ends.min()) if len(ends) and int(ends.min()) != TIME_MAX else None

    def state_rows(self) -> int:
        """Return the rows that wait."""
        return len(self._rows)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._rows.nbytes()


def closing_seqs(train: Train, track: WatermarkTrack, ends: Int64Array, own: Int64Array) -> Int64Array:
    """Return the seq of the item that closed each row's window; the row's own where it came after that."""
    if train.flush or track.start == track.end:
        return np.full(len(ends), train.hi - 1, dtype=np.int64)
    closing = track.first_reaching(np.clip(ends, track.start + 1, track.end))
    return np.maximum(np.where(ends <= track.start, own, closing), train.lo)
