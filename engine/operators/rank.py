"""ROW_NUMBER, RANK and DENSE_RANK OVER (PARTITION BY … ORDER BY …) within windows: rows wait until W has passed their window's end.

A window's rows leave together, its partitions by the arrival of their first row, a partition's rows in the order asked for. Rows that the
order does not tell apart stand by arrival (K11), so ROW_NUMBER gives the same answer on every run; RANK and DENSE_RANK number them alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import BIGINT
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.language.recipes import RankRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.operators.top import closing_seqs, order_keys


class Rank(Operator):
    """ROW_NUMBER, RANK or DENSE_RANK of each row in its partition, once W has closed that."""

    state_name = "rank"
    state_fields: tuple[str, ...] = ("_rows", "_ordinal", "_watermark")

    def __init__(self, recipe: RankRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._types = [inputs.fields[p].type for p in recipe.partition]
        self._rows = no_rows(inputs)
        self._ordinal = 0
        self._watermark = TIME_MIN

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Keep rows; number those of the windows that W has passed."""
        train = inputs[0]
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        self._watermark = max(self._watermark, track.end)
        if train.rows:
            self._rows = concat_rows(self._rows, buffered(train, self._ordinal))
            self._ordinal += train.rows
        out.emit(self._closed(train, track))

    def _ends(self, rows: BufferedRows) -> Int64Array:
        """Return for each row the W at which no other row of its partition can follow."""
        column = rows.columns[self._recipe.closing]
        ends: Int64Array = column.values + self._recipe.shift_us
        return ends if column.valid is None else np.where(column.valid, ends, TIME_MIN)

    def _closed(self, train: Train, track: WatermarkTrack) -> Train:
        ends = self._ends(self._rows)
        due = ends <= (TIME_MAX if train.flush else track.end)
        if not due.any():
            return progress(train, self.schemas[0], track)
        rows, ends = self._rows.take(np.flatnonzero(due)), ends[due]
        self._rows = self._rows.take(np.flatnonzero(~due))
        order, numbers = self._numbered(rows, ends)
        rows, ends = rows.take(order), ends[order]
        seqs = closing_seqs(train, track, ends, rows.seq)
        again = np.argsort(seqs, kind="stable")
        rows = rows.take(again)
        return made_train(train, self.schemas[0], [*rows.columns, Column(BIGINT, numbers[again])], seqs[again], rows.time, track)

    def _numbered(self, rows: BufferedRows, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the order in which rows leave, and their numbers in that order."""
        partition = np.zeros(len(rows), dtype=np.int64)
        if self._types:
            partition = key_encoder(self._types).encode([rows.columns[p] for p in self._recipe.partition])
        first = np.full(int(partition.max()) + 1, TIME_MAX, dtype=np.int64)
        np.minimum.at(first, partition, rows.ordinal)
        keys = order_keys([rows.columns[o.position] for o in self._recipe.order], self._recipe.order)
        order = np.lexsort((rows.ordinal, *reversed(keys), first[partition], ends))
        place = np.arange(len(order), dtype=np.int64)
        begins = np.ones(len(order), dtype=np.bool_)
        begins[1:] = np.diff(partition[order]) != 0
        start = np.maximum.accumulate(np.where(begins, place, 0))
        if self._recipe.function == "row_number":
            return order, place - start + 1
        differs = begins.copy()
        for key in keys:
            differs[1:] |= np.diff(key[order]) != 0
        if self._recipe.function == "rank":
            return order, np.maximum.accumulate(np.where(differs, place, 0)) - start + 1
        different: Int64Array = np.cumsum(differs, dtype=np.int64)
        return order, different - different[start] + 1

    def wake_at_us(self) -> int | None:
        """Return the least end of a window that waits."""
        return int(self._ends(self._rows).min()) if len(self._rows) else None

    def state_rows(self) -> int:
        """Return the rows that wait."""
        return len(self._rows)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._rows.nbytes()
