"""The short ways in: rows and batches whose values are all just what their columns hold.

`QuickRows` is made once per stream, for rows of plain values, which become columns as they are (`CellColumn`); `PlainColumns` once per
publisher's schema, for batches whose buffers are just what columns hold. Each says None for anything odd (NULL, text for a time, a number
out of range, text that is not ASCII or whose offsets lead astray); then the long way (coerce.py) finds out what is what. What they accept
they give as the long way would. ASCII text stays as it came in a payload until somebody reads it: an Arrow array of a train's text takes
longer to make than the train takes to look through, many a query never reads it, and trains that are joined need one array between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import VIEW_DTYPES
from millstream.engine.data.calendar import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, US_PER_DAY
from millstream.engine.data.column import CELLS_MAX, CellColumn, Column, concat_columns
from millstream.engine.data.schema import Schema
from millstream.engine.data.types import TEXT, DataType, Kind
from millstream.engine.ingest.checks import EVENT_TIME_MAX_US
from millstream.engine.state.forms import written_as

ASCII_MAX = 127
OFFSET_BYTES = 4
Extent = tuple[int, int]  # where something starts in the payload, and its bytes


@written_as(Column)
class PlainText(Column):
    """A TEXT column without NULLs whose `values` are made when first asked for; threads that race make the same.

    `ends` are the first and the last of its offsets.
    """

    __slots__ = ("_characters", "_first", "_last", "_offsets", "_payload", "_rows")

    def __init__(self, payload: memoryview, offsets: Extent, characters: Extent, ends: tuple[int, int], rows: int) -> None:
        self.type = TEXT
        self.valid = None
        self._bounds = None
        self._payload = payload
        self._offsets = offsets
        self._characters = characters
        self._first, self._last = ends
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        """Make the values; Python asks here only for what has not been set."""
        if name != "values":
            raise AttributeError(f"{type(self).__name__} has no {name}")
        offsets, characters = (self._payload[start : start + size] for start, size in (self._offsets, self._characters))
        self.values = made = pa.StringArray.from_buffers(self._rows, pa.py_buffer(offsets), pa.py_buffer(characters))
        return made

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, such as a snapshot's, is a column like others: it has no part in the payload."""
        return Column, (self.type, self.values)

    def nbytes(self) -> int:
        """Return the bytes of the characters and offsets."""
        return self._last - self._first + OFFSET_BYTES * self._rows

    @staticmethod
    def joined(columns: Sequence[PlainText]) -> Column:
        """Return the rows of all, one after another, in memory of their own. Together they have less than 2 GiB of characters."""
        rows = sum([len(column) for column in columns])
        offsets = np.zeros(rows + 1, np.int32)
        row = characters = 0
        for column in columns:
            own = np.frombuffer(column._payload, np.int32, column._rows, column._offsets[0] + OFFSET_BYTES)
            np.add(own, characters - column._first, out=offsets[row + 1 : row + 1 + column._rows])
            row += column._rows
            characters += column._last - column._first
        text = b"".join([column._used() for column in columns])
        return Column(TEXT, pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text)))

    def _used(self) -> memoryview:
        start = self._characters[0]
        return self._payload[start + self._first : start + self._last]


def plain_text(payload: memoryview, offsets_at: Extent, characters_at: Extent, rows: int) -> PlainText | None:
    """Return the column, None unless the offsets grow within the characters and these are ASCII."""
    offsets = np.frombuffer(payload, np.int32, rows + 1, offsets_at[0])
    first, last = offsets.item(0), offsets.item(rows)
    if first < 0 or last > characters_at[1] or not np.logical_and.reduce(offsets[1:] >= offsets[:-1]):
        return None
    if last > first and np.maximum.reduce(np.frombuffer(payload, np.uint8, last - first, characters_at[0] + first)) > ASCII_MAX:
        return None
    return PlainText(payload, offsets_at, characters_at, (first, last), rows)


# Of a column: its type, its dtype (None for text), and where its first buffer stands among those of the batch.
Buffers = tuple[DataType, Any, int]


def is_plain(type_: DataType) -> bool:
    """Whether columns of a type can be taken in this way."""
    return type_.kind is Kind.TEXT or (type_.kind in VIEW_DTYPES and type_.kind is not Kind.TIME)  # of which not every integer is one


