"""The short way for batches whose buffers are just what columns hold: numbers, times and text without NULLs, of the columns' own types.

Made once per publisher's schema. It says None for a batch with anything odd in it (text that is not ASCII or whose offsets lead astray, an
event time out of reach); then the long way (coerce.py) finds out what is what. What it accepts it gives as the long way would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.arrow import VIEW_DTYPES
from millstream.engine.column import Column
from millstream.engine.types import DataType, Kind

ASCII_MAX = 127
# Of a column: its type, its dtype (None for text), and where its first buffer stands among those of the batch.
Place = tuple[DataType, Any, int]


def is_plain(type_: DataType) -> bool:
    """Whether columns of a type can be taken in this way."""
    return type_.kind is Kind.TEXT or type_.kind in VIEW_DTYPES


class PlainColumns:
    """See the module's text. `order` gives for each column of the stream its type and its place in the batch."""

    def __init__(self, order: Sequence[tuple[DataType, int]], good: Callable[[Sequence[Column], int], bool]) -> None:
        text = {place for type_, place in order if type_.kind is Kind.TEXT}
        self._places: list[Place] = [
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
            text = _ascii(payload, buffers[at], buffers[at + 1], rows)
            if text is None:
                return None
            columns.append(Column(type_, text))
        return columns if self._good(columns, rows) else None


def _ascii(payload: memoryview, offsets_at: tuple[int, int], characters_at: tuple[int, int], rows: int) -> Any:
    """Return text as an Arrow array, None unless its offsets grow within the characters and these are ASCII."""
    offsets = np.frombuffer(payload, np.int32, rows + 1, offsets_at[0])
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > characters_at[1] or not (offsets[1:] >= offsets[:-1]).all():
        return None
    start = characters_at[0]
    if last > first and int(np.frombuffer(payload, np.uint8, last - first, start + first).max()) > ASCII_MAX:
        return None
    return pa.StringArray.from_buffers(
        rows, pa.py_buffer(payload[offsets_at[0] : sum(offsets_at)]), pa.py_buffer(payload[start : sum(characters_at)])
    )
