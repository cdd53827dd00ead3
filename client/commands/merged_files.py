"""Rows of several files in one order, that of their event times, read as they are sent: for `millstream publish a.csv b.csv`.

Each file keeps its own order. Of the rows that are next in each file, the one with the least event time comes first, at equal times the
file that was named first: the rule of `millstream run` (server/run/order.py). A row that goes back in time, or whose time cannot be read,
comes as soon as the row before it has.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import Any, NamedTuple


class PlacedRow(NamedTuple):
    """A row with the time that orders it, and where it stands."""

    time: float
    file: str
    line: int
    row: dict[str, Any]


def merged(files: Iterable[Iterator[PlacedRow]]) -> Iterator[PlacedRow]:
    """Return the rows of all files in their common order. Of each file one row is held."""
    return merge(*files, key=attrgetter("time"))


def placed(file: str, rows: Iterable[tuple[int, dict[str, Any]]], column: str | None) -> Iterator[PlacedRow]:
    """Yield the rows of one file, given with their lines, timed by `column`; without one, they all come at once."""
    latest = -math.inf
    for line, row in rows:
        if column is not None:
            latest = max(latest, time_of(row.get(column)))
        yield PlacedRow(latest, file, line, row)


def time_of(value: Any) -> float:
    """Return a number that orders a time as the stream reads it: seconds, or what a number counts; the least where it is no time."""
    if isinstance(value, str):
        try:
            found = dt.datetime.fromisoformat(value)
        except ValueError:
            return float(value) if value.strip().lstrip("+-").isdecimal() else -math.inf
        return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).timestamp()
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value == value else -math.inf
