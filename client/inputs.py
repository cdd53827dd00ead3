"""Live input for `millstream publish`: bytes of CSV or JSON lines as they arrive, turned into rows for a stream.

Values get the stream's types where their text says so; what does not fit stays text, and the server refuses that row with a reason.
Rows that cannot be read at all are refused here, with the line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.client.errors import MillstreamError, NamesNoColumn
from millstream.protocol.types import Column, ColumnType
from millstream.protocol.values import Number
from millstream.protocol.values.csv import COMMA, CsvRecord, separator_of, tokenize
from millstream.protocol.values.json_values import is_too_deep, not_json, read_json
from millstream.protocol.values.names import ColumnNames, left_out_note

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap

SPECIAL_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
LINE_BYTES_MAX = 16 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ANYTHING = ColumnType("JSON")
_JSON_WORDS = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    bool: "a truth value",
    type(None): "null",
}


def time_format(text: str) -> tuple[str | None, Any]:
    """Return column (None: all TIMESTAMP columns) and `TimeFormat` of `--time-format`. MillstreamError (`invalid`) if it is none."""
    from millstream.protocol.values.mapping import split_format

    try:
        return split_format(text)
    except ValueError as error:
        raise MillstreamError("invalid", str(error)) from None


@dataclass(slots=True)
class Read:
    """What one piece of input gave: rows, the line of each, and lines that could not be read with the reason."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def bring_times(self, column_map: ColumnMap | None) -> None:
        """Read the times in the formats of a map; rows that have another are refused."""
        bad = column_map.bring_times(self.rows) if column_map is not None and column_map.formats else {}
        if bad:
            self.refused += [(self.lines[i], reason) for i, reason in sorted(bad.items())]
            self.rows = [row for i, row in enumerate(self.rows) if i not in bad]
            self.lines = [line for i, line in enumerate(self.lines) if i not in bad]


def separator_in(header: str) -> str:
    """Return what parts the fields of CSV with this header."""
    return chr(separator_of(header.encode()))


class CsvInput:
    """CSV with a header, which tells the separator. Columns are found by name, or as `column_map` says; others are left out with a note."""

    def __init__(self, columns: list[Column], column_map: ColumnMap | None = None) -> None:
        self._columns = {column.name: column for column in columns}
        self._names = ColumnNames(list(self._columns))
        self._map = column_map
        self._rest = b""
        self._line = 1
        self._started = False
        self._separator = COMMA
        self._header: list[str] | None = None
        self._converters: list[tuple[int, str, Callable[[str], Any]]] = []

    def feed(self, data: bytes, *, last: bool = False) -> Read:
        """Return the rows that are whole with `data`; with `last` also the unfinished one. Raises MillstreamError for a useless header."""
        read = Read()
        buffer = self._rest + data
        if not self._started and (len(buffer) >= len(_BYTE_ORDER_MARK) or last):
            self._started = True
            buffer = buffer.removeprefix(_BYTE_ORDER_MARK)
        if not self._started:
            self._rest = buffer
            return read
        at = 0
        if self._header is None:
            self._separator = separator_of(buffer)
        for record in tokenize(buffer, self._separator, last):
            self._line += buffer.count(b"\n", at, record.start)
            self._take(record, read)
            self._line += buffer.count(b"\n", record.start, record.end)
            at = record.end
        self._rest = buffer[at:]
        read.bring_times(self._map)
        return read

    def _take(self, record: CsvRecord, read: Read) -> None:
        line = self._line
        try:
            fields = [None if field is None else field.decode("utf-8") for field in record.fields]
            problem = record.problem
        except UnicodeDecodeError:
            fields, problem = [], "not UTF-8"
        if problem is not None:
            if self._header is None:
                raise MillstreamError("data", f"the header (line {line}) is not CSV: {problem}")
            read.refused.append((line, problem))
        elif self._header is None:
            self._begin([name or "" for name in fields], read)
        elif len(fields) != len(self._header):
            read.refused.append((line, f"{len(fields)} field{'' if len(fields) == 1 else 's'} where the header has {len(self._header)}"))
        else:
            try:
                row = {name: None if (text := fields[i]) is None else convert(text) for i, name, convert in self._converters}
            except MillstreamError as error:
                read.refused.append((line, error.message))
                return
            read.rows.append(row)
            read.lines.append(line)

    def _begin(self, header: list[str], read: Read) -> None:
        self._header = header
        places, extra = matched(self._names, header, "the header", self._map)
        if extra:
            read.notes.append(left_out_note(extra))
        self._converters = [(i, name, converter(self._columns[name])) for name, i in places.items()]


