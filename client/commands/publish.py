"""`millstream publish`: live input from a file or standard input into a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from millstream.client.commands.common import connection_options, courtesy, warn
from millstream.client.errors import MillstreamError
from millstream.client.queries import name_of, quoted
from millstream.protocol.values.names import ColumnNames, left_out_note

if TYPE_CHECKING:
    from millstream.client.blocking import BlockingPublisher, Client
    from millstream.client.inputs import Read
    from millstream.client.publisher import Acknowledgement

FORMATS = ("csv", "jsonl", "parquet", "arrow")
SUFFIXES = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
READ_BYTES = 256 * 1024
REASONS_SHOWN_MAX = 10


@click.command()
@click.argument("stream")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--format", "format", type=click.Choice(FORMATS), default=None, help="Default: by the file's name; csv for standard input.")
@click.option("--finish", is_flag=True, help="Say at the end that the stream has ended.")
@connection_options
def command(stream: str, file: str | None, format: str | None, finish: bool, connect: Callable[[], Client]) -> None:
    """Send rows to STREAM from FILE or standard input, as they arrive.

    CSV needs a header; JSON lines are one object a line. Rows that do not fit are counted and the first reasons printed;
    the others are accepted.
    """
    name = name_of(stream)
    form = format or (SUFFIXES.get(Path(file).suffix.lower(), "csv") if file else "csv")
    with connect() as client, client.publisher(name) as publisher:
        account = Account()
        try:
            if form == "parquet" and file not in (None, "-"):
                _refuse_local_times(client, name, str(file))
            _send(publisher, form, file if file != "-" else None, account)
        except KeyboardInterrupt:
            account.settle(publisher.flush())
        account.print(name)
        if finish:
            client.finish(name)


class Account:
    """Counts of accepted and refused rows, and the first reasons, by line."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0
        self.reasons: list[str] = []
        self.lines: list[int] | None = None  # line of each row since the last flush

    def take(self, read: Read) -> None:
        """Count what could not even be read."""
        for note in read.notes:
            warn(note)
        for line, reason in read.refused:
            self.refused += 1
            self._reason(f"line {line}: {reason}")

    def settle(self, ack: Acknowledgement) -> None:
        """Count what the server said."""
        self.accepted += ack.accepted
        self.refused += ack.rejected_rows
        for rejection in ack.rejected:
            place = f"line {self.lines[rejection.index]}" if self.lines else f"row {rejection.index + 1}"
            self._reason(f"{place}: {rejection.reason}")
        if self.lines is not None:
            self.lines = []

    def _reason(self, text: str) -> None:
        if len(self.reasons) < REASONS_SHOWN_MAX:
            self.reasons.append(text)

    def print(self, stream: str) -> None:
        """Say what became of the rows."""
        summary = f"{stream}: {self.accepted} rows accepted"
        if not self.refused:
            courtesy(summary)
            return
        warn(f"{summary}, {self.refused} refused")
        for reason in self.reasons:
            warn(f"  {reason}")
        if self.refused > len(self.reasons):
            warn(f"  … and {self.refused - len(self.reasons)} more")


def _send(publisher: BlockingPublisher, format: str, file: str | None, account: Account) -> None:
    if format == "parquet":
        if file is None:
            raise click.UsageError("parquet cannot be read from standard input; name a file")
        _send_batches(publisher, _parquet(file), account)
    elif format == "arrow":
        with _opened(file) as source:
            _send_batches(publisher, _arrow(source), account)
    else:
        with _opened(file) as source:
            _send_text(publisher, format, source, account)


def _opened(file: str | None) -> IO[bytes]:
    return open(file, "rb") if file is not None else os.fdopen(os.dup(sys.stdin.fileno()), "rb")


def _send_text(publisher: BlockingPublisher, format: str, source: IO[bytes], account: Account) -> None:
    """Send what is there as soon as it is there: a read returns what a pipe holds, and waits only when it holds nothing."""
    from millstream.client.inputs import CsvInput, JsonLinesInput

    reader = CsvInput(publisher.columns) if format == "csv" else JsonLinesInput(publisher.columns)
    account.lines = []
    last = False
    while not last:
        data = os.read(source.fileno(), READ_BYTES)
        last = not data
        read = reader.feed(data, last=last)
        account.take(read)
        if read.rows:
            account.lines.extend(read.lines)
            publisher.send(read.rows)
            account.settle(publisher.flush())


def _send_batches(publisher: BlockingPublisher, batches: Iterator[Any], account: Account) -> None:
    """Send the columns that the stream has, by its names for them; others are left out with one note, as from text."""
    from millstream.client.inputs import matched

    columns, noted = ColumnNames([column.name for column in publisher.columns]), False
    for batch in batches:
        places, extra = matched(columns, batch.schema.names, "the file")
        if extra and not noted:
            noted = True
            warn(left_out_note(extra))
        publisher.send(batch.select(list(places.values())).rename_columns(list(places)))
        account.settle(publisher.flush())


@contextmanager
def _opened_parquet(file: str) -> Iterator[tuple[Any, set[str]]]:
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


def _refuse_local_times(client: Client, stream: str, file: str) -> None:
    """Refuse an event time that the file gives as local time without a zone, unless the stream names one."""
    import pyarrow as pa

    with _opened_parquet(file) as (parquet, instants):
        local = {f.name for f in parquet.schema_arrow if pa.types.is_timestamp(f.type) and f.type.tz is None} - instants
    if not local:
        return
    described = client.execute(f"DESCRIBE {quoted(stream)}")
    event_time = {str(row["column"]) for row in described if row["note"] == "event time"}
    zoned = any(" ZONE " in notice for notice in described.notices)
    for column in sorted(local & event_time) if not zoned else ():
        message = f"{file}: column {column} holds local time without a zone, which is not an event time"
        raise MillstreamError("data", f"{message}; create the stream with ZONE 'Area/City' (or ZONE 'UTC') after TIMESTAMP BY")


def _parquet(file: str) -> Iterator[Any]:
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


def _arrow(source: IO[bytes]) -> Iterator[Any]:
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
        raise MillstreamError("data", f"the input is not Arrow: {str(error).partition(chr(10))[0]}") from error
