"""The event time of rows (K12): units of bare integers, rounding, range, and a word about times that look like another unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.column import Column, Mask
from millstream.engine.expressions.calendar import INT64_MAX, INT64_MIN, US_PER_DAY
from millstream.engine.expressions.dates import days_of
from millstream.engine.expressions.values import format_timestamp
from millstream.engine.ingest.result import Converted, failed_at
from millstream.engine.schema import TimeRule
from millstream.engine.types import TIMESTAMP, Kind

NS_PER_US = 1_000
UNIT_FACTORS_US: dict[str, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
UNITS = ("s", "ms", "us", "ns")


def _year_start_us(year: int) -> int:
    return int(days_of(np.int64(year), np.int64(1), np.int64(1))) * US_PER_DAY


# Data of our days lies here; a time outside it that would lie inside under another unit is worth a warning.
PLAUSIBLE_US = (_year_start_us(1980), _year_start_us(2100))


def instants_from_units(values: npt.NDArray[np.int64], unit: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """Return microseconds of integers in a unit, and where they leave the range of TIMESTAMP (None: nowhere).

    Nanoseconds are rounded to the nearest microsecond, half up.
    """
    if unit == "ns":
        whole, rest = np.divmod(values, NS_PER_US)
        return whole + (rest >= NS_PER_US // 2), None
    factor = UNIT_FACTORS_US[unit]
    limit = INT64_MAX // factor
    bad: Mask | None = (values > limit) | (values < -limit)
    if bad is None or not bad.any():
        return values * factor, None
    return np.where(bad, 0, values) * factor, bad


def times_of(column: Column, rule: TimeRule) -> Converted:
    """Return the event times of the column that carries them as a TIMESTAMP column; rows out of range are named."""
    kind = column.type.kind
    if kind is Kind.TIMESTAMP:
        outside = column.values == INT64_MIN
        return column, failed_at(outside, "out of the range of TIMESTAMP") if outside.any() else {}
    if kind is Kind.DATE:
        return _from_units(column, US_PER_DAY)
    values, bad = instants_from_units(column.values.astype(np.int64), rule.unit or "us")
    times = Column(TIMESTAMP, values, column.valid)
    return times, {} if bad is None else _out_of_range(column, bad, rule.unit)


def _from_units(column: Column, factor: int) -> Converted:
    days = column.values.astype(np.int64)
    bad = np.abs(days) > INT64_MAX // factor
    times = Column(TIMESTAMP, np.where(bad, 0, days) * factor, column.valid)
    return times, failed_at(bad, "out of the range of TIMESTAMP") if bad.any() else {}


def _out_of_range(column: Column, bad: Mask, unit: str | None) -> dict[int, str]:
    if column.valid is not None:
        bad = bad & column.valid
    return {i: f"{int(column.values[i])} {unit} is out of the range of TIMESTAMP" for i in np.flatnonzero(bad).tolist()}


def unit_warning(values: npt.NDArray[np.int64], times_us: npt.NDArray[np.int64], name: str, unit: str) -> str | None:
    """Return a warning when integers look as if they were in another unit than declared, else None.

    Times before 1980 or from 2100 on are ordinary as such; only those that fall between under another unit are named.
    """
    low, high = PLAUSIBLE_US
    odd = (times_us < low) | (times_us >= high)
    if not odd.any():
        return None
    suspects = values[odd]
    for other in UNITS:
        if other == unit:
            continue
        as_other, bad = instants_from_units(suspects, other)
        fits = (as_other >= low) & (as_other < high) & (True if bad is None else ~bad)
        if fits.any():
            return _sentence(int(fits.sum()), suspects[fits], as_other[fits], (name, unit, other))
    return None


def _sentence(count: int, values: Any, as_other: Any, names: tuple[str, str, str]) -> str:
    name, unit, other = names
    value = int(values[0])
    read = int(instants_from_units(np.array([value]), unit)[0][0])
    rows = "1 row has" if count == 1 else f"{count} rows have"
    return (
        f"{rows} an implausible time: {name} = {value} with UNIT {unit} is {format_timestamp(read)}; "
        f"with UNIT {other} it would be {format_timestamp(int(as_other[0]))}"
    )
