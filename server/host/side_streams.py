"""Streams that the server itself writes to: late rows, errors, and the results of INSERT INTO … SELECT.

A late output has the stream's columns and `query` (one that the stream is given later it gets when it is given a column of that name); an
error output has `query, reason, position, raw` (`query` NULL for a row refused at ingest); the position is the row's number among all
rows offered to the stream, from 1. Both are TIMESTAMP BY ARRIVAL, so that nothing in them can be late. They are made with the stream that
names them, unless a stream of that name with the same columns is there: several streams may share one.

Results of INSERT INTO … SELECT become columns of the target by name or place, numbers of another kind converted by value. A number that
the target's type cannot hold refuses its row, as a bad row at ingest would; text and numbers never turn into one another.

Live such rows enter as they come: arrival order is what it is. In virtual time, where nothing takes time, they are held until all that can
run has run, and then enter in the order of the rows that caused them, and for one row in the order in which the queries were made. So
what `millstream run` answers does not depend on trains, policies or workers (K15).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import column_from_arrow
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.errors import InvalidDefinition, TypeProblem
from millstream.engine.data.nearest import near_or_listed
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, Schema, StreamDefinition, TableDefinition
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import BIGINT, TEXT, DataType, Kind
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import Cast, ColumnRef
from millstream.engine.expressions.kernel import EvaluationContext, Kernel
from millstream.engine.ingest.checks import Reasons
from millstream.engine.plan.catalog import Catalog

ERROR_SCHEMA = Schema((Field("query", TEXT), Field("reason", TEXT, False), Field("position", BIGINT), Field("raw", TEXT)))


def definitions_for(catalog: Catalog, stream: StreamDefinition) -> list[StreamDefinition]:
    """Return the side streams that have to be made with `stream`; InvalidDefinition when a name is taken by something else."""
    wanted: list[tuple[str, Schema, str]] = []
    if stream.late_into is not None:
        wanted.append((stream.late_into, late_schema(stream), "LATE INTO"))
    if stream.errors_into is not None:
        wanted.append((stream.errors_into, ERROR_SCHEMA, "ON ERROR INTO"))
    names = [stream.name, *(name for name, _, _ in wanted)]
    if len(set(names)) != len(names):
        raise InvalidDefinition(f"stream {stream.name}: its late rows and errors need streams of their own")
    made: list[StreamDefinition] = []
    for name, schema, clause in wanted:
        found = catalog.find(name)
        if found is None:
            made.append(StreamDefinition(name, schema))
        elif not isinstance(found, StreamDefinition) or _shape(found.schema) != _shape(schema):
            columns = ", ".join(f"{f.name} {f.type}" for f in schema.fields)
            raise InvalidDefinition(f"{clause} {name}: {name} exists with other columns", hint=f"it needs ({columns})")
    return made


def late_schema(stream: StreamDefinition) -> Schema:
    """Return the columns of a stream's late output."""
    if stream.schema.position("query") is not None:
        raise InvalidDefinition(
            f"LATE INTO {stream.late_into}: the stream has a column query, which the late output adds", hint="rename it"
        )
    return Schema((*(Field(f.name, f.type) for f in stream.schema.fields), Field("query", TEXT, False)))


def _shape(schema: Schema) -> list[tuple[str, str]]:
    return [(f.name, str(f.type)) for f in schema.fields]


def late_columns(query: str, rows: Train, late: Schema) -> list[Column]:
    """Return late rows of a query's input as rows of the late output: what it has of their columns, by name, and the query."""
    places = {name: place for place, name in enumerate(rows.schema.names)}
    queries = _texts([query] * rows.rows)
    return [
        queries if f.name == "query" else rows.column(places[f.name]) if f.name in places else null_column(f.type, rows.rows)
        for f in late.fields
    ]


def error_columns(query: str | None, positions: Sequence[int | None], reasons: list[str], raws: list[str]) -> list[Column]:
    """Return rows of an error output."""
    queries = null_column(TEXT, len(reasons)) if query is None else _texts([query] * len(reasons))
    return [queries, _texts(reasons), column_from_arrow(pa.array(positions, pa.int64()), BIGINT), _texts(raws)]


def _texts(values: list[str]) -> Column:
    return column_from_arrow(pa.array(values, pa.string()), TEXT)


Push = Callable[[str, Sequence[Column], tuple[int, int] | None], None]
"""Lets rows into a stream; with the order of the query that made them and the arrival number of the last row that caused them."""


