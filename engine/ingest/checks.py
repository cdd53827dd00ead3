"""What became of offered rows, and the checks that hold for every stream whatever the rows came as (K8, K12).

NULL where NOT NULL was said, keys of tables, and event times that cannot be used are refused. Refused rows keep their reason and raw form;
integers become instants by their unit of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.calendar import INT64_MAX, INT64_MIN, days_from_civil
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.errors import in_place
from millstream.engine.data.event_time import NS_PER_US, US_PER_DAY, US_PER_UNIT, microseconds_of
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, StreamDefinition, TableDefinition, TimeRule
from millstream.engine.data.types import TIMESTAMP, Kind
from millstream.engine.expressions.values import format_timestamp


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused row. `index` is its 0-based place among the rows offered, `line` its 1-based line where the input has lines."""

    index: int
    reason: str
    came_as: Callable[[], bytes | str] = field(compare=False, repr=False)
    line: int | None = None

    @property
    def raw(self) -> bytes:
        """The row as it came: the bytes of a CSV record or JSON line, JSON for what came as Arrow or plain values.

        It is made when it is asked for, since only an error output wants it, and it costs more than the refusal.
        """
        return as_bytes(self.came_as())


@dataclass(slots=True)
class Coerced:
    """The accepted rows as columns of the schema (`rows` of them, in its order), the refused ones, and warnings about all of them.

    `index` gives the place of each accepted row among those offered (None: all were accepted). `ignored` names input columns that the
    schema does not have. `warnings` are sentences for the user that refuse nothing, such as event times that look like another unit.
    """

    columns: list[Column]
    rows: int
    rejected: list[Rejection] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    index: npt.NDArray[np.int64] | None = None
    ignored: tuple[str, ...] = ()


class Reasons:
    """Why rows of one batch are bad; the first reason of a row stands."""

    __slots__ = ("by_row", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.by_row: dict[int, str] = {}

    def add(self, index: int, reason: str) -> None:
        """Refuse one row."""
        self.by_row.setdefault(index, reason)

    def add_failed(self, failed: dict[int, str], column: str) -> None:
        """Refuse rows because of a column, whose name goes before the reason."""
        for index, reason in failed.items():
            self.by_row.setdefault(index, f"column {in_place(column, reason)}")

    def add_where(self, mask: Mask, reason: str) -> None:
        """Refuse all rows where the mask is true, for one reason."""
        for index in np.flatnonzero(mask).tolist():
            self.by_row.setdefault(index, reason)

    def kept(self) -> npt.NDArray[np.int64] | None:
        """Return the places of the rows without a reason, None when no row has one."""
        if not self.by_row:
            return None
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[list(self.by_row)] = False
        return np.flatnonzero(mask)


Failed = dict[int, str]
Converted = tuple[Column, Failed]


def failed_at(mask: Any, reason: str) -> Failed:
    """Return the same reason for every row where the mask is true."""
    return dict.fromkeys(np.flatnonzero(mask).tolist(), reason)


UNITS = ("s", "ms", "us", "ns")
OUT_OF_RANGE = "out of the range of TIMESTAMP"
# Data of our days lies here; a time outside it that would lie inside under another unit is worth a warning.
PLAUSIBLE_US = (days_from_civil(1980, 1, 1) * US_PER_DAY, days_from_civil(2100, 1, 1) * US_PER_DAY)


def instants_from_units(values: npt.NDArray[np.int64], unit: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """Return microseconds of integers in a unit, and where they leave the range of TIMESTAMP (None: nowhere). `ns` rounds half to even."""
    if unit == "ns":
        return microseconds_of(values), None
    factor = US_PER_UNIT[unit]
    if factor == 1:
        return values, None
    bad = beyond_range(values, unit)
    if not bad.any():
        return values * factor, None
    return np.where(bad, 0, values) * factor, bad


def beyond_range(values: npt.NDArray[np.int64], unit: str) -> Mask:
    """Return where integers in s, ms or us name instants that no TIMESTAMP holds."""
    limit = INT64_MAX // US_PER_UNIT[unit]
    mask: Mask = (values > limit) | (values < -limit)
    return mask


def unit_warning(values: npt.NDArray[np.int64], name: str, unit: str) -> str | None:
    """Return a warning when integers look as if they were in another unit than declared, else None.

    Times before 1980 or from 2100 on are ordinary as such; only those that fall between under another unit are named (C27).
    """
    low, high = PLAUSIBLE_US
    times, _ = instants_from_units(values, unit)
    odd = (times < low) | (times >= high)
    if not odd.any():
        return None
    suspects = values[odd]
    for other in UNITS:
        if other == unit:
            continue
        as_other, bad = instants_from_units(suspects, other)
        fits = (as_other >= low) & (as_other < high) & (True if bad is None else ~bad)
        if fits.any():
            return _sentence(suspects[fits], as_other[fits], name, unit, other)
    return None


NESTED_HINT = "declare the column JSON, a STRUCT or a LIST, or give its parts columns of their own"
DIGITS_MAX = 20  # of a number that might be a time; an exponent may name any number of digits


def unit_needed(number: object) -> str:
    """Return the reason why a bare number is no instant, with the unit in which it would be a time of our days (K12)."""
    exact = Decimal(str(number))
    value = int(exact) if exact.is_finite() and exact.adjusted() < DIGITS_MAX else 0
    low, high = PLAUSIBLE_US
    shown = str(number) if len(str(number)) <= 40 else str(number)[:37] + "..."
    for unit in UNITS:
        us = value // NS_PER_US if unit == "ns" else value * US_PER_UNIT[unit]
        if low <= us < high:
            rounded = " ROUND" if unit == "ns" else ""
            return (
                f"{shown} is a number without a unit: as {unit} it would be {format_timestamp(us)}; declare the column BIGINT with "
                f"TIMESTAMP BY … UNIT {unit}{rounded}, write the time as text, or say what it counts: --time-format {unit} "
                f"for a file, time_unit = '{unit}' for a source"
            )
    return f"{shown} is a number without a unit: declare the column BIGINT with TIMESTAMP BY … UNIT s, ms or us, or write the time as text"


def _sentence(values: Any, as_other: Any, name: str, unit: str, other: str) -> str:
    read = int(instants_from_units(values[:1], unit)[0][0])
    rows = "1 row has" if len(values) == 1 else f"{len(values)} rows have"
    return (
        f"{rows} an implausible time: {name} = {int(values[0])} with UNIT {unit} is {format_timestamp(read)}; "
        f"with UNIT {other} it would be {format_timestamp(int(as_other[0]))}"
    )


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
            Rejection(i, reason, partial(raw_of, i), None if line_of is None else line_of(i))
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
    """Return the good rows of columns that were made some other way, such as by INSERT, and the refused ones with their reasons."""
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
