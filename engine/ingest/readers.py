"""Files as streams of rows: CSV, JSON lines, Arrow and Parquet by extension, `.gz` too (not for Parquet).

    with open_rows(path, coercer) as batches:
        for ingested in batches: …

Parquet instants (C29): INT96 and UTC-adjusted timestamps are instants whatever the zone. Timestamps that are not adjusted are local
times, and refused for the event time unless the stream names a ZONE.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from millstream.engine.errors import InvalidDefinition, Unsupported
from millstream.engine.ingest.coerce import Coercer
from millstream.engine.ingest.csv_text import BLOCK_BYTES, CsvParser, shift_places
from millstream.engine.ingest.json_lines import JsonLinesParser
from millstream.engine.ingest.result import Ingested

BATCH_ROWS = 65_536

FORMATS: dict[str, str] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def format_of(path: str | Path) -> tuple[str, bool]:
    """Return the format's name by the file's extension, and whether it is gzipped; Unsupported when nobody knows it."""
    suffixes = [s.lower() for s in Path(path).suffixes]
    zipped = bool(suffixes) and suffixes[-1] == ".gz"
    if zipped:
        suffixes.pop()
    found = FORMATS.get(suffixes[-1]) if suffixes else None
    if found is None:
        raise Unsupported(f"the format of {Path(path).name} is not known by its extension", hint=f"use one of {', '.join(FORMATS)}")
    if zipped and found == "parquet":
        raise Unsupported(f"{Path(path).name}: Parquet compresses inside, so .gz around it is not read")
    return found, zipped


@contextmanager
def open_rows(path: str | Path, coercer: Coercer) -> Iterator[Iterator[Ingested]]:
    """Open a file and give its rows batch by batch, as columns of the coercer's schema; indexes count rows over the whole file.

    InvalidDefinition when the file cannot be read as its format, OSError when it cannot be opened.
    """
    kind, zipped = format_of(path)
    with _open(Path(path), zipped) as file:
        readers: dict[str, Callable[[IO[bytes], Coercer], Iterator[Ingested]]] = {
            "csv": _csv,
            "tsv": _tsv,
            "jsonl": _json_lines,
            "arrow": _arrow,
            "parquet": _parquet,
        }
        rows = _named_errors(lambda: readers[kind](file, coercer), Path(path).name)
        with closing(rows):
            yield rows


def _open(path: Path, zipped: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


def _named_errors(read: Callable[[], Iterator[Ingested]], name: str) -> Any:
    """Turn what a damaged file raises into one sentence with the file's name."""
    try:
        yield from read()
    except (pa.ArrowException, gzip.BadGzipFile, EOFError) as error:
        raise InvalidDefinition(f"{name} cannot be read: {str(error).splitlines()[0]}") from error


def _pieces(file: IO[bytes], parser: CsvParser | JsonLinesParser) -> Iterator[Ingested]:
    while data := file.read(BLOCK_BYTES):
        result = parser.feed(data)
        if result is not None:
            yield result
    result = parser.finish()
    if result is not None:
        yield result


def _csv(file: IO[bytes], coercer: Coercer) -> Iterator[Ingested]:
    return _pieces(file, CsvParser(coercer))


def _tsv(file: IO[bytes], coercer: Coercer) -> Iterator[Ingested]:
    return _pieces(file, CsvParser(coercer, delimiter="\t"))


def _json_lines(file: IO[bytes], coercer: Coercer) -> Iterator[Ingested]:
    return _pieces(file, JsonLinesParser(coercer))


def _numbered(batches: Iterator[Any], coercer: Coercer) -> Iterator[Ingested]:
    before = 0
    for batch in batches:
        result = coercer.arrow(batch)
        shift_places(result, before)
        before += batch.num_rows
        yield result


def _arrow(file: IO[bytes], coercer: Coercer) -> Iterator[Ingested]:
    """Read Arrow IPC, in the file or in the stream format."""
    magic = file.read(6)
    file.seek(0)
    if magic == b"ARROW1":
        reader = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
        return _numbered((reader.get_batch(i) for i in range(reader.num_record_batches)), coercer)
    return _numbered(iter(pa.ipc.open_stream(file)), coercer)


def _parquet(file: IO[bytes], coercer: Coercer) -> Iterator[Ingested]:
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    instants = int96_columns(parquet)
    refuse_local_event_time(parquet.schema_arrow, instants, coercer)
    batches = (_as_instants(batch, instants) for batch in parquet.iter_batches(batch_size=BATCH_ROWS))
    return _numbered(batches, coercer)


def int96_columns(parquet: Any) -> frozenset[str]:
    """Return the columns stored as INT96, which always are instants in UTC although the file does not say so."""
    schema = parquet.schema
    return frozenset(schema.column(i).name for i in range(len(schema)) if schema.column(i).physical_type == "INT96")


def _as_instants(batch: Any, names: frozenset[str]) -> Any:
    for position, field in enumerate(batch.schema):
        if field.name in names and pa.types.is_timestamp(field.type) and field.type.tz is None:
            instants = batch.column(position).cast(pa.timestamp(field.type.unit, "UTC"))
            batch = batch.set_column(position, field.name, instants)
    return batch


def refuse_local_event_time(schema: Any, instants: frozenset[str], coercer: Coercer) -> None:
    """Refuse an event time that the file gives as local time without a zone, when the stream names none either."""
    column, zone = coercer.time.column, coercer.time.zone
    if column is None or zone is not None:
        return
    for field in schema:
        local = pa.types.is_timestamp(field.type) and field.type.tz is None and field.name not in instants
        if local and coercer.field_for(field.name) == column:
            raise InvalidDefinition(
                f"the event time {column} is a local time without a zone in this file",
                hint="name its zone in CREATE STREAM, as in TIMESTAMP BY ts ZONE 'Europe/Berlin' (or ZONE 'UTC')",
            )


def rejections_as_text(result: Ingested, file: str) -> list[str]:
    """Return the refused rows as sentences `file, line n: reason`, for messages."""
    places = (f"line {r.line}" if r.line is not None else f"row {r.index + 1}" for r in result.rejected)
    return [f"{file}, {place}: {r.reason}" for place, r in zip(places, result.rejected, strict=True)]
