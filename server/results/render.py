"""Results of `millstream run` on standard output: table, csv, json or arrow.

Several results stand one after the other, each under a line `-- name` (not in arrow, where each is an IPC stream of its own whose
schema's metadata names the query).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.protocol.values.text import csv_header, csv_lines, display_columns, json_lines

FORMATS = ("table", "csv", "json", "arrow")
_RIGHT_ALIGNED = ("INT", "BIGINT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True, slots=True)
class NamedResult:
    """The whole answer of one SELECT, or the table that a SHOW, DESCRIBE or EXPLAIN gave; `plan` is what EXPLAIN shows as json."""

    name: str
    schema: Schema
    batches: Iterable[Any]
    plan: dict[str, Any] | None = None


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
    names = list(result.schema.names)
    columns: list[list[str]] = [[] for _ in names]
    for batch in result.batches:
        for column, values in zip(columns, display_columns(batch), strict=True):
            column.extend(v.replace("\n", "\\n") for v in values)
    widths = [max([cells(name), *(cells(v) for v in column)]) for name, column in zip(names, columns, strict=True)]
    right = [str(f.type).startswith(_RIGHT_ALIGNED) for f in result.schema.fields]
    lines = [_row(names, widths, [False] * len(names)), "-+-".join("-" * w for w in widths)]
    lines += [_row(row, widths, right) for row in zip(*columns, strict=True)]
    rows = len(columns[0]) if columns else 0
    lines.append(f"({rows} row{'' if rows == 1 else 's'})")
    out.write(("\n".join(lines) + "\n").encode())


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