class PlainColumns:
    """Columns over the memory of a batch, nothing copied.

    `order` gives for each column of the stream its type and its place in the batch.
    """

    def __init__(self, order: Sequence[tuple[DataType, int]], good: Callable[[Sequence[Column], int], bool]) -> None:
        text = {place for type_, place in order if type_.kind is Kind.TEXT}
        self._places: list[Buffers] = [
            (type_, VIEW_DTYPES.get(type_.kind), place + sum(other < place for other in text)) for type_, place in order
        ]
        self._good = good

    def columns(self, payload: memoryview, buffers: Sequence[tuple[int, int]], rows: int) -> list[Column] | None:
        """Return the columns over the memory of `payload`. `buffers`: (start, bytes) of each, for text offsets and characters."""
        columns: list[Column] = []
        for type_, dtype, at in self._places:
            if dtype is not None:
                columns.append(Column(type_, np.frombuffer(payload, dtype, rows, buffers[at][0])))
                continue
            text = plain_text(payload, buffers[at], buffers[at + 1], rows)
            if text is None:
                return None
            columns.append(text)
        return columns if self._good(columns, rows) else None


def joined(parts: Sequence[Column]) -> Column:
    """Return the rows of all parts of one column, one after another."""
    if len(parts) == 1:
        return parts[0]
    texts = [part for part in parts if isinstance(part, PlainText)]
    return PlainText.joined(texts) if len(texts) == len(parts) else concat_columns(list(parts))


QUICK_ROWS_MAX = CELLS_MAX

_TYPES: dict[Kind, type] = {
    Kind.BIGINT: int,
    Kind.INT: int,
    Kind.TIMESTAMP: int,
    Kind.INTERVAL: int,
    Kind.DATE: int,
    Kind.TIME: int,
    Kind.DOUBLE: float,
    Kind.BOOLEAN: bool,
    Kind.TEXT: str,
}
_NO_RANGE = (0, 0)

# (the column's type, the one Python type of its values, least and greatest integer)
_Plan = tuple[DataType, Any, int, int]


class QuickRows:
    """Rows of plain values as columns, nothing converted.

    `time_position` and `unit` are those of the event time, where a column carries it.
    """

    def __init__(self, schema: Schema, time_position: int | None, unit: str | None) -> None:
        self._width = len(schema)
        self._plans: list[_Plan] | None = []
        for position, column_field in enumerate(schema.fields):
            type_ = column_field.type
            is_time = position == time_position
            if type_.kind not in _TYPES or (is_time and (type_.kind is not Kind.TIMESTAMP or unit is not None)):
                self._plans = None
                return
            self._plans.append((type_, _TYPES[type_.kind], *_range_of(type_, is_time)))

    def columns(self, rows: Sequence[Any]) -> list[Column] | None:
        """Return the columns of a few rows, None where that is not simple."""
        if self._plans is None or not 0 < len(rows) <= QUICK_ROWS_MAX:
            return None
        width = self._width
        for row in rows:
            if type(row) is not list or len(row) != width:
                return None
        columns = list(zip(*rows, strict=True))
        try:
            for values, (_, wanted, least, greatest) in zip(columns, self._plans, strict=True):
                for value in values:
                    if type(value) is not wanted:
                        return None
                    if wanted is int:
                        if not least <= value <= greatest:
                            return None
                    elif wanted is str and not value.isascii():
                        value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair: the long way says where
            return None
        return [CellColumn(plan[0], values) for values, plan in zip(columns, self._plans, strict=True)]


def _range_of(type_: DataType, is_time: bool) -> tuple[int, int]:
    """Return the integers that a column takes: INT64_MIN is no TIMESTAMP, and event times keep away from the ends."""
    if is_time:
        return -EVENT_TIME_MAX_US, EVENT_TIME_MAX_US
    if type_.kind in (Kind.INT, Kind.DATE):
        return INT32_MIN, INT32_MAX
    if type_.kind is Kind.TIMESTAMP:
        return INT64_MIN + 1, INT64_MAX
    if type_.kind is Kind.TIME:
        return 0, US_PER_DAY - 1
    return (INT64_MIN, INT64_MAX) if _TYPES[type_.kind] is int else _NO_RANGE
