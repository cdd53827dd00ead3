"""From records of the journal to Parquet: the stream's columns, then the arrival number, W before the row, and when it came.

W is computed from the rows as ingest did, record by record, so that a reader need not: whoever replays the rows judges each late exactly
when it was. Control items (an end, what a clock did, silence) stand in the file's metadata, as they are no rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, column_to_arrow
from millstream.engine.data.column import Column
from millstream.engine.data.event_time import US_PER_DAY, event_times, moving_times, time_position
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import ARCHIVE_COLUMNS, Schema, StreamDefinition
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, RowsTrack
from millstream.server.archive.manifest import ArchiveFile
from millstream.server.journal.following import JournalPlace
from millstream.server.journal.known import ARCHIVE_SUFFIX
from millstream.server.journal.records import ROWS, Record

ROW_GROUP_ROWS = 131_072
CONTROLS_MAX = 10_000  # of a piece: they stand in metadata, which is read whole
CONTROLS_KEY = b"millstream.controls"
_INSTANT = pa.timestamp("us", "UTC")
Control = tuple[int, Mapping[str, Any]]


def archive_schema(schema: Schema) -> Any:
    """Return the Arrow schema of a stream's files."""
    added = zip(ARCHIVE_COLUMNS, (pa.int64(), _INSTANT, _INSTANT), (False, True, False), strict=True)
    return pa.schema([*arrow_schema(schema), *(pa.field(*one) for one in added)])


class WatermarkRule:
    """W of a stream as it follows from what came, record by record: what `Ingress` computes live, in the place of its source."""

    def __init__(self, definition: StreamDefinition, watermark_us: int) -> None:
        self._rule = definition.time
        self._position = time_position(definition)
        self.watermark_us = watermark_us

    def rows(self, lo: int, columns: Sequence[Column], now_us: int) -> tuple[Int64Array, Int64Array]:
        """Return the event times of rows that came together, and W before each."""
        count = len(columns[0])
        if self._position is None:
            now = max(now_us, self.watermark_us) if self.watermark_us != TIME_MAX else now_us
            times = moving = np.full(count, now, dtype=np.int64)
        else:
            times = event_times(columns[self._position], self._rule)
            moving, _ = moving_times(times, self._rule.skew_us, now_us)
        track = RowsTrack(lo, lo + count, self.watermark_us, moving, self._rule.delay_us)
        before = track.before(np.arange(lo, lo + count, dtype=np.int64))
        self.watermark_us = track.end
        return times, before

    def control(self, said: Mapping[str, Any]) -> None:
        """Let a control item move W."""
        target = TIME_MAX if said.get("ended") else said.get("watermark_us")
        if target is not None:
            self.watermark_us = max(self.watermark_us, target)


@dataclass(slots=True)
class Piece:
    """What came of a stream in arrival numbers [lo, hi): batches of the archive's schema with their event times, and control items.

    `watermark_us` is W at `hi`, `place` where the journal goes on.
    """

    lo: int
    hi: int
    watermark_us: int
    place: JournalPlace
    batches: list[Any] = field(default_factory=list)
    times: list[Int64Array] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)


def collect(
    definition: StreamDefinition,
    records: Iterator[tuple[JournalPlace, JournalPlace, Record]],
    upto: int,
    watermark_us: int,
    place: JournalPlace,
    bytes_max: int,
) -> Piece:
    """Return the next records as a piece; at least one if there is one, then as many as `bytes_max` allows. StoreError, OSError."""
    rule, schema = WatermarkRule(definition, watermark_us), archive_schema(definition.schema)
    piece = Piece(upto, upto, watermark_us, place)
    held_bytes = 0
    for _, after, record in records:
        if record.kind == ROWS:
            columns = record.columns(definition.schema, definition.added)
            times, before = rule.rows(record.lo, columns, record.now_us)
            piece.batches.append(_batch(schema, columns, record, before))
            piece.times.append(times)
        else:
            piece.controls.append((record.lo, record.meta))
            rule.control(record.meta)
        piece.hi, piece.place, piece.watermark_us = record.hi, after, rule.watermark_us
        held_bytes += len(record.data)
        if held_bytes >= bytes_max or len(piece.controls) >= CONTROLS_MAX:
            break
    return piece


def _batch(schema: Any, columns: Sequence[Column], record: Record, before: Int64Array) -> Any:
    rows = record.hi - record.lo
    watermarks = pa.array(before, mask=before == TIME_MIN).view(_INSTANT)
    added = (np.arange(record.lo, record.hi, dtype=np.int64), watermarks, np.full(rows, record.now_us, dtype=np.int64))
    arrays = [pa.array(added[0]), added[1], pa.array(added[2]).view(_INSTANT)]
    return pa.RecordBatch.from_arrays([*(column_to_arrow(c) for c in columns), *arrays], schema=schema)


