"""Files of rows, opened by their extension: .csv, .jsonl (.ndjson, .json), .parquet, .arrow (.feather, .ipc); each also as .gz."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa

from millstream.engine.errors import InvalidDefinition, SyntaxProblem, Unsupported
from millstream.engine.ingest.coerce import coerce_batch
from millstream.engine.ingest.csv_files import CsvReader
from millstream.engine.ingest.json_lines import JsonLinesReader
from millstream.engine.ingest.outcome import Coerced, Rejection
from millstream.engine.schema import StreamDefinition, TableDefinition
from millstream.engine.types import Kind

BATCH_ROWS = 65_536
FORMATS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


class Reader(Protocol):
    """A file being read for a stream or table."""

    @property
    def notes(self) -> list[str]:
        """Sentences about the file as a whole, complete once it has been read."""
        ...

    def chunks(self) -> Iterator[Coerced]:
        """Yield what became of each block of rows; `Rejection.index` counts all rows of the file from 0."""
        ...

    def place(self, index: int) -> str:
        """Return where a row stands, for a message."""
        ...


class ArrowReader:
    """Reads record batches of a Parquet or Arrow file."""

    def __init__(self, batches: Iterator[Any], definition: StreamDefinition | TableDefinition, notes: list[str]) -> None:
        self._batches = batches
        self._definition = definition
        self.notes = notes

    def chunks(self) -> Iterator[Coerced]:
        """Yield what became of each batch."""
        done = 0
        for batch in self._batches:
            if not batch.num_rows:
                continue
            coerced = coerce_batch(batch, self._definition, ignore_extra=True)
            coerced.rejected = [Rejection(done + r.index, r.reason, r.raw) for r in coerced.rejected]
            done += batch.num_rows
            yield coerced

    def place(self, index: int) -> str:
        """Return `row N`, counted from 1."""
        return f"row {index + 1}"


def file_format(path: Path) -> str | None:
    """Return csv, jsonl, parquet or arrow by the file's extension, None when it has none of ours."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".gzip"):
        suffixes.pop()
    return FORMATS.get(suffixes[-1]) if suffixes else None


def open_reader(path: Path, definition: StreamDefinition | TableDefinition, *, form: str | None = None) -> Reader:
    """Open a file for reading; `form` overrides the extension. OSError as the system gives it, else an engine error."""
    form = form or file_format(path)
    if form is None:
        raise Unsupported(f"{path.name}: cannot tell the format", hint="name it .csv, .jsonl, .parquet or .arrow (perhaps with .gz)")
    return read_stream(_opened(path), path.name, form, definition)


def read_stream(file: BinaryIO, name: str, form: str, definition: StreamDefinition | TableDefinition) -> Reader:
    """Read an open binary file (not compressed) of the given format."""
    if form == "csv":
        return CsvReader(file, name, definition)
    if form == "jsonl":
        return JsonLinesReader(file, name, definition)
    try:
        batches, schema = _parquet(file, definition) if form == "parquet" else _arrow(file)
    except pa.ArrowInvalid as error:
        raise SyntaxProblem(f"{name} is not a {form} file: {error}") from error
    return ArrowReader(batches, definition, _notes(schema, name, definition))


def _opened(path: Path) -> BinaryIO:
    if path.suffix.lower() in (".gz", ".gzip"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _notes(schema: Any, name: str, definition: StreamDefinition | TableDefinition) -> list[str]:
    missing = [f.name for f in definition.schema.fields if f.name not in schema.names and not f.nullable]
    needed = definition.time.column if isinstance(definition, StreamDefinition) else None
    if needed is not None and needed not in schema.names:
        missing.append(needed)
    if missing:
        raise InvalidDefinition(f"{name} has no column {missing[0]}", hint=f"it has {', '.join(schema.names)}")
    extra = [n for n in schema.names if definition.schema.position(n) is None]
    return [f"{name}: ignored {'column' if len(extra) == 1 else 'columns'} {', '.join(extra)}"] if extra else []


def _arrow(file: BinaryIO) -> tuple[Iterator[Any], Any]:
    """An IPC file or an IPC stream."""
    data = pa.py_buffer(file.read())
    try:
        reader = pa.ipc.open_file(data)
    except pa.ArrowInvalid:
        stream = pa.ipc.open_stream(data)
        return iter(stream), stream.schema
    return (reader.get_batch(i) for i in range(reader.num_record_batches)), reader.schema


def _parquet(file: BinaryIO, definition: StreamDefinition | TableDefinition) -> tuple[Iterator[Any], Any]:
    from pyarrow import parquet

    # INT96 in nanoseconds ends in 2262; read as microseconds it reaches every year. INT96 is an instant by custom, without saying so.
    reader = parquet.ParquetFile(pa.BufferReader(file.read()), coerce_int96_timestamp_unit="us")
    instants = {c.path for c in (reader.schema.column(i) for i in range(len(reader.schema))) if c.physical_type == "INT96"}
    schema = reader.schema_arrow
    _refuse_local_time(schema, instants, definition)
    return (_as_instants(batch, instants) for batch in reader.iter_batches(batch_size=BATCH_ROWS)), schema


def _refuse_local_time(schema: Any, instants: set[str], definition: StreamDefinition | TableDefinition) -> None:
    """A Parquet timestamp that is "not adjusted to UTC" is a wall clock without a place: no event time unless a zone is named (C29)."""
    if not isinstance(definition, StreamDefinition) or definition.time.column is None or definition.time.zone is not None:
        return
    name = definition.time.column
    index = schema.get_field_index(name)
    if index < 0 or name in instants or definition.schema.fields[definition.schema.position(name) or 0].type.kind is not Kind.TIMESTAMP:
        return
    type_ = schema.field(index).type
    if pa.types.is_timestamp(type_) and type_.tz is None:
        raise InvalidDefinition(
            f"column {name} holds local time without a zone, which is no event time", hint="add ZONE 'Area/City' after TIMESTAMP BY"
        )


def _as_instants(batch: Any, instants: set[str]) -> Any:
    for name in instants:
        position = batch.schema.get_field_index(name)
        if position >= 0 and pa.types.is_timestamp(batch.schema.field(position).type):
            column = batch.column(position).cast(pa.timestamp("us")).view(pa.int64()).view(pa.timestamp("us", "UTC"))
            batch = batch.set_column(position, pa.field(name, column.type), column)
    return batch
