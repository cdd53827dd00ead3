"""The short way for batches whose buffers are just what columns hold: numbers, times and text without NULLs, of the columns' own types.

Made once per publisher's schema. It says None for a batch with anything odd in it (text that is not ASCII or whose offsets lead astray, an
event time out of reach); then the long way (coerce.py) finds out what is what. What it accepts it gives as the long way would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from millstream.engine.data.arrow import VIEW_DTYPES
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.types import DataType, Kind
from millstream.engine.ingest.plain_text import PlainText, plain_text

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
