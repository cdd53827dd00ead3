"""Files of rows by their extension: .csv, .tsv, .jsonl (.ndjson, .json), .parquet, .arrow (.feather, .ipc); each also as .gz or .zst.

Text is read in blocks, so a file may be larger than memory. Parquet instants (C29): INT96 and UTC-adjusted timestamps are instants
whatever the zone. Timestamps that are not adjusted are local times, and refused for the event time unless the stream names a ZONE.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Collection, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa
from millstream.engine.data.errors import ColumnMissing, InvalidDefinition, SyntaxProblem
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.ingest.checks import Coerced, Definition, is_needed
from millstream.engine.ingest.coerce import Coercer
from millstream.engine.ingest.csv_text import BLOCK_BYTES, CsvParser, shift_places
from millstream.engine.ingest.json_lines import JsonLinesParser
from millstream.protocol.values.names import left_out_note
from millstream.protocol.values.packed import split_name

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap

BATCH_ROWS = 65_536
HIDDEN = ("_", ".")
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


def file_format(path: Path) -> str | None:
    """Return csv, tsv, jsonl, parquet or arrow by the file's extension, None when it has none of ours."""
    return FORMATS.get(split_name(path)[0].suffix.lower())


def files_at(path: str) -> list[Path]:
    """Return the files that a path means: itself, those of a folder and below it, or those a pattern matches; sorted by name."""
    place = Path(path)
    if place.is_file():
        return [place]
    if not place.is_dir():
        return sorted(found for one in glob.glob(path, recursive=True) if (found := Path(one)).is_file())
    return sorted(p for p in place.rglob("*") if p.is_file() and not any(part.startswith(HIDDEN) for part in p.relative_to(place).parts))


