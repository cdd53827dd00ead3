"""Result trains as Arrow record batches, in pieces that fit a frame."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from millstream.engine.arrow import arrow_schema, column_to_arrow
from millstream.engine.schema import Schema
from millstream.engine.train import Train
from millstream.engine.watermarks import TIME_MAX, TIME_MIN

RESULT_BYTES_MAX = 4 * 1024 * 1024  # of one result: a subscriber's credit and bound are counted in whole results


class ResultShape:
    """The shown columns of a query's result trains; further ones only order the output."""

    def __init__(self, schema: Schema) -> None:
        self._arrow = arrow_schema(schema)
        self._width = len(schema)

    def batch(self, train: Train) -> Any:
        """Return a train as one record batch."""
        return pa.record_batch([column_to_arrow(train.column(i)) for i in range(self._width)], schema=self._arrow)

    def batches(self, train: Train) -> list[Any]:
        """Return a train in pieces of about RESULT_BYTES_MAX at most."""
        batch = self.batch(train)
        if train.rows == 1:
            return [batch]
        pieces = -(-batch.nbytes // RESULT_BYTES_MAX)
        if pieces <= 1:
            return [batch]
        rows = max(1, -(-batch.num_rows // pieces))
        return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]


def pieces_of(shape: ResultShape, train: Train, complete_from_us: int | None = None) -> list[tuple[Any, dict[str, Any]]]:
    """Return a train in pieces, each with what is said of it; receipts of rows go with their rows."""
    batches, meta = shape.batches(train), result_meta(train, complete_from_us)
    if len(batches) == 1:
        return [(batches[0], meta)]
    pieces, at = [], 0
    for batch in batches:
        pieces.append((batch, cut_receipts(meta, at, batch.num_rows)))
        at += batch.num_rows
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
