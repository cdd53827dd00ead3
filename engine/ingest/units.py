"""Integers in a unit of time as instants (K12): range, rounding down, and a word about times that look like another unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.calendar import INT64_MAX, days_from_civil
from millstream.engine.data.column import Mask
from millstream.engine.data.event_time import NS_PER_US, US_PER_DAY, US_PER_UNIT
from millstream.engine.expressions.values import format_timestamp

UNITS = ("s", "ms", "us", "ns")
OUT_OF_RANGE = "out of the range of TIMESTAMP"
# Data of our days lies here; a time outside it that would lie inside under another unit is worth a warning.
PLAUSIBLE_US = (days_from_civil(1980, 1, 1) * US_PER_DAY, days_from_civil(2100, 1, 1) * US_PER_DAY)


def instants_from_units(values: npt.NDArray[np.int64], unit: str) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """Return microseconds of integers in a unit, and where they leave the range of TIMESTAMP (None: nowhere). `ns` is rounded down."""
    if unit == "ns":
        return values // NS_PER_US, None
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


def _sentence(values: Any, as_other: Any, name: str, unit: str, other: str) -> str:
    read = int(instants_from_units(values[:1], unit)[0][0])
    rows = "1 row has" if len(values) == 1 else f"{len(values)} rows have"
    return (
        f"{rows} an implausible time: {name} = {int(values[0])} with UNIT {unit} is {format_timestamp(read)}; "
        f"with UNIT {other} it would be {format_timestamp(int(as_other[0]))}"
    )
