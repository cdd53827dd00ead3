"""`millstream publish`: live input from a file or standard input into a stream."""

from __future__ import annotations

import io
import os
import sys
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from millstream.client.commands.common import connection_options, counted, progress, time_format_option, warn
from millstream.client.data import to_table, trains_of
from millstream.client.errors import MillstreamError, NamesNoColumn
from millstream.client.statements import name_of, quoted
from millstream.protocol.values.names import MAP_HINT, ColumnNames, left_out_note
from millstream.protocol.values.packed import FIRST_BYTES_MAX, may_be_packed, packing_of, split_name, unpacked

if TYPE_CHECKING:
    from millstream.client.blocking import BlockingPublisher, Client
    from millstream.client.connection import Answer
    from millstream.client.inputs import CsvInput, JsonLinesInput, Read
    from millstream.client.publisher import Acknowledgement
    from millstream.protocol.types import Column
    from millstream.protocol.values.mapping import ColumnMap

TEXT_FORMATS = ("csv", "jsonl")
FORMATS = (*TEXT_FORMATS, "json", "parquet", "arrow")  # json is another word for jsonl
MERGED_ROWS = 4_096  # of several files, sent at a time
SUFFIXES = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
TYPED = {"csv": "CSV, a line with the names of the columns first", "jsonl": "a JSON object a line"}
READ_BYTES = 256 * 1024
REASONS_SHOWN_MAX = 10
NAMED_ROWS_MAX = 65_536  # that are taken as one
BROKEN_OFF = ("disconnected", "stopping")


@click.command()
@click.argument("stream")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--format", "format", type=click.Choice(FORMATS), default=None, help="Default: by the file's name; csv for standard input.")
@click.option(
    "--map",
    "mapped",
    metavar="COLUMN=FILE_COLUMN",
    multiple=True,
    help="Fill a column of the stream from a file column with another name. May be repeated.",
)
@time_format_option
@click.option(
    "--name",
    "producer",
    metavar="NAME",
    help="Publish under a name: a run that was killed continues after the last row that the server took, and repeats none.",
)
@click.option("--finish", is_flag=True, help="End the stream after the last row, unless all rows were refused.")
@connection_options
def command(
    stream: str,
    files: tuple[str, ...],
    format: str | None,
    mapped: tuple[str, ...],
    time_formats: tuple[str, ...],
    producer: str | None,
    finish: bool,
    connect: Callable[[], Client],
) -> int:
    """Send rows to STREAM from FILE or standard input, as they arrive.

    CSV needs a header; JSON lines are one object per line. Either may be compressed (.gz, .zst). Several files are merged by event time,
    each in its own order. Prints to standard error how many rows
    were accepted and refused, and the first reasons. Exits with 1 if all rows were refused.
    """
    name = name_of(stream)
    sources = [Path(file) for file in files if file != "-"]
    if len(files) > 1:
        _check_mergeable(sources, files, format, producer)
    source = sources[0] if sources else None
    form = _form(source, format)
    if source is None and sys.stdin.isatty():
        warn(f"type {TYPED.get(form, form)}; Ctrl-D ends")
    with connect() as client, client.publisher(name, producer) as publisher:
        account = Account()
        sender = InputSender(publisher, producer is not None)
        column_map = _column_map(name, publisher, mapped, time_formats)
        try:
            if form == "parquet" and source is not None:
                _refuse_local_times(client, name, source, column_map)
            if len(sources) > 1:
                _send_merged(sender, _event_time(client, name), sources, format, account, column_map)
            else:
                _send(sender, form, source, account, column_map)
        except KeyboardInterrupt:
            account.settle(publisher.flush())
        except NamesNoColumn as error:
            error.hint = f"{error.hint}; {MAP_HINT}"
            raise
        except MillstreamError as error:
            if account.accepted or account.refused:
                account.print(name)
            if error.code in BROKEN_OFF:
                again = "the same command continues after the last row that the server took"
                error.hint = f"give it again: {again}" if producer else f"begin with --name NAME, and after this {again}"
            raise
        account.print(name)
        if sender.skipped:
            warn(f"{counted(sender.skipped, 'row')} left out: the server took them under the name {producer} before")
        if finish and not account.is_useless:
            client.finish(name)
    return int(account.is_useless)


def _form(source: Path | None, format: str | None) -> str:
    return ("jsonl" if format == "json" else format) or (SUFFIXES.get(split_name(source)[0].suffix.lower(), "csv") if source else "csv")


