"""The short way for rows whose values are all just what their columns hold: they become columns as they are (`CellColumn`).

Made once per stream. It says None for rows with anything else in them (NULL, text for a time, a number out of range), and for streams whose
columns always need a closer look; then the long way (coerce.py) finds out what is what. What it accepts it gives as the long way would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.engine.data.calendar import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from millstream.engine.data.column import CELLS_MAX, CellColumn, Column
from millstream.engine.data.schema import Schema
from millstream.engine.data.types import DataType, Kind
from millstream.engine.ingest.checks import EVENT_TIME_MAX_US

QUICK_ROWS_MAX = CELLS_MAX

_TYPES: dict[Kind, type] = {
    Kind.BIGINT: int,
    Kind.INT: int,
    Kind.TIMESTAMP: int,
    Kind.INTERVAL: int,
    Kind.DATE: int,
    Kind.DOUBLE: float,
    Kind.BOOLEAN: bool,
    Kind.TEXT: str,
}
_NO_RANGE = (0, 0)

# (the column's type, the one Python type of its values, least and greatest integer)
_Plan = tuple[DataType, Any, int, int]


class QuickRows:
    """See the module's text. `time_position` and `unit` are those of the event time, where a column carries it."""

    def __init__(self, schema: Schema, time_position: int | None, unit: str | None) -> None:
        self._width = len(schema)
        self._plans: list[_Plan] | None = []
        for position, column_field in enumerate(schema.fields):
            type_ = column_field.type
            is_time = position == time_position
            if type_.kind not in _TYPES or (is_time and (type_.kind is not Kind.TIMESTAMP or unit is not None)):
                self._plans = None
                return
            self._plans.append((type_, _TYPES[type_.kind], *_range_of(type_, is_time)))

    def columns(self, rows: Sequence[Any]) -> list[Column] | None:
        """Return the columns of a few rows, None where that is not simple."""
        if self._plans is None or not 0 < len(rows) <= QUICK_ROWS_MAX:
            return None
        width = self._width
        for row in rows:
            if type(row) is not list or len(row) != width:
                return None
        columns = list(zip(*rows, strict=True))
        try:
            for values, (_, wanted, least, greatest) in zip(columns, self._plans, strict=True):
                for value in values:
                    if type(value) is not wanted:
                        return None
                    if wanted is int:
                        if not least <= value <= greatest:
                            return None
                    elif wanted is str and not value.isascii():
                        value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair: the long way says where
            return None
        return [CellColumn(plan[0], values) for values, plan in zip(columns, self._plans, strict=True)]


def _range_of(type_: DataType, is_time: bool) -> tuple[int, int]:
    """Return the integers that a column takes: INT64_MIN is no TIMESTAMP, and event times keep away from the ends."""
    if is_time:
        return -EVENT_TIME_MAX_US, EVENT_TIME_MAX_US
    if type_.kind in (Kind.INT, Kind.DATE):
        return INT32_MIN, INT32_MAX
    if type_.kind is Kind.TIMESTAMP:
        return INT64_MIN + 1, INT64_MAX
    return (INT64_MIN, INT64_MAX) if _TYPES[type_.kind] is int else _NO_RANGE
