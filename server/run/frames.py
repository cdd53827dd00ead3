"""`millstream.run`: queries over data frames and files, in this process and in virtual time, as `millstream run` does it.

An input is a path, or anything with Arrow's C stream (pandas, polars, Arrow, a DuckDB relation), or a list of dicts. A stream that the
script does not create is declared after its input's columns. Its event time is the only TIMESTAMP column, or the one that
`timestamp_by` names, and its DELAY is how far the input's rows are out of order, so no row is late.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from millstream.engine.data.arrow import arrow_schema
from millstream.engine.data.errors import EngineError
from millstream.engine.ingest.readers import file_format
from millstream.engine.language.parse import parse_script
from millstream.engine.language.statements import CreateStream, CreateTable
from millstream.protocol.batches import columns_of
from millstream.protocol.types import ColumnType
from millstream.protocol.values.rows import rows_of
from millstream.scheduler.names import SHARING_DEFAULT
from millstream.server.results.outcome import NamedResult
from millstream.server.run.embedded import Replay, run_replay
from millstream.server.run.output import shown_columns, table_lines

ROWS_SHOWN_MAX = 20


class RunError(Exception):
    """What was to be run cannot be, or a query failed; the text names the place and the mend."""


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of one query.

    `table` has them as a pyarrow Table, `messages` are sentences about the run: rows that were late, refused or failed. Whatever reads
    Arrow's C stream (pyarrow, polars, DuckDB) takes a result as it is.
    """

    name: str
    table: Any
    messages: list[str] = field(default_factory=list)

    def df(self) -> Any:
        """Return the rows as a pandas DataFrame; raises ImportError without pandas."""
        return self.table.to_pandas()

    def pl(self) -> Any:
        """Return the rows as a polars DataFrame; raises ImportError without polars."""
        import polars

        return polars.from_arrow(self.table)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts: a STRUCT and a MAP are dicts too, JSON is its text, an instant beyond Python's years ISO 8601 text."""
        return rows_of(self.table)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts."""
        for batch in self.table.to_batches():
            yield from rows_of(batch)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as Arrow's C stream."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Return the first rows as a table of text."""
        shown = self.table.slice(0, ROWS_SHOWN_MAX)
        return "\n".join([*table_lines(shown.schema, shown.to_batches()), *self._more(), *self.messages])

    def _repr_html_(self) -> str:
        shown = self.table.slice(0, ROWS_SHOWN_MAX)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in shown.column_names)
        rows = zip(*shown_columns(shown.schema, shown.to_batches()), strict=True)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>" for row in rows)
        said = "".join(f"<p>{html.escape(text)}</p>" for text in [*self._more(), *self.messages])
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"

    def _more(self) -> list[str]:
        return [f"the first {ROWS_SHOWN_MAX} of {len(self)} rows"] if len(self) > ROWS_SHOWN_MAX else []


def run(sql: str, /, **inputs: Any) -> Result:
    """Run a script with one SELECT over inputs by the name of their stream; return its rows.

    Options besides the streams are those of `run_script`. Raises RunError when the script has more or fewer answers than one, and for
    all that `run_script` raises.
    """
    found = run_script(sql, **inputs)
    if len(found) != 1:
        raise RunError(f"the script has {len(found) or 'no'} answers where run gives one; call run_script, which returns all by name")
    return next(iter(found.values()))


def run_script(
    sql: str,
    /,
    *,
    timestamp_by: str | Mapping[str, str] | None = None,
    policy: str = "fcfs",
    sharing: str = SHARING_DEFAULT,
    workers: int = 1,
    train: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    **streams: Any,
) -> dict[str, Result]:
    """Run a script over inputs; return the rows of each SELECT, SHOW and EXPLAIN by its name, in the script's order.

    `timestamp_by` is the event time's column, of all streams or by stream. `inputs` takes streams whose names are no names of Python or
    of options. Raises RunError for a script that is wrong, an input that cannot be read, and a query that fails.
    """
    given = {**(inputs or {}), **streams}
    created = _created(sql)
    declared, opened = [], []
    for name, source in given.items():
        source = _input(name, source)
        if name.lower() not in created:
            source = _table(name, source)
            column = timestamp_by if timestamp_by is None or isinstance(timestamp_by, str) else timestamp_by.get(name)
            declared.append(_declaration(name, source, column))
        opened.append((name, source if isinstance(source, Path) else _written(source)))
    outcome = run_replay(Replay(sql, opened, None, policy, workers, train, sharing=sharing, declared="".join(declared)))
    if outcome.failure is not None:
        raise RunError("\n".join([outcome.failure, *outcome.messages]))
    return {result.name: Result(result.name, _whole(result), outcome.messages) for result in outcome.results}


