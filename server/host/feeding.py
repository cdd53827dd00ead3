"""How rows that the server itself makes (late rows, errors, results of INSERT INTO … SELECT) enter their streams.

Live they enter as they come: arrival order is what it is. In virtual time, where nothing takes time, they are held until all that can
run has run, and then enter in the order of the rows that caused them, and for one row in the order in which the queries were made. So
what `millstream run` answers does not depend on trains, policies or workers (K15).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Int64Array

Push = Callable[[str, Sequence[Column], tuple[int, int] | None], None]
"""Lets rows into a stream; with the order of the query that made them and the arrival number of the last row that caused them."""


class Feeder(Protocol):
    """Takes rows for a stream: `seqs` are the arrival numbers of the rows that caused them, `order` is that of the query."""

    def feed(self, stream: str, order: int, seqs: Int64Array, columns: Sequence[Column]) -> None:
        """Take the rows."""
        ...


class DirectFeeder:
    """Lets rows in at once."""

    def __init__(self, push: Push) -> None:
        self._push = push

    def feed(self, stream: str, order: int, seqs: Int64Array, columns: Sequence[Column]) -> None:
        """Let the rows in."""
        self._push(stream, columns, (order, int(seqs[-1])) if len(seqs) else None)


@dataclass(frozen=True, slots=True)
class _Held:
    order: int
    seqs: Int64Array
    columns: Sequence[Column]


class DeferredFeeder:
    """Holds rows until `flush`."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._held: dict[str, list[_Held]] = {}

    def feed(self, stream: str, order: int, seqs: Int64Array, columns: Sequence[Column]) -> None:
        """Hold the rows."""
        self._held.setdefault(stream, []).append(_Held(order, seqs, columns))

    def flush(self) -> bool:
        """Let in what is held; returns whether there was anything."""
        held, self._held = self._held, {}
        for stream in sorted(held):
            self._push(stream, _in_order(held[stream]), None)
        return bool(held)


def _in_order(parts: list[_Held]) -> list[Column]:
    columns = [concat_columns([p.columns[i] for p in parts]) for i in range(len(parts[0].columns))]
    seqs = np.concatenate([p.seqs for p in parts])
    orders = np.concatenate([np.full(len(p.seqs), p.order, dtype=np.int64) for p in parts])
    index = np.lexsort((orders, seqs))
    if np.array_equal(index, np.arange(len(index))):
        return columns
    return [column.take(index) for column in columns]
