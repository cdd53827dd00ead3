"""What `millstream run` gives: results kept by query as they come, and written to standard output as table, csv, json or arrow.

Several results stand one after the other, each under a line `-- name` (not in arrow, where each is an IPC stream of its own whose
schema's metadata names the query).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any, BinaryIO

import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, arrow_type
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.train import Train
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INTERVAL, TEXT, TIMESTAMP, DataType
from millstream.protocol.values.text import csv_header, csv_lines, display_columns, json_lines
from millstream.server.host.contract import KeptResults
from millstream.server.host.queries import Query, QueryKind
from millstream.server.results.outcome import NamedResult, Outcome

FORMATS = ("table", "csv", "json", "arrow")
_RIGHT_ALIGNED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration)
_TYPES: dict[str, DataType] = {str(t): t for t in (BIGINT, BOOLEAN, DOUBLE, INTERVAL, TEXT, TIMESTAMP)}


def write_results(results: Sequence[NamedResult], format_: str, out: BinaryIO) -> None:
    """Write all results in order."""
    for result in results:
        if len(results) > 1 and format_ != "arrow":
            out.write(f"-- {result.name}\n".encode())
        _WRITERS[format_](result, out)


def _write_json(result: NamedResult, out: BinaryIO) -> None:
    if result.plan is not None:
        out.write(json.dumps(result.plan, ensure_ascii=False).encode() + b"\n")
        return
    for batch in result.batches:
        out.write(json_lines(batch))


def _write_csv(result: NamedResult, out: BinaryIO) -> None:
    out.write(csv_header(arrow_schema(result.schema)))
    for batch in result.batches:
        out.write(csv_lines(batch))


def _write_arrow(result: NamedResult, out: BinaryIO) -> None:
    schema = arrow_schema(result.schema).with_metadata({"query": result.name})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in result.batches:
            writer.write_batch(batch)
    out.write(memoryview(sink.getvalue()))


def _write_table(result: NamedResult, out: BinaryIO) -> None:
    batches = list(result.batches)
    lines = table_lines(arrow_schema(result.schema), batches)
    rows = sum(batch.num_rows for batch in batches)
    lines.append(f"({rows} row{'' if rows == 1 else 's'})")
    out.write(("\n".join(lines) + "\n").encode())


def table_lines(schema: Any, batches: Sequence[Any]) -> list[str]:
    """Return the rows of Arrow batches as a table of text: a line of names, a rule, a line a row; numbers and intervals at the right."""
    columns = shown_columns(schema, batches)
    widths = [max([cells(name), *(cells(v) for v in column)]) for name, column in zip(schema.names, columns, strict=True)]
    right = [any(matches(kind) for matches in _RIGHT_ALIGNED) for kind in schema.types]
    lines = [_row(schema.names, widths, [False] * len(widths)), "-+-".join("-" * w for w in widths)]
    return lines + [_row(row, widths, right) for row in zip(*columns, strict=True)]


def shown_columns(schema: Any, batches: Sequence[Any]) -> list[list[str]]:
    """Return the text of each column's values, each in one line."""
    columns: list[list[str]] = [[] for _ in schema.names]
    for batch in batches:
        for column, values in zip(columns, display_columns(batch), strict=True):
            column.extend(v.replace("\n", "\\n") for v in values)
    return columns


def _row(values: Sequence[str], widths: list[int], right: list[bool]) -> str:
    padded = [
        " " * (width - cells(value)) + value if at_right else value + " " * (width - cells(value))
        for value, width, at_right in zip(values, widths, right, strict=True)
    ]
    return " | ".join(padded).rstrip()


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


_WRITERS = {"json": _write_json, "csv": _write_csv, "arrow": _write_arrow, "table": _write_table}


def outcome_result(name: str, outcome: Outcome) -> NamedResult:
    """Return the outcome's table under a name."""
    schema = Schema(tuple(Field(column, _TYPES[kind], nullable) for column, kind, nullable in outcome.columns))
    arrays = [_array([row[i] for row in outcome.values], f.type) for i, f in enumerate(schema.fields)]
    return NamedResult(name, schema, [pa.record_batch(arrays, names=list(schema.names))], outcome.info.get("plan"))


def _array(values: list[Any], type_: DataType) -> Any:
    arrow = arrow_type(type_)
    if type_ in (TIMESTAMP, INTERVAL):
        return pa.array(values, pa.int64()).view(arrow)
    return pa.array(values, arrow)


class Collector:
    """Keeps results by query in the order in which they were announced. `messages` are for standard error."""

    def __init__(self) -> None:
        self.batches: dict[str, list[Any]] = {}
        self.placed: dict[str, list[tuple[int, Any]]] = {}
        self.schemas: dict[str, Schema] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.failures: list[str] = []
        self.messages: list[str] = []

    def query_began(self, query: Query) -> None:
        """Make room for the results."""
        if query.kind is QueryKind.SELECT:
            if query.run == 1:  # one of the same name may have been dropped or replaced
                self.batches[query.name], self.placed[query.name] = [], []
            self.schemas[query.name] = query.planned.physical.schema

    def results(self, query: Query, train: Train) -> None:
        """Keep the rows."""
        if query.kind is QueryKind.SELECT and train.rows and query.shape is not None:
            batch = query.shape.batch(train)
            self.batches[query.name].append(batch)
            self.placed.setdefault(query.name, []).append((train.hi - 1, batch))

    def query_ended(self, query: Query, reason: str, message: str, counts: dict[str, Any]) -> None:
        """Keep the counts; a failed query fails the run."""
        self.counts[query.name] = counts
        if reason == "failed":
            self.failures.append(f"query {query.name} failed: {message}")

    def stream_dropped(self, name: str) -> None:
        """Nothing reads along."""

    def reported(self, kind: str, message: str) -> None:
        """Keep it for standard error."""
        self.messages.append(message)

    def kept(self, query: Query) -> KeptResults:
        """Everything is kept."""
        return KeptResults(list(self.placed.get(query.name, ())))

    def is_pressed(self, stream: str) -> bool:
        """Nobody waits: results are kept in memory."""
        return False

    def result(self, name: str) -> NamedResult:
        """Return the whole answer of a query."""
        return NamedResult(name, self.schemas[name], self.batches[name])
