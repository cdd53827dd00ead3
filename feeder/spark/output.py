"""Answers as Arrow bytes, and as Parquet files: tasks write these aside under names of their own, the driver puts in place what counts.

A task that is run twice leaves two files aside, of which the driver knows one. A run that fails leaves nothing behind.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, arrow_type, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array
from millstream.feeder.errors import SourceError
from pyarrow import parquet

STAGING = "_staging"
ORDER_NAMES = ("_o1", "_o2", "_o3")
ROW_GROUP_ROWS = 1 << 20


def write_parts(results: Any, folders: Mapping[int, Path], schemas: Mapping[int, Schema]) -> dict[int, int]:
    """Write results, an RDD of (query, Arrow bytes) in which each partition has a query's together; return the rows of each query.

    Each query gets a file a partition that has rows of it. SourceError when a folder holds something.
    """
    for folder in folders.values():
        if folder.exists() and any(folder.iterdir()):
            raise SourceError(f"{folder} is not empty", hint="name a new folder, or remove what it holds")
    aside = {query: folder / f"{STAGING}-{uuid.uuid4().hex}" for query, folder in folders.items()}
    places = {query: str(place) for query, place in aside.items()}

    def write(part: int, items: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str, int]]:
        for query, mine in groupby(items, _query):
            for name, rows in write_part((data for _, data in mine), part, places[query], schemas[query]):
                yield query, name, rows

    try:
        for place in aside.values():
            place.mkdir(parents=True)
        written = results.mapPartitionsWithIndex(write).collect()
        for query, name, _ in written:
            (aside[query] / name).rename(folders[query] / name.split("-attempt")[0])
        for query in folders.keys() - {query for query, _, _ in written}:
            parquet.write_table(arrow_schema(schemas[query]).empty_table(), folders[query] / "part-00000.parquet")
    finally:
        for place in aside.values():
            shutil.rmtree(place, ignore_errors=True)
    for folder in folders.values():
        (folder / "_SUCCESS").touch()
    return {query: sum(rows for other, _, rows in written if other == query) for query in folders}


def _query(item: tuple[int, bytes]) -> int:
    return item[0]


def write_part(items: Iterable[bytes], part: int, folder: str, schema: Schema) -> Iterator[tuple[str, int]]:
    """Write a partition's results in their order; yield the file's name and rows, nothing where there are none."""
    tables = [result_table(data, schema) for data in items]
    if not tables:
        return
    table = without_order(in_order(tables))
    name = f"part-{part:05d}.parquet-attempt-{uuid.uuid4().hex}"
    parquet.write_table(table, Path(folder) / name, row_group_size=ROW_GROUP_ROWS)
    yield name, table.num_rows


# -- Arrow ----------------------------------------------------------------------------------------------------------------------


def arrow_bytes(schema: Schema, columns: Sequence[Column], extra: Mapping[str, Int64Array]) -> bytes:
    """Return columns as an Arrow stream; they are named by their positions, as names may repeat."""
    arrays = [column_to_arrow(c) for c in columns] + [pa.array(values, pa.int64()) for values in extra.values()]
    names = [str(i) for i in range(len(columns))] + list(extra)
    return packed(pa.record_batch(arrays, names=names))


def packed(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(memoryview(sink.getvalue()))


def opened(data: bytes) -> pa.Table:
    """Return the rows of an Arrow stream."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def engine_columns(table: pa.Table, schema: Schema) -> list[Column]:
    """Return the first columns of a table as the engine's, of these types."""
    return [column_from_arrow(table.column(i), f.type) for i, f in enumerate(schema.fields)]


def result_table(data: bytes, schema: Schema) -> pa.Table:
    """Return shuffled results with the query's names and types; columns of order stay behind them."""
    table = opened(data)
    kept = [name for name in table.column_names if name in ORDER_NAMES]
    arrays = [table.column(i) for i in range(len(schema))] + [table.column(name) for name in kept]
    fields = [pa.field(f.name, arrow_type(f.type), f.nullable) for f in schema.fields] + [pa.field(name, pa.int64()) for name in kept]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Return results of all buckets as one table in their order, with the columns that order them."""
    table = pa.concat_tables(tables)
    keys = [table.column(name).to_numpy() for name in reversed(ORDER_NAMES) if name in table.column_names]
    if len(keys) == 1 and bool((keys[0][1:] >= keys[0][:-1]).all()):
        return table  # the rows of blocks that follow each other
    return table.take(np.lexsort(keys)) if table.num_rows else table


def without_order(table: pa.Table) -> pa.Table:
    """Return the columns that were asked for."""
    return table.drop_columns([name for name in ORDER_NAMES if name in table.column_names])
