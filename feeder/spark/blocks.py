"""Stored rows in blocks: a row group of a Parquet file, another file whole, or a stretch of a DataFrame, read by the engine's own ingest.

A row that a stream would refuse is refused here too and has no place in the order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.event_time import event_times, time_position
from millstream.engine.data.schema import OnError, StreamDefinition
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.ingest.coerce import Coercer, coercer_for
from millstream.engine.ingest.readers import Reader, as_instants, checked_parquet, file_format, files_at, int96_columns
from millstream.feeder.errors import SourceError
from millstream.feeder.spark.order import steps_of
from millstream.protocol.values.packed import split_name, unpacked
from pyarrow import parquet

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap


@dataclass(frozen=True, slots=True)
class Block:
    """One block: number `number` of its stream's, a row group `group` of a file, a whole file (None), or Arrow bytes.

    `column_map` says which of its columns fill those of the stream, where they have other names, and how its times are written.
    """

    stream: str
    number: int
    path: str = ""
    group: int | None = None
    data: bytes | None = None
    column_map: ColumnMap | None = None


@dataclass(frozen=True, slots=True)
class Refusals:
    """How many rows of a block were refused, and why the first was."""

    rows: int = 0
    first: str = ""


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What is known of a block: accepted rows and their greatest event time (TIME_MIN without any), where that rises, if asked."""

    stream: str
    number: int
    rows: int
    greatest_us: int
    refusals: Refusals = Refusals()
    steps: tuple[Int64Array, Int64Array] | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Accepted rows of a block: columns (those not asked for are NULL), event times, refusals."""

    columns: list[Column]
    times_us: Int64Array
    refusals: Refusals


def files_of(path: str) -> list[str]:
    """Return the files that a path means (`files_at`), by whole paths: executors stand in folders of their own.

    SourceError when there are none, or some of them are of no format that is known.
    """
    found = files_at(path)
    if not found:
        raise SourceError(f"there are no files at {path}", hint="give a file, a folder or a pattern such as 'rows/*.parquet'")
    odd = next((p for p in found if file_format(p) is None), None)
    if odd is not None:
        raise SourceError(f"cannot tell the format of {odd}", hint="name it .parquet, .csv, .jsonl or .arrow (perhaps with .gz or .zst)")
    return [str(p.absolute()) for p in found]


def blocks_of(stream: str, path: str, definition: StreamDefinition, column_map: ColumnMap | None = None) -> list[Block]:
    """Return the blocks of a path, in order. Parquet files are opened for their columns and the number of their row groups.

    InvalidDefinition when a Parquet file's columns can give no good row.
    """
    found: list[Block] = []
    for file in files_of(path):
        groups: Sequence[int | None] = (None,)
        if file_format(Path(file)) == "parquet":
            with checked_parquet(file, Path(file).name, _coercer(definition, column_map)) as opened:
                groups = range(opened.num_row_groups)
        found += [Block(stream, len(found) + i, file, group, column_map=column_map) for i, group in enumerate(groups)]
    return found


def _coercer(definition: StreamDefinition, column_map: ColumnMap | None) -> Coercer:
    if column_map is None:
        return coercer_for(definition, ignore_extra=True)
    return Coercer(definition, ignore_extra=True, column_map=column_map)


def facts_of(block: Block, definition: StreamDefinition, with_steps: bool) -> BlockFacts:
    """Return what is known of a block: from the footer of a Parquet file where that says it, else by reading."""
    if block.group is not None and not with_steps:
        known = _footer_facts(block, definition)
        if known is not None:
            return known
    rows = read_block(block, definition, ())
    times = rows.times_us
    greatest = int(times.max()) if len(times) else TIME_MIN
    return BlockFacts(block.stream, block.number, len(times), greatest, rows.refusals, steps_of(times) if with_steps else None)


def _footer_facts(block: Block, definition: StreamDefinition) -> BlockFacts | None:
    position = time_position(definition)
    assert position is not None
    field = definition.schema.fields[position]
    with parquet.ParquetFile(block.path) as file:
        schema = file.schema_arrow
        names = _fitting(schema, definition, block.column_map)
        if field.type != TIMESTAMP or not all(f.nullable for f in definition.schema.fields) or names is None:
            return None
        group = file.metadata.row_group(block.group)
        column = next((group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == names[field.name]), None)
        statistics = None if column is None else column.statistics
        if statistics is None or not statistics.has_min_max or statistics.null_count != 0:
            return None
        greatest = pa.scalar(statistics.max, arrow_type(TIMESTAMP)).value
        return BlockFacts(block.stream, block.number, group.num_rows, greatest)


def _fitting(schema: pa.Schema, definition: StreamDefinition, column_map: ColumnMap | None) -> dict[str, str] | None:
    """Return which column of a file of this schema fills each of the stream's, if no row can be refused but for a NULL or text that is no
    UTF-8; else None.
    """
    sources = {} if column_map is None else column_map.sources
    names = {f.name: sources.get(f.name, f.name) for f in definition.schema.fields}
    known = set(schema.names)
    fits = all(names[f.name] in known and schema.field(names[f.name]).type == arrow_type(f.type) for f in definition.schema.fields)
    return names if fits else None


def read_block(block: Block, definition: StreamDefinition, wanted: Collection[int]) -> Rows:
    """Return the accepted rows of a block, with the columns at the positions `wanted` and the event time."""
    position = time_position(definition)
    assert position is not None
    if block.data is not None:
        with pa.ipc.open_stream(pa.py_buffer(block.data)) as reader:
            coercer = _coercer(definition, block.column_map)
            return _rows(definition, position, [coercer.arrow(batch) for batch in reader])
    if block.group is None:
        with unpacked(Path(block.path).open("rb"), split_name(Path(block.path))[1]) as opened:
            form = file_format(Path(block.path))
            assert form is not None
            reader = Reader(opened, Path(block.path).name, form, definition, block.column_map)
            return _rows(definition, position, list(reader.chunks()), reader)
    coercer = _coercer(definition, block.column_map)
    with checked_parquet(block.path, Path(block.path).name, coercer) as file:
        names, columns = _fitting(file.schema_arrow, definition, block.column_map), None
        if names is not None:
            kept = [f.name for i, f in enumerate(definition.schema.fields) if i in wanted or i == position or not f.nullable]
            columns = [names[name] for name in kept]
        table = as_instants(file.read_row_group(block.group, columns=columns, use_threads=False), int96_columns(file))
        if names is not None and block.column_map is not None:  # the columns that are left out need no place in the map
            table, coercer = table.select(columns).rename_columns(kept), coercer_for(definition, ignore_extra=True)
    return _rows(definition, position, [coercer.arrow(table)])


def _rows(definition: StreamDefinition, position: int, parts: Sequence[Any], reader: Reader | None = None) -> Rows:
    refused, first = 0, ""
    for part in parts:
        if part.rejected:
            rejection = part.rejected[0]
            place = f"row {rejection.index + 1}" if reader is None else reader.place(rejection.index)
            if definition.on_error is OnError.FAIL:
                raise SourceError(f"{definition.name}: {place}: {rejection.reason}", hint="the stream says ON ERROR FAIL")
            first = first or f"{place}: {rejection.reason}"
            refused += len(part.rejected)
    full = [part for part in parts if part.rows]
    fields = definition.schema.fields
    if not full:
        return Rows([null_column(f.type, 0) for f in fields], np.empty(0, dtype=np.int64), Refusals(refused, first))
    columns = [concat_columns([part.columns[i] for part in full]) for i in range(len(fields))]
    return Rows(columns, event_times(columns[position], definition.time), Refusals(refused, first))