def _check_mergeable(sources: Sequence[Path], files: Sequence[str], format: str | None, producer: str | None) -> None:
    """Refuse what goes with one file alone."""
    if len(sources) < len(files):
        raise click.UsageError("standard input is sent by itself; name only files, or none")
    if producer is not None:
        raise click.UsageError("--name remembers a place in one file; publish each under a name of its own, or all without --name")
    for source in sources:
        if _form(source, format) not in TEXT_FORMATS:
            raise click.UsageError(f"{source}: several files are merged as CSV or JSON lines; publish others one by one")


def _column_map(stream: str, publisher: BlockingPublisher, maps: Sequence[str], formats: Sequence[str]) -> ColumnMap | None:
    """Return what --map and --time-format say, None where they say nothing."""
    if not (maps or formats):
        return None
    from millstream.protocol.values.mapping import column_maps

    try:
        return column_maps(maps, formats, {stream: {column.name: column.type.name for column in publisher.columns}})[stream]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


class Account:
    """Counts of accepted and refused rows, and the first reasons, by line."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0
        self._reasons: list[tuple[int, str]] = []
        self.lines: list[int] | None = None  # line of each row since the last flush
        self.files: list[str] = []  # the file of each, where there are several

    def take(self, read: Read, file: str = "") -> None:
        """Count what could not even be read; `file` is its name where there are several."""
        prefix = f"{file} " if file else ""
        for note in read.notes:
            warn(f"{file}: {note}" if file else note)
        for line, reason in read.refused:
            self.refused += 1
            self._reason(line, f"{prefix}line {line}: {reason}")

    def settle(self, ack: Acknowledgement) -> None:
        """Count what the server said."""
        self.accepted += ack.accepted
        self.refused += ack.rejected_rows
        for rejection in ack.rejected:
            number = self.lines[rejection.index] if self.lines else rejection.index + 1
            prefix = f"{self.files[rejection.index]} " if self.files else ""
            self._reason(number, f"{prefix}{'line' if self.lines else 'row'} {number}: {rejection.reason}")
        if self.lines is not None:
            self.lines = []
        progress(f"{counted(self.accepted, 'row')} accepted, {self.refused:,} refused")

    def _reason(self, place: int, text: str) -> None:
        """Keep the reason if it is among the first. What cannot be read comes before what the server refuses of the same piece."""
        insort(self._reasons, (place, text))
        del self._reasons[REASONS_SHOWN_MAX:]

    @property
    def reasons(self) -> list[str]:
        """The first reasons, in the order of the input."""
        return [text for _, text in self._reasons]

    @property
    def is_useless(self) -> bool:
        """Whether rows came and none was accepted."""
        return bool(self.refused) and not self.accepted

    def print(self, stream: str) -> None:
        """Say what became of the rows."""
        progress("")
        warn(f"{stream}: {counted(self.accepted, 'row')} accepted, {self.refused:,} refused")
        reasons = self.reasons
        for reason in reasons:
            warn(f"  {reason}")
        if self.refused > len(reasons):
            warn(f"  … and {self.refused - len(reasons):,} more")
        if self.refused:
            from millstream.protocol.values.mapping import hints

            for hint in hints(reasons, all_refused=self.is_useless):
                warn(hint)


class InputSender:
    """Sends rows; under a name each with its place in the input (from 1), and none up to the place that the server has.

    `skipped` counts rows left out since they were taken before.
    """

    def __init__(self, publisher: BlockingPublisher, is_named: bool) -> None:
        self.publisher = publisher
        self.skipped = 0
        self._is_named = is_named
        try:
            self._taken = int(publisher.position or 0)
        except ValueError:
            message = f"the server has the position {publisher.position!r} under this name, which is none of a file"
            raise MillstreamError("invalid", message, "give another --name") from None

    @property
    def columns(self) -> list[Column]:
        """The columns of the stream."""
        return self.publisher.columns

    def new_part(self, read: Read) -> Read:
        """Return what is new of rows that were read from lines."""
        if not self._taken:
            return read
        kept = [(row, line) for row, line in zip(read.rows, read.lines, strict=True) if line > self._taken]
        self.skipped += len(read.rows) - len(kept)
        refused = [(line, reason) for line, reason in read.refused if line > self._taken]
        return replace(read, rows=[row for row, _ in kept], lines=[line for _, line in kept], refused=refused)

    def send_rows(self, read: Read) -> None:
        """Send rows that were read from lines."""
        for start in range(0, len(read.rows) if self._is_named else 0, NAMED_ROWS_MAX):
            stop = min(start + NAMED_ROWS_MAX, len(read.rows))
            self.publisher.send(read.rows[start:stop], position=str(read.lines[stop - 1]).encode())
        if not self._is_named:
            self.publisher.send(read.rows)

    def send_table(self, table: Any, before: int) -> None:
        """Send a part of a table; `before` rows of it came before."""
        if not self._is_named:
            self.publisher.send(table)
            return
        start = min(max(0, self._taken - before), table.num_rows)
        self.skipped += start
        place = before + start
        for part in trains_of(to_table(table.slice(start)), NAMED_ROWS_MAX):
            place += part.num_rows
            self.publisher.send(part, position=str(place).encode())


def _send(sender: InputSender, format: str, file: Path | None, account: Account, column_map: ColumnMap | None) -> None:
    if format == "parquet":
        if file is None:
            raise click.UsageError("parquet cannot be read from standard input; name a file")
        _send_batches(sender, _parquet(file), account, column_map)
    elif format == "arrow":
        with _opened(file) as source:
            _send_batches(sender, _arrow(source), account, column_map)
    else:
        with _opened(file) as source:
            _send_text(sender, format, source, account, column_map)


def _send_merged(
    sender: InputSender, column: str | None, files: Sequence[Path], format: str | None, account: Account, column_map: ColumnMap | None
) -> None:
    """Send the rows of several files in the order of the column of event times."""
    from millstream.client.commands.merged_files import merged, placed

    def rows_of(file: Path, source: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            for read in _reads(source, _reader(_form(file, format), sender, column_map)):
                account.take(read, file.name)
                yield from zip(read.lines, read.rows, strict=True)
        except MillstreamError as error:
            error.message = f"{file}: {error.message}"
            raise

    with ExitStack() as opened:
        rows = merged([placed(file.name, rows_of(file, opened.enter_context(_opened(file))), column) for file in files])
        while some := list(islice(rows, MERGED_ROWS)):
            account.lines, account.files = [one.line for one in some], [one.file for one in some]
            sender.publisher.send([one.row for one in some])
            account.settle(sender.publisher.flush())


def _opened(file: Path | None) -> BinaryIO:
    return file.open("rb") if file is not None else os.fdopen(os.dup(sys.stdin.fileno()), "rb")


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    """Yield what is there as soon as it is there, unpacked: a read returns what a pipe holds, and waits only when it holds nothing."""
    first = b""
    while len(first) < FIRST_BYTES_MAX and (piece := os.read(source.fileno(), READ_BYTES)):
        first += piece
        if not may_be_packed(first):
            break
    packing = packing_of(first)
    if packing is None:
        yield first
        while data := os.read(source.fileno(), READ_BYTES):
            yield data
        return
    whole = unpacked(io.BufferedReader(_Pushed(first, source), READ_BYTES), packing)
    try:
        while data := whole.read(READ_BYTES):
            yield data
    except EOFError as error:
        raise MillstreamError("data", f"the compressed input is damaged or incomplete: {error}") from error


class _Pushed(io.RawIOBase):
    """A file of which the first bytes were read already."""

    def __init__(self, first: bytes, source: BinaryIO) -> None:
        self._first = first
        self._source = source

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into memory; returns how much."""
        view = memoryview(buffer).cast("B")
        data = self._first[: len(view)] or os.read(self._source.fileno(), len(view))
        self._first = self._first[len(view) :]
        view[: len(data)] = data
        return len(data)


