"""JSON lines: one object a line. Integers of any size and decimal fractions keep every digit; a broken line costs one row (C26, C31)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO

from millstream.engine.column import null_column
from millstream.engine.ingest.coerce import coerce_rows
from millstream.engine.ingest.outcome import Coerced, Rejection
from millstream.engine.schema import StreamDefinition, TableDefinition
from millstream.engine.types import Kind

ROWS_PER_CHUNK = 16_384
INTEGER_DIGITS_MAX = 4_000  # Python refuses to read longer ones, as their cost grows with the square


class JsonLinesReader:
    """Reads one file of JSON lines for a stream or table."""

    def __init__(self, file: BinaryIO, name: str, definition: StreamDefinition | TableDefinition) -> None:
        self._file = file
        self._name = name
        self._definition = definition
        self._lines: list[int] = []  # line number of each row
        self._extra: set[str] = set()
        # Fractions are read exactly only where a DECIMAL column asks for it: Decimal costs ten times a float.
        exact = any(f.type.kind is Kind.DECIMAL for f in definition.schema.fields)
        self._decoder = json.JSONDecoder(parse_float=Decimal if exact else float)

    @property
    def notes(self) -> list[str]:
        """Sentences about the file as a whole, once it has been read."""
        if not self._extra:
            return []
        names = ", ".join(sorted(self._extra))
        return [f"{self._name}: ignored {'column' if len(self._extra) == 1 else 'columns'} {names}"]

    def chunks(self) -> Iterator[Coerced]:
        """Yield what became of each block of rows; `Rejection.index` counts all rows of the file from 0."""
        rows: list[Any] = []
        raws: list[bytes] = []
        for number, line in enumerate(self._file, 1):
            stripped = line.strip()
            if not stripped:
                continue
            self._lines.append(number)
            rows.append(self._parse(stripped))
            raws.append(line.rstrip(b"\r\n"))
            if len(rows) == ROWS_PER_CHUNK:
                yield self._coerce(rows, raws)
                rows, raws = [], []
        if rows:
            yield self._coerce(rows, raws)

    def place(self, index: int) -> str:
        """Return where row `index` stands, as `line 7`."""
        return f"line {self._lines[index]}"

    def _parse(self, line: bytes) -> dict[str, Any] | str:
        """Return the object of a line, or the reason why it is none."""
        try:
            row = self._decoder.decode(line.decode())
        except UnicodeDecodeError:
            return "not valid UTF-8"
        except ValueError as error:
            return f"not valid JSON: {error}"
        except RecursionError:
            return "not valid JSON: nested too deep"
        if not isinstance(row, dict):
            return "a row is a JSON object"
        return row

    def _coerce(self, rows: list[Any], raws: list[bytes]) -> Coerced:
        first = len(self._lines) - len(rows)
        good = [i for i, row in enumerate(rows) if not isinstance(row, str)]
        names = set(self._definition.schema.names)
        for i in good:
            if not names.issuperset(rows[i]):
                self._extra.update(set(rows[i]) - names)
        coerced = self._coerce_good([rows[i] for i in good])
        rejected = [Rejection(first + good[r.index], r.reason, _text(raws[good[r.index]])) for r in coerced.rejected]
        rejected += [Rejection(first + i, row, _text(raws[i])) for i, row in enumerate(rows) if isinstance(row, str)]
        coerced.rejected = sorted(rejected, key=lambda r: r.index)
        return coerced

    def _coerce_good(self, rows: list[Any]) -> Coerced:
        if not rows:
            return Coerced([null_column(f.type, 0) for f in self._definition.schema.fields], 0)
        return coerce_rows(rows, self._definition, ignore_extra=True, bare_instants=False)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
