"""Text of ASCII characters that stays as it came in a payload until somebody reads it.

An Arrow array of a train's text takes longer to make than the train takes to look through, many a query never reads it, and trains
that are joined need one array between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.column import Column
from millstream.engine.data.types import TEXT

ASCII_MAX = 127
OFFSET_BYTES = 4
Place = tuple[int, int]  # where something starts in the payload, and its bytes


class PlainText(Column):
    """A TEXT column without NULLs whose `values` are made when first asked for; threads that race make the same.

    `ends` are the first and the last of its offsets.
    """

    __slots__ = ("_characters", "_first", "_last", "_offsets", "_payload", "_rows")

    def __init__(self, payload: memoryview, offsets: Place, characters: Place, ends: tuple[int, int], rows: int) -> None:
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


def plain_text(payload: memoryview, offsets_at: Place, characters_at: Place, rows: int) -> PlainText | None:
    """Return the column, None unless the offsets grow within the characters and these are ASCII."""
    offsets = np.frombuffer(payload, np.int32, rows + 1, offsets_at[0])
    first, last = offsets.item(0), offsets.item(rows)
    if first < 0 or last > characters_at[1] or not np.logical_and.reduce(offsets[1:] >= offsets[:-1]):
        return None
    if last > first and np.maximum.reduce(np.frombuffer(payload, np.uint8, last - first, characters_at[0] + first)) > ASCII_MAX:
        return None
    return PlainText(payload, offsets_at, characters_at, (first, last), rows)