def file_name(lo: int, hi: int, tag: str, folder: str = "") -> str:
    """Return the path of a file by its arrival numbers; `tag` tells the archives apart that share a place."""
    name = f"{lo:020d}-{hi:020d}-{tag}{ARCHIVE_SUFFIX}"
    return f"{folder}/{name}" if folder else name


def files_of(piece: Piece, definition: StreamDefinition, tag: str) -> list[tuple[ArchiveFile, Any]]:
    """Return the files that a piece becomes, one for each day where the archive is partitioned, each with its content.

    Control items go into the last one, which may have no row.
    """
    schema = archive_schema(definition.schema)
    table = pa.Table.from_batches(piece.batches, schema=schema)
    times = np.concatenate(piece.times) if piece.times else np.empty(0, dtype=np.int64)
    by_day = definition.archive is not None and definition.archive.by_day
    parts: list[tuple[str, Any, Int64Array]] = []
    if by_day and len(times):
        days = times // US_PER_DAY
        for day in np.unique(days).tolist():
            index = np.flatnonzero(days == day)
            parts.append((_folder(day), table.take(index), times[index]))
    else:
        mark = piece.watermark_us if piece.watermark_us not in (TIME_MIN, TIME_MAX) else 0
        parts.append((_folder(mark // US_PER_DAY) if by_day else "", table, times))
    made = []
    for number, (folder, rows, own) in enumerate(parts):
        controls = piece.controls if number == len(parts) - 1 else []
        content = written(schema, [rows], controls)
        path = file_name(piece.lo, piece.hi, tag, folder)
        span = (int(own.min()), int(own.max())) if len(own) else (None, None)
        made.append((ArchiveFile(path, piece.lo, piece.hi, len(own), len(content), len(controls), *span), content))
    return made


def _folder(day: int) -> str:
    return f"day={np.datetime64(day, 'D')}"


def written(schema: Any, tables: Iterator[Any] | Sequence[Any], controls: Sequence[Control]) -> Any:
    """Return tables as the content of one Parquet file, in row groups of ROW_GROUP_ROWS."""
    import pyarrow.parquet as pq  # loaded with the first archive, not with the server

    metadata = {CONTROLS_KEY: json.dumps(controls).encode()} if controls else {}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema.with_metadata(metadata), compression="zstd") as writer:
        held: list[Any] = []
        rows = 0
        for table in tables:
            held.append(table)
            rows += table.num_rows
            if rows >= ROW_GROUP_ROWS:
                writer.write_table(pa.concat_tables(held).cast(writer.schema), row_group_size=ROW_GROUP_ROWS)
                held, rows = [], 0
        if rows:
            writer.write_table(pa.concat_tables(held).cast(writer.schema), row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue()


def controls_in(parquet: Any) -> list[Control]:
    """Return the control items in the metadata of an open Parquet file."""
    said = (parquet.schema_arrow.metadata or {}).get(CONTROLS_KEY)
    return [] if said is None else [(int(seq), meta) for seq, meta in json.loads(said)]


def check(opened: Any, file: ArchiveFile) -> None:
    """Look that a file that was put in place is what it is to be. OSError when it is not."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(opened) as parquet:
            rows, controls = parquet.metadata.num_rows, len(controls_in(parquet))
    except (pa.ArrowException, ValueError) as error:
        raise OSError(f"{file.path}: the file that was written cannot be read: {error}") from error
    if (rows, controls) != (file.rows, file.controls):
        raise OSError(f"{file.path}: the file that was written has {rows} of {file.rows} rows")


def _widened(table: Any, schema: Any) -> Any:
    """Return rows of a file with all columns of the archive: those that the stream was given later are NULL."""
    for one in schema:
        if one.name not in table.column_names:
            table = table.append_column(one, pa.nulls(table.num_rows, one.type))
    return table.select(schema.names).cast(schema)


def merged(opened: Sequence[Any], schema: Any) -> Any:
    """Return the content of one file in the place of several that follow one another; a row group is held at a time."""
    import pyarrow.parquet as pq

    controls: list[Control] = []

    def tables() -> Iterator[Any]:
        for file in opened:
            with pq.ParquetFile(file) as parquet:
                for group in range(parquet.num_row_groups):
                    yield _widened(parquet.read_row_group(group), schema)

    for file in opened:
        controls += controls_in(pq.ParquetFile(file))
    return written(schema, tables(), controls)