def _send_text(sender: InputSender, format: str, source: BinaryIO, account: Account, column_map: ColumnMap | None) -> None:
    account.lines = []
    for piece in _reads(source, _reader(format, sender, column_map)):
        read = sender.new_part(piece)
        account.take(read)
        if read.rows:
            account.lines.extend(read.lines)
            sender.send_rows(read)
            account.settle(sender.publisher.flush())


def _reader(format: str, sender: InputSender, column_map: ColumnMap | None) -> CsvInput | JsonLinesInput:
    from millstream.client.inputs import CsvInput, JsonLinesInput

    return (CsvInput if format == "csv" else JsonLinesInput)(sender.columns, column_map)


def _reads(source: BinaryIO, reader: CsvInput | JsonLinesInput) -> Iterator[Read]:
    """Yield what each piece of the input gives."""
    pieces = _pieces(source)
    last = False
    while not last:
        data = next(pieces, b"")
        last = not data
        yield reader.feed(data, last=last)


def _send_batches(sender: InputSender, batches: Iterator[Any], account: Account, column_map: ColumnMap | None) -> None:
    """Send the columns that the stream has, by its names for them; others are left out with one note, as from text."""
    from millstream.client.inputs import matched

    columns, noted, before = ColumnNames([column.name for column in sender.columns]), False, 0
    for batch in batches:
        table = batch if column_map is None else _mapped(batch, column_map)
        places, extra = matched(columns, table.schema.names, "the file")
        if extra and not noted:
            noted = True
            warn(left_out_note(extra))
        sender.send_table(table.select(list(places.values())).rename_columns(list(places)), before)
        before += table.num_rows
        account.settle(sender.publisher.flush())


