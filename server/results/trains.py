"""Results on their way out: trains as they are kept and sent, and counted until the loop has them.

A train's columns become Arrow's record batch or a payload when someone asks. What waits between the worker that made it and the event
loop is counted by query, so that publishers wait for what comes of their own stream alone: however many results another stream's queries
give, the rest go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import VIEW_DTYPES, arrow_schema, column_to_arrow
from millstream.engine.data.column import CellColumn, Column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.data.types import Kind
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.protocol.plain_batches import OFFSET_BYTES, PlainWriter, width_of

if TYPE_CHECKING:
    from millstream.protocol.messages import BytesLike

RESULT_BYTES_MAX = 4 * 1024 * 1024  # of one result: a subscriber's credit and bound are counted in whole results
WAITING_TRAINS_MAX = 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
LOOKED_AT_FROM = 32  # items on the bridge; fewer are soon delivered, and every read would count them


class ResultShape:
    """The shown columns of a query's result trains; further ones only order the output."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._width = len(schema)
        self.types = [f.type for f in schema.fields]
        self._writer: PlainWriter | None = None

    @cached_property
    def _arrow(self) -> pa.Schema:
        """Made with the first result: most of ten thousand queries have none yet when the server starts."""
        return arrow_schema(self._schema)

    @cached_property
    def _is_plain(self) -> bool:
        return self._width > 0 and all(width_of(f.type) is not None for f in self._arrow)

    def batch(self, train: Train) -> Any:
        """Return a train as one record batch."""
        return self.batch_of([train.column(i) for i in range(self._width)])

    def batch_of(self, columns: Sequence[Column]) -> Any:
        """Return shown columns as one record batch."""
        return pa.record_batch([column_to_arrow(column) for column in columns], schema=self._arrow)

    def results(self, train: Train) -> list[ResultRows]:
        """Return a train in pieces of about RESULT_BYTES_MAX at most."""
        if train.rows == 1:  # as most results of a filter are
            slots = enumerate(train.slots[: self._width])
            columns = [
                slot if type(slot) is CellColumn else train.column(i) if (cell := train.cell(i)) is None else cell for i, slot in slots
            ]
        else:
            columns = [slot if type(slot) is CellColumn else train.column(i) for i, slot in enumerate(train.slots[: self._width])]
        whole = ResultRows(self, columns, train.rows)
        if whole.nbytes <= RESULT_BYTES_MAX or train.rows == 1:
            return [whole]
        pieces = -(-whole.nbytes // RESULT_BYTES_MAX)
        rows = max(1, -(-train.rows // pieces))
        return [whole.slice(start, rows) for start in range(0, train.rows, rows)]

    def payload(self, columns: Sequence[Column], rows: int) -> list[BytesLike] | None:
        """Return the payload of a Result with these columns, None where they are not plain (`protocol/plain_batches.py`)."""
        if not self._is_plain:
            return None
        if self._writer is None:
            self._writer = PlainWriter(self._arrow)
        if rows == 1 and (cells := _cells_of(columns)) is not None and (row := self._writer.write_row(cells)) is not None:
            return row
        buffers = []
        for column in columns:
            found = _buffers_of(column, rows)
            if found is None:
                return None
            buffers.append(found)
        return self._writer.write(rows, buffers)


class ResultRows:
    """Rows of one result. All readers share what is made of them; on the loop's thread alone."""

    __slots__ = ("_batch", "_payload", "columns", "nbytes", "num_rows", "shape")

    def __init__(self, shape: ResultShape, columns: list[Column], rows: int) -> None:
        self.shape = shape
        self.columns = columns
        self.num_rows = rows
        nbytes = 0
        for column in columns:
            nbytes += column.nbytes()
        self.nbytes = nbytes
        self._batch: Any = None
        self._payload: list[BytesLike] | None = None

    def slice(self, start: int, rows: int | None = None) -> ResultRows:
        """Return rows from `start` on, all or so many."""
        stop = self.num_rows if rows is None else min(self.num_rows, start + rows)
        return ResultRows(self.shape, [column.slice(start, stop) for column in self.columns], stop - start)

    def to_arrow(self) -> Any:
        """Return them as a record batch."""
        if self._batch is None:
            self._batch = self.shape.batch_of(self.columns)
        return self._batch

    def payload(self) -> list[BytesLike] | None:
        """Return the payload of a Result with them, None where Arrow has to make it."""
        if self._payload is None and self.num_rows:
            self._payload = self.shape.payload(self.columns, self.num_rows)
        return self._payload

    def forget_made(self) -> None:
        """Let go of batch and payload once those who read along have them: what is kept is counted without them."""
        self._batch = self._payload = None


def _cells_of(columns: Sequence[Column]) -> list[Any] | None:
    """Return the values of one row, text as bytes; None unless all are as they came."""
    for column in columns:
        if type(column) is not CellColumn:
            return None
    cells = [column.cells[0] for column in columns if type(column) is CellColumn]
    return [cell.encode() if type(cell) is str else cell for cell in cells]


def _buffers_of(column: Column, rows: int) -> tuple[Any, ...] | None:
    """Return what a column is sent as, None where NULLs or a strange layout need Arrow."""
    values = column.values
    dtype = VIEW_DTYPES.get(column.type.kind)
    if dtype is not None:
        return (values,) if column.valid is None and values.dtype == dtype and values.flags.c_contiguous else None
    if column.type.kind is not Kind.TEXT or values.offset or values.null_count:
        return None
    _, offsets, characters = values.buffers()
    if offsets is None:
        return None
    ends = np.frombuffer(offsets, np.int32, rows + 1)
    if ends[0]:
        return None
    return memoryview(offsets)[: OFFSET_BYTES * (rows + 1)], b"" if characters is None else memoryview(characters)[: int(ends[-1])]


def pieces_of(shape: ResultShape, train: Train, complete_from_us: int | None = None) -> list[tuple[ResultRows, dict[str, Any]]]:
    """Return a train in pieces, each with what is said of it; receipts of rows go with their rows."""
    results, meta = shape.results(train), result_meta(train, complete_from_us)
    if len(results) == 1:
        return [(results[0], meta)]
    pieces, at = [], 0
    for rows in results:
        pieces.append((rows, cut_receipts(meta, at, rows.num_rows)))
        at += rows.num_rows
    return pieces


def cut_receipts(meta: dict[str, Any], start: int, rows: int) -> dict[str, Any]:
    """Return what is said of `rows` rows of a result from the row `start` on."""
    runs = meta.get("receipts")
    if runs is None:
        return meta
    kept, at = [], 0
    for run in runs:
        inside = min(at + run[0], start + rows) - max(at, start)
        if inside > 0:
            kept.append([inside, *run[1:]])
        at += run[0]
    return {**meta, "receipts": kept}


def result_meta(train: Train, complete_from_us: int | None = None) -> dict[str, Any]:
    """Return what a result says besides its rows: the position it answers up to, the watermark, notes such as the share seen.

    `complete_from_us`: windows that begin earlier lack the rows from before the query.
    """
    meta: dict[str, Any] = {"position": train.hi - 1}
    if TIME_MIN < train.track.end < TIME_MAX:
        meta["watermark_us"] = train.track.end
    if complete_from_us is not None:
        meta["complete_from_us"] = complete_from_us
    if train.notes:
        meta.update(train.notes)
    return meta


class WaitingResults:
    """Those of one query; `kept_bytes` tells what those occupy that its feed keeps.

    `add` is called by whoever runs its sink, one at a time, `take` on the loop's thread: no lock is needed.
    """

    __slots__ = ("_bytes_added", "_bytes_taken", "_trains_added", "_trains_taken", "kept_bytes")

    def __init__(self) -> None:
        self._trains_added = self._bytes_added = 0
        self._trains_taken = self._bytes_taken = 0
        self.kept_bytes: Callable[[], int] = int

    @property
    def trains(self) -> int:
        """Trains that the loop has yet to take."""
        return self._trains_added - self._trains_taken

    @property
    def bytes(self) -> int:
        """Bytes of their rows."""
        return self._bytes_added - self._bytes_taken

    def add(self, size_bytes: int) -> None:
        """Note a train on its way."""
        self._bytes_added += size_bytes
        self._trains_added += 1

    def held(self) -> int:
        """Return the bytes of results on their way and of those that are kept."""
        return self.bytes + self.kept_bytes()

    def take(self, size_bytes: int) -> None:
        """Note that the loop has a train."""
        self._bytes_taken += size_bytes
        self._trains_taken += 1


def are_too_many(waiting: Iterable[WaitingResults]) -> bool:
    """Whether the results of these queries together are more than may be on their way."""
    trains = size_bytes = 0
    for one in waiting:
        trains += one.trains
        size_bytes += one.bytes
    return trains > WAITING_TRAINS_MAX or size_bytes > WAITING_BYTES_MAX
