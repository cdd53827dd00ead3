"""Results as people and programs want them: tables, CSV, JSON lines, Arrow streams.

CSV and JSON are those of `protocol/values/text.py`, the same everywhere. A renderer is fed batches of one schema and writes as it goes, so
that a subscription that never ends shows its rows at once. Arrow is imported only when there is something to render.
"""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "vertical", "csv", "json", "arrow")
CELL_CHARACTERS_MAX = 60
EXPLANATION = "explanation"  # the one column of what EXPLAIN answers
BRIEF_WIDTH = 80  # of a table that a person looks at: it fits the narrowest terminal in use
COLUMN_WIDTH_MIN = 8  # of a column that is folded to fit: below it, words cannot be read
NAME_WIDTH_MIN = 20  # of the first column, by which rows are told apart
GAP = "  "


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
        case "vertical":
            return VerticalRenderer(out)
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


class VerticalRenderer:
    """A line a value: for rows that are wider than any screen."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._rows = 0

    def batch(self, batch: pa.RecordBatch) -> None:
        """Write the rows, each under its number."""
        self._out.write(vertical(batch.schema.names, cells(batch), self._rows + 1).encode())
        self._out.flush()
        self._rows += batch.num_rows

    def finish(self) -> None:
        """Say when there was no row."""
        if not self._rows:
            self._out.write(b"(no rows)\n")
            self._out.flush()


def vertical(names: list[str], rows: list[list[str | None]], first: int = 1) -> str:
    """Return rows as text, a line a value. Rows are numbered from `first`."""
    width = max(map(len, names), default=0)
    lines = []
    for number, row in enumerate(rows, first):
        lines.append(f"─[ {number} ]".ljust(width + 3, "─"))
        lines += [f"{name:{width}} │ {'NULL' if value is None else value}" for name, value in zip(names, row, strict=True)]
    return "".join(line + "\n" for line in lines)


def aligned(heads: list[tuple[str, bool]], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table; heads are (title, whether the column stands to the right)."""
    from rich.cells import cell_len

    widths = [max([cell_len(title), *(cell_len(row[place]) for row in rows)]) for place, (title, _) in enumerate(heads)]

    def line(texts: list[str]) -> str:
        parts = []
        for text, width, (_, to_the_right) in zip(texts, widths, heads, strict=True):
            space = " " * (width - cell_len(text))
            parts.append(space + text if to_the_right else text + space)
        return GAP.join(parts).rstrip()

    return [line([title for title, _ in heads]), GAP.join("─" * width for width in widths), *map(line, rows)]


def as_text(table: pa.Table, first: list[str], rows_max: int) -> list[str]:
    """Return the lines of a table's first rows, and how many there are if that is not all. `first`: these columns alone."""
    shown = table.slice(0, rows_max)
    more = [f"the first {rows_max} of {table.num_rows} rows"] if table.num_rows > rows_max else []
    if first:
        return [*brief(shown, first), *more]
    found = [["NULL" if value is None else value for value in row] for batch in shown.to_batches() for row in cells(batch)]
    if shown.schema.names == [EXPLANATION]:
        return [*(line for (line,) in found), *more]
    return [*aligned(_columns(table.schema), found), *more]


def brief(table: pa.Table, first: list[str], width: int = BRIEF_WIDTH) -> list[str]:
    """Return the lines of a table with the columns `first` alone, rounded, and cut so that it fits into `width` characters.

    Texts are cut, from the last column on; if that is not enough, the last columns are left out.
    """
    names = [name for name in first if name in table.schema.names] or list(table.schema.names)
    chosen = table.select(names)
    heads = _columns(chosen.schema)
    columns = [_brief_column(chosen.column(name)) for name in names]
    return fitted(heads, [list(row) for row in zip(*columns, strict=True)], width)[0]


def fitted(heads: list[tuple[str, bool]], rows: list[list[str]], width: int) -> tuple[list[str], list[str]]:
    """Return the lines of a table (`aligned`) cut to `width` characters, and the titles of the columns that had no room.

    Texts are cut, from the last column on; if that is not enough, the last columns are left out.
    """
    widths = [max([len(title), *(len(row[place]) for row in rows)]) for place, (title, _) in enumerate(heads)]
    least = [w if right else min(w, max(len(name), COLUMN_WIDTH_MIN)) for w, (name, right) in zip(widths, heads, strict=True)]
    least[0] = min(widths[0], NAME_WIDTH_MIN)
    while sum(widths) + len(GAP) * (len(widths) - 1) > width:
        spare = [place for place, (w, m) in enumerate(zip(widths, least, strict=True)) if w > m]
        if spare:
            widths[spare[-1]] -= 1
        elif len(widths) > 1:
            widths.pop()
            least.pop()
        else:
            break
    kept = len(widths)
    lines = aligned(heads[:kept], [[_cut(text, w) for text, w in zip(row[:kept], widths, strict=True)] for row in rows])
    return lines, [title for title, _ in heads[kept:]]


def _brief_column(column: pa.ChunkedArray) -> list[str]:
    """Return values as a person reads them: four digits of a DOUBLE, durations with their unit, nothing for NULL and false."""
    import pyarrow as pa
    from millstream.client.figures import duration, significant

    kind = column.type
    if pa.types.is_floating(kind):
        return ["" if value is None else significant(value, 4) for value in column.to_pylist()]
    if pa.types.is_duration(kind):
        return ["" if value is None else duration(value / 1_000) for value in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_boolean(kind):
        return ["yes" if value else "" for value in column.to_pylist()]
    batches = pa.table({"value": column}).to_batches()
    return ["" if value is None else value for batch in batches for (value,) in cells(batch)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


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
    """A table with fitting columns, written at the end; a line a value when the terminal is too narrow for so many columns."""

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
        if self._colour and self._is_too_wide():
            self._out.write(vertical([name for name, _ in self._columns], self._rows).encode())
            self._out.flush()
            return
        console = Console(force_terminal=self._colour, no_color=not self._colour, width=width, color_system="auto")
        with console.capture() as captured:
            console.print(table)
        lines = [line.rstrip() for line in captured.get().splitlines()]
        self._out.write(("\n".join(lines) + "\n").encode())
        self._out.flush()

    def _is_too_wide(self) -> bool:
        """Whether folding would leave columns in which no word can be read."""
        from rich.console import Console

        widths = [max([len(name), *(len(row[i] or "NULL") for row in self._rows)]) for i, (name, _) in enumerate(self._columns)]
        folded = sum(min(width, COLUMN_WIDTH_MIN) for width in widths) + 3 * (len(widths) - 1)
        return folded > Console(force_terminal=True).width


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