def _created(sql: str) -> set[str]:
    try:
        statements = [statement for statement, _ in parse_script(sql)]
    except EngineError as error:
        raise RunError(str(error)) from None
    return {s.definition.name.lower() for s in statements if isinstance(s, CreateStream | CreateTable)}


def _input(name: str, source: Any) -> Any:
    """Return a path, or a pyarrow Table of what was given."""
    if isinstance(source, str | Path):
        return Path(source)
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    try:
        if hasattr(source, "__arrow_c_stream__"):
            table = pa.table(source)
            return table.select([c for c in table.column_names if not c.startswith("__index_level_")])
        if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source):
            return pa.Table.from_pylist(list(source))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise RunError(f"{name}: {str(error).splitlines()[0]}") from error
    raise RunError(f"{name}: {type(source).__name__} has no rows; give a path, a data frame, an Arrow table or a list of dicts")


def _table(name: str, source: Any) -> Any:
    """Return a table, of a path too: its columns are what the stream is declared after."""
    if not isinstance(source, Path):
        return source
    if file_format(source) == "parquet":
        import pyarrow.parquet as pq

        try:
            return pq.read_table(source)
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"{name}: cannot read {source}: {str(error).splitlines()[0]}") from error
    raise RunError(
        f"{name}: {source.name} does not say its columns' types; begin the script with CREATE STREAM {name} (…), or give Parquet"
    )


def _declaration(name: str, table: Any, timestamp_by: str | None) -> str:
    names = _folded(table.column_names)
    columns = ", ".join(f"{_quoted(names[f.name])} {_declared_type(name, f)}" for f in table.schema)
    times = [f.name for f in table.schema if pa.types.is_timestamp(f.type)]
    if timestamp_by is None and len(times) > 1:
        raise RunError(f"{name}: which of {', '.join(times)} is the event time? Say timestamp_by='{times[0]}'")
    event_time = timestamp_by or (times[0] if times else None)
    if event_time is None:
        return f"CREATE STREAM {_quoted(name)} ({columns}) TIMESTAMP BY ARRIVAL;\n"
    if event_time not in times:
        raise RunError(f"{name}: timestamp_by names {event_time}, which is no TIMESTAMP column; it has {', '.join(times) or 'none'}")
    delay = _disorder_us(table[event_time])
    zone = " ZONE 'UTC'" if table.schema.field(event_time).type.tz is None else ""
    return f"CREATE STREAM {_quoted(name)} ({columns}) TIMESTAMP BY {_quoted(names[event_time])}{zone} DELAY {delay} MICROSECONDS;\n"


def _declared_type(name: str, column: Any) -> str:
    try:
        (found,) = columns_of(pa.schema([column]))
    except ValueError:
        raise RunError(f"{name}: no column type for {column.name}, which is {column.type}; leave it out, or cast it first") from None
    return str(_declared(found.type))


def _declared(type_: ColumnType) -> ColumnType:
    """Return a type as it is declared: parts are called as columns are, and what is NULL in every row is TEXT."""
    if type_.name == "NULL":
        return ColumnType("TEXT")
    names = _folded([name for name, _ in type_.parts])
    parts = tuple((names[name], _declared(part)) for name, part in type_.parts)
    return replace(type_, element=None if type_.element is None else _declared(type_.element), parts=parts)


def _disorder_us(times: Any) -> int:
    """Return how far the furthest row stands behind one before it, in microseconds."""
    instants = times.drop_null().cast(pa.timestamp("us", times.type.tz), safe=False).combine_chunks().cast(pa.int64())
    if len(instants) == 0:
        return 0
    return int(pc.max(pc.subtract(pc.cumulative_max(instants), instants)).as_py())


def _folded(names: Sequence[str]) -> dict[str, str]:
    """Return how columns are declared: as a name without quotes is read, so that a query may write it in any case."""
    folded = [name.lower() for name in names]
    return {name: low if folded.count(low) == 1 else name for name, low in zip(names, folded, strict=True)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _written(table: Any) -> Any:
    """Return a table as an Arrow stream in memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _whole(result: NamedResult) -> Any:
    return pa.Table.from_batches(list(result.batches), arrow_schema(result.schema))
