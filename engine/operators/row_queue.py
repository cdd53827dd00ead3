"""Rows that leave in the order in which they came: a queue of chunks, cut at the front without copying what stays."""

from __future__ import annotations

from collections import deque

import numpy as np
from millstream.engine.data.buffered import BufferedRows, no_rows
from millstream.engine.data.schema import Schema
from millstream.engine.operators.intake import joined_rows

CHUNK_ROWS = 1024  # smaller chunks are joined, so that a queue fed row by row stays short


class RowQueue:
    """Rows in order of event time."""

    def __init__(self, inputs: Schema) -> None:
        self._nothing = no_rows(inputs)
        self._chunks: deque[BufferedRows] = deque()
        self._small: list[BufferedRows] = []  # not joined yet
        self._rows = 0

    def __len__(self) -> int:
        """Return the rows held."""
        return self._rows

    @property
    def oldest_us(self) -> int | None:
        """The event time at the front."""
        first = self._chunks[0] if self._chunks else (self._small[0] if self._small else None)
        return None if first is None else int(first.time[0])

    def push(self, rows: BufferedRows) -> None:
        """Append rows, none earlier than the last."""
        if not len(rows):
            return
        self._rows += len(rows)
        self._small.append(rows.copied())
        if sum(len(r) for r in self._small) >= CHUNK_ROWS or len(self._small) >= CHUNK_ROWS // 16:
            self._chunks.append(joined_rows(self._small))
            self._small = []

    def pop(self, upto_us: int) -> BufferedRows:
        """Take the rows with an event time at or before `upto_us`."""
        taken: list[BufferedRows] = []
        while self._chunks and int(self._chunks[0].time[0]) <= upto_us:
            taken.append(self._cut(self._chunks, upto_us))
        while not self._chunks and self._small and int(self._small[0].time[0]) <= upto_us:
            small = deque(self._small)
            taken.append(self._cut(small, upto_us))
            self._small = list(small)
        self._rows -= sum(len(t) for t in taken)
        return joined_rows(taken) if taken else self._nothing

    def _cut(self, chunks: deque[BufferedRows], upto_us: int) -> BufferedRows:
        first = chunks.popleft()
        stop = int(np.searchsorted(first.time, upto_us, side="right"))
        if stop < len(first):
            chunks.appendleft(first.slice(stop, len(first)))
        return first.slice(0, stop)

    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return sum(c.nbytes() for c in (*self._chunks, *self._small))