class Feeder(Protocol):
    """Takes rows for a stream: `seqs` are the arrival numbers of the rows that caused them, `order` is that of the query."""

    def feed(self, stream: str, order: int, seqs: Int64Array, columns: Sequence[Column]) -> None:
        """Take the rows."""
        ...


class DirectFeeder:
    """Lets rows in at once."""

    def __init__(self, push: Push) -> None:
        self._push = push

    def feed(self, stream: str, order: int, seqs: Int64Array, columns: Sequence[Column]) -> None:
        """Let the rows in."""
        self._push(stream, columns, (order, int(seqs[-1])) if len(seqs) else None)


@dataclass(frozen=True, slots=True)
class _WaitingRows:
    order: int
    seqs: Int64Array
    columns: Sequence[Column]


class DeferredFeeder:
    """Holds rows until `flush`."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._held: dict[str, list[_WaitingRows]] = {}

    def feed(self, stream: str, order: int, seqs: Int64Array, columns: Sequence[Column]) -> None:
        """Hold the rows."""
        self._held.setdefault(stream, []).append(_WaitingRows(order, seqs, columns))

    def flush(self) -> bool:
        """Let in what is held; returns whether there was anything."""
        held, self._held = self._held, {}
        for stream in sorted(held):
            self._push(stream, _in_order(held[stream]), None)
        return bool(held)


def _in_order(parts: list[_WaitingRows]) -> list[Column]:
    columns = [concat_columns([p.columns[i] for p in parts]) for i in range(len(parts[0].columns))]
    seqs = np.concatenate([p.seqs for p in parts])
    orders = np.concatenate([np.full(len(p.seqs), p.order, dtype=np.int64) for p in parts])
    index = np.lexsort((orders, seqs))
    if np.array_equal(index, np.arange(len(index))):
        return columns
    return [column.take(index) for column in columns]


class ColumnAssignment:
    """How a SELECT's columns become a stream's. TypeProblem or InvalidDefinition when they cannot."""

    def __init__(self, target: StreamDefinition | TableDefinition, names: Sequence[str], given: Schema) -> None:
        wanted = list(names) or list(target.schema.names)
        if len(given) != len(wanted):
            raise TypeProblem(f"{target.name} takes {len(wanted)} columns here and the SELECT gives {len(given)}")
        self._schema = target.schema
        self._sources: dict[int, tuple[int, Kernel | None]] = {}
        for place, (name, field) in enumerate(zip(wanted, given.fields, strict=True)):
            position = target.schema.position(name)
            if position is None:
                hint = near_or_listed(name, target.schema.names, "columns")
                raise TypeProblem(f"stream {target.name} has no column {name}", hint=hint, token=name)
            if position in self._sources:
                raise TypeProblem(f"column {name} is named twice", token=name)
            self._sources[position] = (place, _conversion(target.name, name, place, field.type, target.schema.fields[position].type))
        for position, field in enumerate(target.schema.fields):
            if not field.nullable and position not in self._sources:
                raise InvalidDefinition(f"column {field.name} of {target.name} is NOT NULL and gets no value")

    def widen(self, schema: Schema) -> None:
        """Give the target's columns that were added to it since NULL."""
        self._schema = schema

    def columns(self, train: Train, reasons: Reasons) -> list[Column]:
        """Return the target's columns for a train of results; rows that do not fit are noted in `reasons`."""
        return [self._column(position, train, reasons) for position in range(len(self._schema))]

    def _column(self, position: int, train: Train, reasons: Reasons) -> Column:
        field = self._schema.fields[position]
        source = self._sources.get(position)
        if source is None:
            return null_column(field.type, train.rows)
        place, kernel = source
        if kernel is None:
            return train.column(place)
        context = EvaluationContext()
        column = kernel(train, context)
        for rows, reason in context.errors:
            for row in np.asarray(rows).tolist():
                reasons.add(row, f"column {field.name}: {reason}")
        return column


def _conversion(stream: str, name: str, place: int, given: DataType, wanted: DataType) -> Kernel | None:
    if given == wanted:
        return None
    if given.kind is not Kind.NULL and not (given.is_numeric and wanted.is_numeric):
        raise TypeProblem(f"column {name} of {stream} is {wanted} and the SELECT gives {given}", hint="add a CAST", token=name)
    return compile_expression(Cast(wanted, ColumnRef(given, place, name)))
