"""`millstream journal check|show|salvage`: look at the journal of a data directory, and get back what is readable, without a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from millstream.engine.data.schema import Schema
    from millstream.server.journal.catalogue_copy import CatalogueCopy
    from millstream.server.journal.reading import JournalFiles

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("journal")
def command() -> None:
    """Check, show and salvage the journal of a data directory, without a server.

    Stop the server first: a directory that a server holds is refused. Nothing in DIR is ever changed.
    """


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    from millstream.server.errors import ServerError
    from millstream.server.journal.directory_lock import held_for_reading

    try:
        with held_for_reading(directory):
            yield
    except (ServerError, OSError) as error:
        raise click.ClickException(str(error)) from error


@command.command("check")
@click.argument("directory", metavar="DIR", type=_DIRECTORY)
def check(directory: Path) -> None:
    """Check whether DIR is whole, and print every problem.

    Prints a line for each segment and checkpoint, then one for each problem with file and byte. The exit code is 0 if a server would
    start with everything that was acked, and 1 if it would refuse to start or cut something off.
    """
    from millstream.server.journal.disk import SystemDisk
    from millstream.server.run.journal_check import check_directory

    with _held(directory):
        found = check_directory(SystemDisk(), directory)
    for line in found.lines:
        click.echo(line)
    for problem in found.problems:
        click.echo(problem, err=True)
    if not found.is_whole:
        click.echo(f"not whole; to recover everything readable: millstream journal salvage {directory} NEW_DIRECTORY", err=True)
        sys.exit(1)
    click.echo("whole")


@command.command("show")
@click.argument("directory", metavar="DIR", type=_DIRECTORY)
@click.argument("streams", metavar="[STREAM]...", nargs=-1)
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--arrival", is_flag=True, help="Put the arrival number and the arrival time before each row.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Print at most this number of rows of each stream, the first ones.")
def show(directory: Path, streams: tuple[str, ...], format_: str, arrival: bool, limit: int | None) -> None:
    """Print the rows that DIR keeps.

    Prints all streams and tables of the journal, or only STREAM. Leaves out damaged rows; standard error names them, and the exit code
    is 1.
    """
    from millstream.server.journal.catalogue_copy import read_catalogue
    from millstream.server.journal.disk import SystemDisk
    from millstream.server.journal.reading import files_of
    from millstream.server.results.outcome import NamedResult
    from millstream.server.run.output import write_results

    with _held(directory):
        disk = SystemDisk()
        catalogue = read_catalogue(disk, directory)
        files = files_of(disk, directory, catalogue)
        kept = _kept_streams(files, catalogue)
        wanted = streams or tuple(kept)
        for name in wanted:
            if name not in kept:
                raise click.ClickException(f"the journal keeps no stream or table {name}; it keeps {', '.join(kept) or 'none'}")
        rows = _Rows(files, arrival, limit)
        results = [
            NamedResult(name, rows.schema(schema), rows.batches(number, schema, added))
            for name in wanted
            for number, schema, added in [kept[name]]
        ]
        write_results(results, format_, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        problems = [*catalogue.problems, *(str(hole) for reading in files.readings() for hole in reading.holes)]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        sys.exit(1)


def _kept_streams(files: JournalFiles, catalogue: CatalogueCopy) -> dict[str, tuple[int, Schema, int]]:
    """Return number, columns and how many of these were added of each stream and table that is defined, by name.

    Those of which the journal has nothing are left out.
    """
    from millstream.engine.data.schema import Schema
    from millstream.engine.flow.relations import change_schema
    from millstream.engine.language.parse import parse_statement
    from millstream.engine.language.statements import AlterStream, CreateStream, CreateTable
    from millstream.server.journal.records import DEFINITION

    known = {d.position: d.statement for d in catalogue.definitions}
    numbers: set[int] = set()
    for record in (r for reading in files.readings() for r in reading.records):
        numbers.add(record.stream)
        if record.kind == DEFINITION and not catalogue.is_whole:
            known.setdefault(record.stream, record.meta["statement"])
    kept: dict[str, tuple[int, Schema, int]] = {}
    for number in sorted(known):
        statement = parse_statement(known[number])
        if isinstance(statement, AlterStream) and statement.name.text in kept:
            of, schema, added = kept[statement.name.text]
            kept[statement.name.text] = (of, Schema((*schema.fields, *statement.columns)), added + len(statement.columns))
        if number not in numbers:
            continue
        if isinstance(statement, CreateStream):
            kept[statement.definition.name] = (number, statement.definition.schema, 0)
        elif isinstance(statement, CreateTable):
            kept[statement.definition.name] = (number, change_schema(statement.definition.schema), 0)
    return kept


class _Rows:
    """The rows of streams as Arrow batches, a record each."""

    def __init__(self, files: JournalFiles, arrival: bool, limit: int | None) -> None:
        self._files = files
        self._arrival = arrival
        self._limit = limit

    def schema(self, schema: Schema) -> Schema:
        from millstream.engine.data.schema import Field, Schema
        from millstream.engine.data.types import BIGINT, TIMESTAMP

        before = [Field("arrival", BIGINT), Field("arrived_at", TIMESTAMP)] if self._arrival else []
        return Schema((*before, *schema.fields))

    def batches(self, number: int, schema: Schema, added: int) -> Iterator[Any]:
        import pyarrow as pa
        from millstream.engine.data.arrow import arrow_schema, column_to_arrow
        from millstream.server.journal.records import ROWS

        left, whole = self._limit, arrow_schema(self.schema(schema))
        for record in (r for reading in self._files.readings() for r in reading.records):
            if record.kind != ROWS or record.stream != number or left == 0:
                continue
            columns = [column_to_arrow(c) for c in record.columns(schema, added)]
            batch = pa.record_batch([*self._arrivals(record.lo, record.hi, record.now_us, whole), *columns], schema=whole)
            batch = batch if left is None else batch.slice(0, left)
            left = None if left is None else left - batch.num_rows
            yield batch

    def _arrivals(self, lo: int, hi: int, now_us: int, schema: Any) -> Sequence[Any]:
        import pyarrow as pa

        if not self._arrival:
            return ()
        return pa.array(range(lo, hi), pa.int64()), pa.array([now_us] * (hi - lo), pa.int64()).cast(schema.field(1).type)


@command.command("salvage")
@click.argument("directory", metavar="DIR", type=_DIRECTORY)
@click.argument("new_directory", metavar="NEW_DIR", type=click.Path(path_type=Path))
def salvage(directory: Path, new_directory: Path) -> None:
    """Copy everything readable in DIR into NEW_DIR.

    A server can then open NEW_DIR. Prints the recovered and lost rows of each stream, and each damaged place. Copies streams, tables and
    durable queries if the catalogue is readable; if only the journal is readable, streams and tables. Subscribers must subscribe from the
    start, because tokens of DIR are not valid for NEW_DIR.

    The exit code is 0 if nothing was lost, otherwise 1.
    """
    from millstream.server.durability.first_checkpoints import take_over
    from millstream.server.errors import ServerError
    from millstream.server.journal.disk import SystemDisk
    from millstream.server.journal.salvage import salvage as salvage_directory

    with _held(directory):
        try:
            found = salvage_directory(SystemDisk(), directory, new_directory, take_over)
        except ServerError as error:
            raise click.ClickException(str(error)) from error
    width = max([len("stream"), *map(len, found.rows)])
    click.echo(f"{'stream':{width}}  rows recovered  rows lost")
    for name in sorted(found.rows.keys() | found.rows_lost.keys()):
        click.echo(f"{name:{width}}  {found.rows[name]:>14}  {found.rows_lost[name]:>9}")
    for line in (*found.notes, *map(str, found.holes)):
        click.echo(line, err=True)
    if not found.is_whole:
        click.echo(f"everything readable is in {new_directory}; the counts leave out damaged places whose stream is unknown", err=True)
        sys.exit(1)