class Reader:
    """A file being read for a stream or table; used as a context manager it closes the file at the end.

    `unread` names columns that nobody will look at, which may be NULL.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        form: str,
        definition: Definition,
        column_map: ColumnMap | None = None,
        unread: Collection[str] = (),
    ) -> None:
        self._file = file
        self._name = name
        self._coercer = Coercer(definition, ignore_extra=True, column_map=column_map)
        self._form = form
        self._unread = unread
        self._lines: dict[int, int] = {}
        self._ignored: dict[str, None] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()

    @property
    def notes(self) -> list[str]:
        """Sentences about the file as a whole, complete once it has been read."""
        if not self._ignored:
            return []
        return [f"{self._name}: {left_out_note(list(self._ignored))}"]

    def chunks(self) -> Iterator[Coerced]:
        """Yield what became of each block of rows; `index` and `Rejection.index` count all rows of the file from 0.

        SyntaxProblem when the file is not what it should be, InvalidDefinition when it lacks a column that every row needs.
        """
        try:
            for result in self._read():
                self._ignored.update(dict.fromkeys(result.ignored))
                self._lines.update((r.index, r.line) for r in result.rejected if r.line is not None)
                yield result
        except (pa.ArrowException, EOFError) as error:
            raise SyntaxProblem(f"{self._name} cannot be read as {self._form}: {str(error).splitlines()[0]}") from error

    def _read(self) -> Iterator[Coerced]:
        if self._form in _SEPARATORS:
            return _csv(self._file, self._name, self._coercer, _SEPARATORS[self._form], self._unread)
        return _READERS[self._form](self._file, self._name, self._coercer)

    def place(self, index: int) -> str:
        """Return where a refused row stands: `line 7`, or `row 7` (from 1) where the format has no lines."""
        line = self._lines.get(index)
        return f"row {index + 1}" if line is None else f"line {line}"


FIRST_LINE = "a CSV file begins with a line of column names, and here that is"


def check_columns(name: str, names: Sequence[str], coercer: Coercer, lead: str = "it has") -> None:
    """Raise InvalidDefinition when no row can be good, because the file lacks a column that every row needs; `lead` its names."""
    places, _ = coercer.match(names)
    for column_field in coercer.schema.fields:
        if column_field.name not in places and is_needed(column_field, coercer.definition):
            raise ColumnMissing(f"{name} has no column {column_field.name}", hint=f"{lead} {', '.join(names) or 'none'}")


def _csv(file: BinaryIO, name: str, coercer: Coercer, delimiter: str | None, unread: Collection[str]) -> Iterator[Coerced]:
    def check(names: list[str]) -> None:
        check_columns(name, names, coercer, FIRST_LINE)

    parser = CsvParser(coercer, delimiter=delimiter, on_header=check, unread=unread)
    yield from parser.read(cast(BufferedIOBase, file), BLOCK_BYTES)
    if parser.names is None:
        raise SyntaxProblem(f"{name} is empty", hint="a CSV file begins with a line of column names")


def _json_lines(file: BinaryIO, name: str, coercer: Coercer) -> Iterator[Coerced]:
    parser = JsonLinesParser(coercer)
    while data := file.read(BLOCK_BYTES):
        if (result := parser.feed(data)) is not None:
            yield result
    if (result := parser.finish()) is not None:
        yield result


def _numbered(batches: Iterator[Any], coercer: Coercer) -> Iterator[Coerced]:
    before = 0
    for batch in batches:
        result = coercer.arrow(batch)
        shift_places(result, before)
        before += batch.num_rows
        yield result


def _arrow(file: BinaryIO, name: str, coercer: Coercer) -> Iterator[Coerced]:
    """Read Arrow IPC, in the file or in the stream format."""
    magic = file.read(6)
    file.seek(0)
    if magic == b"ARROW1":
        reader = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
        check_columns(name, reader.schema.names, coercer)
        yield from _numbered((reader.get_batch(i) for i in range(reader.num_record_batches)), coercer)
    else:
        stream = pa.ipc.open_stream(file)
        check_columns(name, stream.schema.names, coercer)
        yield from _numbered(iter(stream), coercer)


def _parquet(file: BinaryIO, name: str, coercer: Coercer) -> Iterator[Coerced]:
    parquet = checked_parquet(file, name, coercer)
    instants = int96_columns(parquet)
    yield from _numbered((as_instants(batch, instants) for batch in parquet.iter_batches(batch_size=BATCH_ROWS)), coercer)


def checked_parquet(file: BinaryIO | str, name: str, coercer: Coercer) -> Any:
    """Return an open Parquet file whose columns can give good rows; InvalidDefinition when they cannot."""
    # INT96 in nanoseconds ends in 2262; read as microseconds it reaches every year.
    import pyarrow.parquet as pq  # brings file systems of clouds with it, which takes longer than many a script

    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    check_columns(name, parquet.schema_arrow.names, coercer)
    refuse_local_event_time(name, parquet.schema_arrow, int96_columns(parquet), coercer)
    return parquet


def int96_columns(parquet: Any) -> frozenset[str]:
    """Return the columns stored as INT96, which by custom are instants in UTC although the file does not say so."""
    schema = parquet.schema
    return frozenset(schema.column(i).path for i in range(len(schema)) if schema.column(i).physical_type == "INT96")


def as_instants(batch: Any, names: frozenset[str]) -> Any:
    """Return a batch or table whose columns of these names are instants, not local times."""
    for position, field in enumerate(batch.schema):
        if field.name in names and pa.types.is_timestamp(field.type) and field.type.tz is None:
            instants = batch.column(position).cast(pa.timestamp(field.type.unit, "UTC"))
            batch = batch.set_column(position, field.name, instants)
    return batch


def refuse_local_event_time(name: str, schema: Any, instants: frozenset[str], coercer: Coercer) -> None:
    """Refuse an event time that the file gives as local time without a zone, when the stream names none either."""
    definition = coercer.definition
    if not isinstance(definition, StreamDefinition) or definition.time.column is None or definition.time.zone is not None:
        return
    place = coercer.match(schema.names)[0].get(definition.time.column)
    field = None if place is None else schema.field(place)
    if field is not None and pa.types.is_timestamp(field.type) and field.type.tz is None and field.name not in instants:
        raise InvalidDefinition(
            f"{name}: column {field.name} holds local time without a zone, which is not an event time",
            hint=f"write TIMESTAMP BY {definition.time.column} ZONE 'Area/City' (or ZONE 'UTC')",
        )


_SEPARATORS = {"csv": None, "tsv": "\t"}
_READERS: dict[str, Callable[[BinaryIO, str, Coercer], Iterator[Coerced]]] = {
    "jsonl": _json_lines,
    "arrow": _arrow,
    "parquet": _parquet,
}