def _mapped(batch: Any, column_map: ColumnMap) -> Any:
    import pyarrow as pa

    try:
        return column_map.table(pa.Table.from_batches([batch]))
    except ValueError as error:
        raise MillstreamError("data", str(error)) from None


@contextmanager
def _opened_parquet(file: Path) -> Iterator[tuple[Any, set[str]]]:
    """Open a Parquet file; with the names of its INT96 columns, which by custom are instants in UTC."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # INT96 in nanoseconds ends in 2262; read as microseconds it reaches every year.
        with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            columns = [parquet.schema.column(i) for i in range(len(parquet.schema))]
            yield parquet, {c.path for c in columns if c.physical_type == "INT96"}
    except (pa.ArrowException, OSError) as error:
        raise MillstreamError("data", f"{file} is not a Parquet file: {str(error).partition(chr(10))[0]}") from error


def _refuse_local_times(client: Client, stream: str, file: Path, column_map: ColumnMap | None) -> None:
    """Refuse an event time that the file gives as local time without a zone, unless the stream names one."""
    import pyarrow as pa

    with _opened_parquet(file) as (parquet, instants):
        names = list(parquet.schema_arrow.names)
        local = {f.name for f in parquet.schema_arrow if pa.types.is_timestamp(f.type) and f.type.tz is None} - instants
    if not local:
        return
    described = client.execute(f"DESCRIBE {quoted(stream)}")
    event_time = _event_times(described)
    zoned = any(" ZONE " in notice for notice in described.notices)
    sources = {} if column_map is None else column_map.sources
    in_file = ColumnNames(names)
    meant = {in_file.meant_by(sources.get(name, name)) for name in event_time}
    for column in sorted(local & meant - {None}) if not zoned else ():
        message = f"{file}: column {column} holds local time without a zone, so it cannot be the event time"
        raise MillstreamError("data", f"{message}; create the stream with ZONE 'Area/City' (or ZONE 'UTC') after TIMESTAMP BY")


def _event_times(described: Answer) -> set[str]:
    return {str(row["column"]) for row in described if row["note"] == "event time"}


def _event_time(client: Client, stream: str) -> str | None:
    """Return the column of a stream's event times, None where it has none."""
    return next(iter(_event_times(client.execute(f"DESCRIBE {quoted(stream)}"))), None)


def _parquet(file: Path) -> Iterator[Any]:
    with _opened_parquet(file) as (parquet, instants):
        for batch in parquet.iter_batches():
            yield _as_instants(batch, instants)


def _as_instants(batch: Any, names: set[str]) -> Any:
    """Give INT96 columns the zone that they have by custom, though the file does not say so: UTC."""
    import pyarrow as pa

    for position, field in enumerate(batch.schema):
        if field.name in names and pa.types.is_timestamp(field.type) and field.type.tz is None:
            batch = batch.set_column(position, field.name, batch.column(position).cast(pa.timestamp(field.type.unit, "UTC")))
    return batch


def _arrow(source: BinaryIO) -> Iterator[Any]:
    """Yield the batches of an Arrow IPC stream, or of an Arrow file when the input is a file that can be sought."""
    import pyarrow as pa

    try:
        if source.seekable() and source.read(6) == b"ARROW1":
            source.seek(0)
            reader = pa.ipc.open_file(source)
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)
            return
        if source.seekable():
            source.seek(0)
        yield from pa.ipc.open_stream(source)
    except (pa.ArrowException, OSError) as error:
        raise MillstreamError(
            "data", f"the input is neither an Arrow stream nor an Arrow file: {str(error).partition(chr(10))[0]}"
        ) from error