def matched(
    columns: ColumnNames, names: list[str], what: str, column_map: ColumnMap | None = None
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return where each column of the stream stands among the names of an input, and those left out.

    MillstreamError (`data`) when no name is a column of the stream, or one stands twice, or the map names one that is not there.
    """
    try:
        if column_map is not None and column_map.sources:
            places = column_map.places(names)
            extra = tuple(name for place, name in enumerate(names) if place not in places.values())
        else:
            places, extra = columns.match(names)
    except ValueError as problem:
        raise MillstreamError("data", str(problem)) from None
    if not places:
        wanted = ", ".join(sorted(columns.known))
        raise NamesNoColumn("data", f"{what} names no column of the stream: {', '.join(names)}", f"its columns are {wanted}")
    return places, extra


def converter(column: Column) -> Callable[[str], Any]:
    """Return a function that reads a column's text as its type, or leaves it as it is."""
    match column.type.name:
        case "INT" | "BIGINT":
            return _integer
        case "DOUBLE":
            return _float
        case "BOOLEAN":
            return _boolean
        case "JSON" | "LIST" | "STRUCT" | "MAP":
            return partial(_nested, column.type)
        case _:
            return _text


def _nested(type_: ColumnType, text: str) -> Any:
    """Read JSON. What is none stays a text, which the server refuses with the column's type; for a JSON column it says so itself."""
    try:
        return in_parts(read_json(text), type_, _finite)
    except ValueError as error:
        if type_.name == "JSON":
            raise MillstreamError("data", str(error)) from error
        return text


def in_parts(value: Any, type_: ColumnType, double: Callable[[str], Any]) -> Any:
    """Return a nested value with its numbers as their types want them: a DECIMAL keeps all digits, others become what `double` gives."""
    if isinstance(value, Number | Decimal):
        return str(value) if type_.name == "DECIMAL" else double(str(value))
    if isinstance(value, list):
        inner = type_.element if type_.name == "LIST" and type_.element is not None else _ANYTHING
        return [in_parts(item, inner, double) for item in value]
    if isinstance(value, dict):
        parts = dict(type_.parts)
        other = type_.element if type_.name == "MAP" and type_.element is not None else _ANYTHING
        return {name: in_parts(item, parts.get(name) or parts.get(name.lower(), other), double) for name, item in value.items()}
    return value


def _integer(text: str) -> Any:
    try:
        return int(text) if text.strip().lstrip("+-").isascii() and "_" not in text else text
    except ValueError:
        return text


def _float(text: str) -> Any:
    if text in SPECIAL_FLOATS:
        return SPECIAL_FLOATS[text]
    try:
        found = float(text) if text.strip()[-1:].isdigit() or text.strip().endswith(".") else text
    except ValueError:
        return text
    return text if found in (math.inf, -math.inf) else found  # the server says that it is out of range


def _boolean(text: str) -> Any:
    return {"true": True, "false": False}.get(text.strip().lower(), text)


def _text(text: str) -> str:
    return text


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is out of the range of DOUBLE")
    return value


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the plain values in a nested one."""
    if isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value


class BadValue(ValueError):
    """A line that is not JSON, or a value that its column cannot hold; the message says all."""


class _Beyond(str):
    """The digits of a number that no DOUBLE can hold."""

    __slots__ = ()


class JsonLinesInput:
    """One JSON object a line. Names that the stream does not have are left out, with a note for each.

    Numbers keep all their digits where the column is a DECIMAL.
    """

    def __init__(self, columns: list[Column], column_map: ColumnMap | None = None) -> None:
        self._map = column_map
        self._names = ColumnNames([column.name for column in columns])
        self._left_out: set[str] = set()
        self._doubles = {column.name for column in columns if column.type.name == "DOUBLE"}
        self._exact = any("DECIMAL" in str(column.type) for column in columns)
        self._types = {column.name: column.type for column in columns}
        self._decimals = {column.name for column in columns if column.type.name == "DECIMAL"}
        self._rest = b""
        self._line = 0

    def feed(self, data: bytes, *, last: bool = False) -> Read:
        """Return the rows that are whole with `data`."""
        read = Read()
        for raw in self._lines(data, last):
            self._line += 1
            if not raw.strip():
                continue
            try:
                row = self._row(raw)
            except RecursionError:
                read.refused.append((self._line, "is nested too deeply"))
                continue
            except BadValue as error:
                read.refused.append((self._line, str(error)))
                continue
            except ValueError as error:
                read.refused.append((self._line, f"is not a JSON object: {error}"))
                continue
            self._leave_out(row, read)
            read.rows.append(row)
            read.lines.append(self._line)
        read.bring_times(self._map)
        return read

    def _leave_out(self, row: dict[str, Any], read: Read) -> None:
        """Take out what the stream does not have, with one note for each such name."""
        if row.keys() <= self._names.known:
            return
        for name in [name for name in row if name not in self._names.known]:
            del row[name]
            if name not in self._left_out:
                self._left_out.add(name)
                read.notes.append(left_out_note([name]))

    def _lines(self, data: bytes, last: bool) -> Iterator[bytes]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        yield from whole
        if self._rest and (last or len(self._rest) > LINE_BYTES_MAX):
            rest, self._rest = self._rest, b""
            yield rest

    def _row(self, raw: bytes) -> dict[str, Any]:
        self._beyond = False
        try:
            read = json.loads(raw.decode("utf-8-sig"), parse_float=Decimal if self._exact else self._double)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise BadValue(not_json(error)) from None
        if not isinstance(read, dict):
            raise ValueError(f"it is {_JSON_WORDS[type(read)]}")  # noqa: TRY004
        if any(is_too_deep(value) for value in read.values()):
            raise RecursionError
        row = self._by_columns(read)
        if self._exact:
            row = {name: self._number(name, value) for name, value in row.items()}
        if self._beyond:
            self._refuse_beyond(row)
        for name in self._doubles & row.keys():
            value = row[name]
            if isinstance(value, str):
                row[name] = SPECIAL_FLOATS.get(value, value)
        return row

    def _by_columns(self, row: dict[str, Any]) -> dict[str, Any]:
        """Give values the names of the columns that they fill, as their types decide how they are read. Others keep their names."""
        try:
            if self._map is not None:
                return self._map.row(row)
            if row.keys() <= self._names.known:
                return row
            names = list(row)
            places, extra = self._names.match(names)
        except ValueError as error:
            raise BadValue(str(error)) from None
        return {name: row[name] for name in extra} | {column: row[names[place]] for column, place in places.items()}

    def _double(self, text: str) -> Any:
        """Return the number; of one that a DOUBLE cannot hold the digits, which `_refuse_beyond` finds."""
        value = float(text)
        if math.isfinite(value):
            return value
        self._beyond = True
        return _Beyond(text)

    def _refuse_beyond(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            for one in _leaves(value):
                if isinstance(one, _Beyond) and self._names.meant_by(name) is not None:
                    raise BadValue(f"column {name}: {one[:40]} is out of the range of DOUBLE")

    def _number(self, name: str, value: Any) -> Any:
        if isinstance(value, Decimal) and name not in self._decimals:
            return self._double(str(value))
        return in_parts(value, self._types.get(name, _ANYTHING), self._double) if isinstance(value, list | dict) else value
