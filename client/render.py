"""Results as people and programs want them: tables, CSV, JSON lines, Arrow streams.

CSV and JSON are those of `protocol/values/text.py`, the same everywhere. A renderer is fed batches of one schema and writes as it goes, so
that a subscription that never ends shows its rows at once. Arrow is imported only when there is something to render.
"""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "arrow")
CELL_CHARACTERS_MAX = 60


class Renderer(Protocol):
    """Takes batches, writes them out."""

    def batch(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""

    def finish(self) -> None:
        """Write what comes after the last row."""


def renderer_for(name: str, schema: pa.Schema, out: IO[bytes], *, live: bool = False, colour: bool = False) -> Renderer:
    """Return the renderer of a format; ValueError for another. `live` tables are written row by row, others when they are whole."""
    match name:
        case "csv":
            return CsvRenderer(schema, out)
        case "json":
            return JsonRenderer(out)
        case "arrow":
            return ArrowRenderer(schema, out)
        case "table":
            return LiveTable(schema, out, colour) if live else WholeTable(schema, out, colour)
        case _:
            raise ValueError(f"there is no format {name}")


class CsvRenderer:
    """A header, then a line a row; empty strings quoted, NULL empty."""

    def __init__(self, schema: pa.Schema, out: IO[bytes]) -> None:
        from millstream.protocol.values.text import csv_header, csv_lines

        self._out = out
        self._lines = csv_lines
        out.write(csv_header(schema))
        out.flush()

    def batch(self, batch: pa.RecordBatch) -> None:
        """Write a line a row."""
        self._out.write(self._lines(batch))
        self._out.flush()

    def finish(self) -> None:
        """Nothing follows."""


class JsonRenderer:
    """One object a line."""

    def __init__(self, out: IO[bytes]) -> None:
        from millstream.protocol.values.text import json_lines

        self._out = out
        self._lines = json_lines

    def batch(self, batch: pa.RecordBatch) -> None:
        """Write a line a row."""
        self._out.write(self._lines(batch))
        self._out.flush()

    def finish(self) -> None:
        """Nothing follows."""


class ArrowRenderer:
    """An Arrow IPC stream."""

    def __init__(self, schema: pa.Schema, out: IO[bytes]) -> None:
        import pyarrow as pa

        self._out = out
        self._schema = schema
        self._writer = pa.ipc.new_stream(out, schema)

    def batch(self, batch: pa.RecordBatch) -> None:
        """Write a record batch message."""
        self._writer.write_batch(batch.replace_schema_metadata(self._schema.metadata))
        self._out.flush()

    def finish(self) -> None:
        """Write the end of the stream."""
        self._writer.close()
        self._out.flush()


def cells(batch: pa.RecordBatch) -> list[list[str | None]]:
    """Return the rows of a batch as text for a table; None for NULL.

    Control characters are written as escapes, so that data cannot move the cursor of a terminal.
    """
    from millstream.protocol.values.text import json_lines

    rows = [json.loads(line, object_pairs_hook=list) for line in json_lines(batch).decode().split("\n") if line]
    return [[_cell(value) for _, value in row] for row in rows]


def _cell(value: Any) -> str | None:
    text = value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text is not None and not text.isprintable():
        text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return text


def _columns(schema: pa.Schema) -> list[tuple[str, bool]]:
    """Return name and whether the column is of numbers, which stand to the right."""
    import pyarrow as pa

    kinds = pa.types
    return [(f.name, bool(kinds.is_integer(f.type) or kinds.is_floating(f.type) or kinds.is_decimal(f.type))) for f in schema]


class WholeTable:
    """A table with fitting columns, written at the end."""

    def __init__(self, schema: pa.Schema, out: IO[bytes], colour: bool) -> None:
        self._columns = _columns(schema)
        self._out = out
        self._colour = colour
        self._rows: list[list[str | None]] = []

    def batch(self, batch: pa.RecordBatch) -> None:
        """Keep the rows."""
        self._rows.extend(cells(batch))

    def finish(self) -> None:
        """Write the table."""
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name, to_the_right in self._columns:
            table.add_column(Text(name), justify="right" if to_the_right else "left", overflow="fold")
        for row in self._rows:
            table.add_row(*(Text("NULL", style="dim") if value is None else Text(value) for value in row))
        width = None if self._colour else 32_000
        console = Console(force_terminal=self._colour, no_color=not self._colour, width=width, color_system="auto")
        with console.capture() as captured:
            console.print(table)
        lines = [line.rstrip() for line in captured.get().splitlines()]
        self._out.write(("\n".join(lines) + "\n").encode())
        self._out.flush()


class LiveTable:
    """Rows as they come, in columns as wide as the first batch needs; longer values push their line out of step."""

    def __init__(self, schema: pa.Schema, out: IO[bytes], colour: bool) -> None:
        self._columns = _columns(schema)
        self._out = out
        self._colour = colour
        self._widths: list[int] = []

    def batch(self, batch: pa.RecordBatch) -> None:
        """Write the rows; the first time also the header."""
        rows = cells(batch)
        if not self._widths:
            self._head(rows)
        self._out.write("".join(self._line(row) for row in rows).encode())
        self._out.flush()

    def finish(self) -> None:
        """Write the header of a table that stayed empty."""
        if not self._widths:
            self._head([])
            self._out.flush()

    def _head(self, rows: list[list[str | None]]) -> None:
        for index, (name, _) in enumerate(self._columns):
            widest = max([len(name), *(len(row[index] or "NULL") for row in rows)])
            self._widths.append(min(widest, CELL_CHARACTERS_MAX))
        names: list[str | None] = [name for name, _ in self._columns]
        rule: list[str | None] = ["─" * width for width in self._widths]
        self._out.write((self._line(names) + self._line(rule)).encode())

    def _line(self, row: list[str | None]) -> str:
        parts = []
        for value, width, (_, to_the_right) in zip(row, self._widths, self._columns, strict=True):
            text = "NULL" if value is None else value
            padded = text.rjust(width) if to_the_right else text.ljust(width)
            parts.append(f"\x1b[2m{padded}\x1b[0m" if value is None and self._colour else padded)
        return "  ".join(parts).rstrip() + "\n"
