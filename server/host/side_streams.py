"""Streams that the server itself writes to: late rows, errors, and the results of INSERT INTO … SELECT.

A late output has the stream's columns and `query`; an error output has `query, reason, position, raw` (`query` NULL for a row refused
at ingest); the position is the row's number among all rows offered to the stream, from 1. Both are TIMESTAMP BY ARRIVAL, so that
nothing in them can be late. They are made with the stream that names them, unless a stream of that name with the same columns is
there: several streams may share one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from millstream.engine.data.arrow import column_from_arrow
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.schema import Field, Schema, StreamDefinition
from millstream.engine.data.train import Train
from millstream.engine.data.types import BIGINT, TEXT
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


def late_columns(query: str, rows: Train) -> list[Column]:
    """Return late rows of a query's input as rows of the late output."""
    return [*rows.columns(), _texts([query] * rows.rows)]


def error_columns(query: str | None, positions: Sequence[int | None], reasons: list[str], raws: list[str]) -> list[Column]:
    """Return rows of an error output."""
    queries = null_column(TEXT, len(reasons)) if query is None else _texts([query] * len(reasons))
    return [queries, _texts(reasons), column_from_arrow(pa.array(positions, pa.int64()), BIGINT), _texts(raws)]


def _texts(values: list[str]) -> Column:
    return column_from_arrow(pa.array(values, pa.string()), TEXT)
