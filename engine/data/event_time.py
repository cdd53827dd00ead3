"""Event time of the rows of one chunk, from the time column or from arrival (K3, K12)."""

from __future__ import annotations

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.schema import StreamDefinition, TimeRule
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import DataType, Kind
from millstream.engine.data.watermarks import TIME_MIN

US_PER_DAY = 86_400_000_000
US_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
NS_PER_US = 1_000


def time_position(definition: StreamDefinition) -> int | None:
    """Return the position of the time column, None for TIMESTAMP BY ARRIVAL. InvalidDefinition when it cannot carry event time."""
    rule = definition.time
    if rule.column is None:
        return None
    position = definition.schema.position(rule.column)
    if position is None:
        raise InvalidDefinition(f"stream {definition.name} has no column {rule.column} to take event time from")
    type_ = definition.schema.fields[position].type
    if type_.kind in (Kind.TIMESTAMP, Kind.DATE):
        return position
    if not type_.is_integer:
        raise InvalidDefinition(f"column {rule.column} of type {type_} cannot carry event time")
    if rule.unit is None:
        raise InvalidDefinition(f"the integer column {rule.column} needs a unit", hint="add UNIT s, ms, us or ns ROUND")
    if rule.unit == "ns" and not rule.unit_round:
        raise InvalidDefinition("event times are whole microseconds", hint="write UNIT ns ROUND to round to them")
    return position


def event_times(column: Column, rule: TimeRule) -> Int64Array:
    """Return event times in µs. The column holds no NULL and no value whose time does not fit int64: ingest has refused those."""
    values = column.values
    if column.type.kind is Kind.TIMESTAMP:
        times: Int64Array = values
        return times
    wide = values.astype(np.int64)
    return microseconds_of(wide) if rule.unit == "ns" and column.type.is_integer else wide * _scale(column.type, rule)


def event_time(value: int, type_: DataType, rule: TimeRule) -> int:
    """Return the event time in µs that a value of the time column would have, though it be far beyond what ingest lets in."""
    if rule.unit == "ns" and type_.is_integer:
        return int(microseconds_of(np.array([value]))[0])
    return value if type_.kind is Kind.TIMESTAMP else value * _scale(type_, rule)


def _scale(type_: DataType, rule: TimeRule) -> int:
    return US_PER_DAY if type_.kind is Kind.DATE else US_PER_UNIT[rule.unit or "us"]


def microseconds_of(nanoseconds: Int64Array) -> Int64Array:
    """Return whole microseconds, rounded half to even (K12)."""
    whole, rest = np.divmod(nanoseconds, NS_PER_US)
    rounded: Int64Array = whole + ((rest > NS_PER_US // 2) | ((rest == NS_PER_US // 2) & (whole % 2 == 1)))
    return rounded


def moving_times(times: Int64Array, skew_us: int | None, now_us: int) -> tuple[Int64Array, int]:
    """Return the times that may move W (TIME_MIN where a row is further ahead of the clock than SKEW allows), and how many may not."""
    if skew_us is None or len(times) == 0 or int(times.max()) <= now_us + skew_us:
        return times, 0
    ahead = times > now_us + skew_us
    return np.where(ahead, TIME_MIN, times), int(np.count_nonzero(ahead))
