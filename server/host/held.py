"""Rows that are held beyond what queries have yet to read, as an answer at once (FETCH) is made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """Rows that stand at the arrival number `seq`, or a control item of the stream (`columns` None): its end, or what a clock did."""

    seq: int
    columns: Sequence[Column] | None
    control: Any = None


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows of one input. `missing` counts older ones that are held no longer."""

    definition: StreamDefinition
    position: int
    blocks: Callable[[], Iterator[HeldBlock]]
    missing: int = 0


@dataclass(slots=True)
class KeptResults:
    """What a query's result log keeps: (position, batch) each, and the number of rows before the first of them."""

    entries: list[tuple[int, Any]] = field(default_factory=list)
    missing: int = 0


def rows_in(columns: Sequence[Column]) -> int:
    """Return the number of rows."""
    return len(columns[0]) if columns else 0


def slices(columns: Sequence[Column], rows_max: int) -> Iterator[list[Column]]:
    """Cut columns into pieces of at most `rows_max` rows."""
    for start in range(0, rows_in(columns), rows_max):
        yield [c.slice(start, min(start + rows_max, rows_in(columns))) for c in columns]
