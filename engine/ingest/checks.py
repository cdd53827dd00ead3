"""Checks that hold for every stream whatever the rows came as: NOT NULL, keys of tables, a usable event time (K8, K12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from millstream.engine.data.calendar import INT64_MIN
from millstream.engine.data.column import Column
from millstream.engine.data.event_time import US_PER_UNIT
from millstream.engine.data.schema import Field, StreamDefinition, TableDefinition, TimeRule
from millstream.engine.data.types import TIMESTAMP, Kind
from millstream.engine.ingest.outcome import Coerced, Reasons, Rejection
from millstream.engine.ingest.units import OUT_OF_RANGE, beyond_range, unit_warning

EVENT_TIME_MAX_US = 2**62  # 146,000 years: times and windows up to that long add up within 64 bits
DAYS_MAX = (2**63 - 1) // 86_400_000_000
RawOf = Callable[[int], bytes | str]
LineOf = Callable[[int], int]
Definition = StreamDefinition | TableDefinition


class RowChecks:
    """The checks of one stream or table, prepared once."""

    def __init__(self, definition: Definition) -> None:
        fields = definition.schema.fields
        self._needed = [(i, f) for i, f in enumerate(fields) if is_needed(f, definition)]
        self._instants = [(i, f.name) for i, f in enumerate(fields) if f.type == TIMESTAMP]
        rule = definition.time if isinstance(definition, StreamDefinition) else TimeRule()
        position = None if rule.column is None else definition.schema.position(rule.column)
        # Only an event time in a unit or by days can lie outside TIMESTAMP.
        self._scaled = position if position is not None and fields[position].type != TIMESTAMP else None
        self._time = position
        self._time_name, self._unit = rule.column or "", rule.unit

    def finish(self, columns: Sequence[Column], rows: int, reasons: Reasons, raw_of: RawOf, line_of: LineOf | None = None) -> Coerced:
        """Check the columns of all offered rows, then keep the good rows. `raw_of` and `line_of` tell of a refused row how it came."""
        self._check(columns, reasons)
        kept = reasons.kept()
        if kept is None:
            return Coerced(list(columns), rows, [], self._warnings(columns))
        good = [c.take(kept) for c in columns]
        rejected = [
            Rejection(i, reason, as_bytes(raw_of(i)), None if line_of is None else line_of(i))
            for i, reason in sorted(reasons.by_row.items())
        ]
        return Coerced(good, len(kept), rejected, self._warnings(good), kept)

    def are_good(self, columns: Sequence[Column], rows: int) -> bool:
        """Whether all rows pass."""
        reasons = Reasons(rows)
        self._check(columns, reasons)
        return not reasons.by_row

    def _check(self, columns: Sequence[Column], reasons: Reasons) -> None:
        for position, column_field in self._needed:
            valid = columns[position].validity()
            if valid is not None:
                is_time = column_field.name == self._time_name
                what = f"event time {column_field.name} is NULL" if is_time else f"column {column_field.name} is NOT NULL"
                reasons.add_where(~valid, what)
        for position, name in self._instants:
            column = columns[position]
            if column.bounds()[0] == INT64_MIN:  # kept free for "no time" (K3)
                least = column.values == INT64_MIN
                reasons.add_where(least if column.valid is None else least & column.valid, f"column {name}: {OUT_OF_RANGE}")
        if self._scaled is not None:
            self._check_scaled(columns[self._scaled], reasons)
        if self._time is not None:
            self._check_reach(columns[self._time], reasons)

    def _check_reach(self, column: Column, reasons: Reasons) -> None:
        """Refuse rows so far from 1970 that the bounds of their windows could not be reckoned with."""
        if column.type.kind is Kind.DATE or self._unit == "ns":
            return
        limit = EVENT_TIME_MAX_US // US_PER_UNIT[self._unit or "us"] if column.type.is_integer else EVENT_TIME_MAX_US
        least, most = column.bounds()
        if least < -limit or most > limit:
            far = (column.values > limit) | (column.values < -limit)
            mask = far if column.valid is None else far & column.valid
            reasons.add_where(mask, f"column {self._time_name}: {OUT_OF_RANGE} that events may have")

    def _check_scaled(self, column: Column, reasons: Reasons) -> None:
        """Refuse rows whose event time is in a unit or a DATE that TIMESTAMP does not reach."""
        values = column.values.astype(np.int64)
        if column.type.kind is Kind.DATE:
            reasons.add_where(np.abs(values) > DAYS_MAX, f"column {self._time_name}: {OUT_OF_RANGE}")
        elif self._unit in ("s", "ms"):
            reasons.add_where(beyond_range(values, self._unit), f"column {self._time_name}: {OUT_OF_RANGE}")

    def _warnings(self, columns: Sequence[Column]) -> list[str]:
        """Look for integers that seem to be in another unit than declared."""
        if self._scaled is None or self._unit is None or not columns[self._scaled].type.is_integer:
            return []
        warning = unit_warning(columns[self._scaled].values.astype(np.int64), self._time_name, self._unit)
        return [] if warning is None else [warning]


def finish(columns: Sequence[Column], rows: int, definition: Definition, reasons: Reasons, raw_of: RawOf) -> Coerced:
    """Check columns that were made some other way, such as by INSERT, and keep the good rows."""
    return RowChecks(definition).finish(columns, rows, reasons, raw_of)


def as_bytes(raw: bytes | str) -> bytes:
    """Return a raw row as bytes; halves of surrogate pairs are escaped."""
    return raw if isinstance(raw, bytes) else raw.encode("utf-8", "backslashreplace")


def is_needed(column_field: Field, definition: Definition) -> bool:
    """Tell whether a row without this column is a bad row."""
    if not column_field.nullable:
        return True
    if isinstance(definition, TableDefinition):
        return column_field.name in definition.key
    return column_field.name == definition.time.column
