"""CSV: a header, columns by name, RFC 4180 quoting. Only quotes tell an empty string from NULL (C28).

Arrow's reader does the splitting; rows with a wrong number of fields are refused alone. Every column is read as bytes first, so that one
value with broken UTF-8 costs one row and not the file. Line numbers are found afterwards, and only when a row was refused.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from millstream.engine.errors import InvalidDefinition, SyntaxProblem
from millstream.engine.ingest.arrow_columns import as_text
from millstream.engine.ingest.checks import finish
from millstream.engine.ingest.outcome import Coerced, Reasons, Rejection
from millstream.engine.expressions.parsing import parse_column
from millstream.engine.column import Column, null_column
from millstream.engine.schema import Field, StreamDefinition, TableDefinition
from millstream.engine.types import Kind

BLOCK_BYTES = 4 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CsvReader:
    """Reads one CSV file (opened, decompressed) for a stream or table. `notes` are sentences about the file as a whole."""

    def __init__(self, file: BinaryIO, name: str, definition: StreamDefinition | TableDefinition) -> None:
        self._data = file.read()
        if self._data.startswith(BYTE_ORDER_MARK):
            self._data = self._data[len(BYTE_ORDER_MARK) :]
        self._name = name
        self._definition = definition
        self._lines: list[int] | None = None
        self._bad: list[tuple[int, str, str]] = []
        self.notes: list[str] = []
        self._header, self._body = self._read_header()
        self._sources = self._match_columns()

    def chunks(self) -> Iterator[Coerced]:
        """Yield what became of each block of rows, in the file's order; `Rejection.index` counts all rows of the file from 0."""
        if not self._body.strip(b"\r\n"):
            return
        done = 0
        for batch in self._open():
            coerced = self._coerce(batch, self._positions(done, batch.num_rows))
            done = self._next
            yield coerced
        trailing = self._refused_until(None)
        if trailing:
            yield Coerced([null_column(f.type, 0) for f in self._definition.schema.fields], 0, trailing)

    def place(self, index: int) -> str:
        """Return where row `index` stands, as `line 7`."""
        if self._lines is None:
            self._lines = _first_lines(self._data)
        return f"line {self._lines[index + 1]}" if index + 1 < len(self._lines) else f"row {index + 1}"

    # Inside ------------------------------------------------------------------------------------------------------------

    def _read_header(self) -> tuple[list[str], bytes]:
        text = io.TextIOWrapper(io.BytesIO(self._data[: 1 << 20]), encoding="utf-8", errors="replace", newline="")
        lines: list[str] = []

        def feed() -> Iterator[str]:
            for line in text:
                lines.append(line)
                yield line

        header = next(csv.reader(feed()), None)
        if not header:
            raise SyntaxProblem(f"{self._name} is empty", hint="a CSV file begins with a line of column names")
        used = sum(len(line.encode()) for line in lines)
        return [h.strip() for h in header], self._data[used:]

    def _match_columns(self) -> dict[str, int]:
        """Return for each schema column found the position in the file: by exact name, else by name in any case."""
        found: dict[str, int] = {}
        folded = [h.lower() for h in self._header]
        for field in self._definition.schema.fields:
            if self._header.count(field.name) == 1:
                found[field.name] = self._header.index(field.name)
            elif field.name not in self._header and folded.count(field.name.lower()) == 1:
                found[field.name] = folded.index(field.name.lower())
            elif self._header.count(field.name) > 1:
                raise InvalidDefinition(f"{self._name} has column {field.name} twice")
            elif not field.nullable or self._is_needed(field):
                raise InvalidDefinition(f"{self._name} has no column {field.name}", hint=f"its header names {', '.join(self._header)}")
        extra = [h for i, h in enumerate(self._header) if i not in found.values()]
        if extra:
            self.notes.append(f"{self._name}: ignored {'column' if len(extra) == 1 else 'columns'} {', '.join(extra)}")
        return found

    def _is_needed(self, field: Field) -> bool:
        if isinstance(self._definition, TableDefinition):
            return field.name in self._definition.key
        return field.name == self._definition.time.column

    def _open(self) -> Any:
        names = [f"c{i}" for i in range(len(self._header))]
        return arrow_csv.open_csv(
            pa.BufferReader(self._body),
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES, use_threads=False),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=self._wrong_count),
            convert_options=arrow_csv.ConvertOptions(
                column_types={n: pa.binary() for n in names},
                include_columns=[names[i] for i in sorted(set(self._sources.values()))] or names[:1],
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )

    def _wrong_count(self, row: Any) -> str:
        many = "field" if row.actual_columns == 1 else "fields"
        self._bad.append((int(row.number) - 1, f"{row.actual_columns} {many} for {row.expected_columns} columns", str(row.text)))
        return "skip"

    def _positions(self, first: int, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Number a block's rows by their place in the file, which the skipped ones among them shift."""
        skipped = np.array(sorted(n for n, _, _ in self._bad if n >= first), dtype=np.int64)
        positions = np.arange(first, first + rows + len(skipped), dtype=np.int64)
        positions = positions[~np.isin(positions, skipped)][:rows]
        self._next = int(positions[-1]) + 1 if rows else first
        return positions

    def _coerce(self, batch: Any, positions: Any) -> Coerced:
        reasons = Reasons(batch.num_rows)
        columns = [self._column(batch, field, reasons) for field in self._definition.schema.fields]
        coerced = finish(columns, batch.num_rows, self._definition, reasons, lambda i: self._raw(int(positions[i])))
        own = [Rejection(int(positions[r.index]), r.reason, r.raw) for r in coerced.rejected]
        coerced.rejected = sorted([*own, *self._refused_until(self._next)], key=lambda r: r.index)
        return coerced

    def _column(self, batch: Any, field: Field, reasons: Reasons) -> Column:
        source = self._sources.get(field.name)
        if source is None:
            return null_column(field.type, batch.num_rows)
        text = as_text(batch.column(batch.schema.get_field_index(f"c{source}")), field.name, reasons)
        if field.type.kind is Kind.TEXT:
            return Column(field.type, text)
        zone = self._definition.time.zone if isinstance(self._definition, StreamDefinition) else None
        parsed = parse_column(text, field.type, zone, exact=True)
        for index, reason in parsed.failed.items():
            reasons.add(index, f"column {field.name}: {reason}")
        return parsed.column

    def _refused_until(self, stop: int | None) -> list[Rejection]:
        ready = [b for b in self._bad if stop is None or b[0] < stop]
        self._bad = [b for b in self._bad if not (stop is None or b[0] < stop)]
        return [Rejection(number, reason, raw) for number, reason, raw in ready]

    def _raw(self, index: int) -> str | bytes:
        """Return the bytes of a row as they stand in the file."""
        if self._lines is None:
            self._lines = _first_lines(self._data)
        lines = self._data.splitlines(keepends=True) if len(self._lines) < 1_000_000 else []
        if index + 1 >= len(self._lines) or not lines:
            return ""
        start = self._lines[index + 1] - 1
        stop = self._lines[index + 2] - 1 if index + 2 < len(self._lines) else len(lines)
        raw = b"".join(lines[start:stop]).rstrip(b"\r\n")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw


def _first_lines(data: bytes) -> Sequence[int] | list[int]:
    """Return for the header and each row the number of its first line; empty lines are no rows."""
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace", newline=""))
    found: list[int] = []
    before = 0
    for row in reader:
        if row:
            found.append(before + 1)
        before = reader.line_num
    return found
