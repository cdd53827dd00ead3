"""Answers as Parquet files: tasks write them aside under names of their own, the driver puts those of the tasks that counted in place.

A task that is run twice leaves two files aside, of which the driver knows one. A run that fails leaves nothing behind.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from millstream.engine.data.arrow import arrow_schema
from millstream.engine.data.schema import Schema
from millstream.feeder.errors import SourceError
from millstream.feeder.spark.pieces import in_order, result_table, without_order
from pyarrow import parquet

STAGING = "_staging"
ROW_GROUP_ROWS = 1 << 20


def write_parts(results: Any, folder: Path, schema: Schema) -> int:
    """Write results, an RDD of Arrow bytes, a file a partition that has rows; return the rows. SourceError when the folder holds some."""
    if folder.exists() and any(folder.iterdir()):
        raise SourceError(f"{folder} is not empty", hint="name a new folder, or remove what it holds")
    aside = folder / f"{STAGING}-{uuid.uuid4().hex}"
    aside.mkdir(parents=True)
    place = str(aside)
    try:
        written = results.mapPartitionsWithIndex(lambda part, items: write_part(items, part, place, schema)).collect()
        for name, _ in written:
            (aside / name).rename(folder / name.split("-attempt")[0])
        if not written:
            parquet.write_table(arrow_schema(schema).empty_table(), folder / "part-00000.parquet")
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    (folder / "_SUCCESS").touch()
    return sum(rows for _, rows in written)


def write_part(items: Iterable[bytes], part: int, folder: str, schema: Schema) -> Iterator[tuple[str, int]]:
    """Write a partition's results in their order; yield the file's name and rows, nothing where there are none."""
    tables = [result_table(data, schema) for data in items]
    if not tables:
        return
    table = without_order(in_order(tables))
    name = f"part-{part:05d}.parquet-attempt-{uuid.uuid4().hex}"
    parquet.write_table(table, Path(folder) / name, row_group_size=ROW_GROUP_ROWS)
    yield name, table.num_rows
