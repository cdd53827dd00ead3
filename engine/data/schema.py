"""Fields, schemas, and the definition of a stream or table as CREATE states it."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.state.forms import state_record


@state_record("field", 1)
@dataclass(frozen=True, slots=True)
class Field:
    """One column: its name as shown to the user, its type, whether NULL may occur."""

    name: str
    type: DataType
    nullable: bool = True


@state_record("schema", 1)
@dataclass(frozen=True, slots=True)
class Schema:
    """The ordered columns of a train. Operators address columns by position; names serve people and clients."""

    fields: tuple[Field, ...]
    no_rows: list[Any] | None = field(default=None, init=False, repr=False, compare=False)
    """The columns of trains without rows, which share them (`train.empty_train`)."""

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(f.name for f in self.fields)

    def first(self, width: int) -> Schema:
        """Return the schema of the first columns: itself where there are no more."""
        return self if width >= len(self.fields) else Schema(self.fields[:width])

    def position(self, name: str) -> int | None:
        """Return the position of the column called `name`, or None."""
        for i, f in enumerate(self.fields):
            if f.name == name:
                return i
        return None


class OnError(Enum):
    """What a stream does with a row it cannot take (K8)."""

    DROP = "DROP"
    FAIL = "FAIL"
    INTO = "INTO"


@dataclass(frozen=True, slots=True)
class TimeRule:
    """How a stream's event time comes about and how its watermark follows (K3, K12, K14). Times in microseconds.

    `column` None means TIMESTAMP BY ARRIVAL. `skew_us` is how far ahead of the processing clock a row may be before it
    no longer moves the watermark; `idle_us` the silence after which the input no longer holds W back; `idle_flush` whether
    that silence also closes its open windows.
    """

    column: str | None = None
    unit: str | None = None
    unit_round: bool = False
    zone: str | None = None
    delay_us: int = 0
    skew_us: int | None = None
    idle_us: int | None = None
    idle_flush: bool = False


@dataclass(frozen=True, slots=True)
class ArchiveRule:
    """Where a stream's history is kept: below the URI `into` (None: under the data directory), a folder a day of event time, how long."""

    into: str | None = None
    by_day: bool = False
    keep_days: int | None = None


ARCHIVE_COLUMNS = ("_arrival", "_watermark", "_arrived_at")
"""What an archive adds to a stream's columns: arrival number, W before the row, processing time of its coming."""


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """What CREATE STREAM states."""

    name: str
    schema: Schema
    time: TimeRule = field(default_factory=TimeRule)
    late_into: str | None = None
    on_error: OnError = OnError.DROP
    errors_into: str | None = None
    durability: str = "none"
    rate_per_second_max: float | None = None
    archive: ArchiveRule | None = None
    added: int = 0
    """How many columns ALTER STREAM has put behind those of CREATE STREAM: rows may come without them, and are NULL there."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What CREATE TABLE states: a stored relation with a primary key."""

    name: str
    schema: Schema
    key: tuple[str, ...]
    file: str | None = None
    durability: str = "none"
    fresh_min: float | None = None
    """Of a table that is polled: for which share of the time it should hold what the file holds, 0 for no share; None: not polled."""
