"""Values of every type, the awkward ones first, as Python holds them and as JSON shows them.

INT and BIGINT are int, DECIMAL is Decimal, TIMESTAMP and TIME are int (microseconds), DATE is int (days), the others are what they are.
"""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

INT, BIGINT, DOUBLE, DECIMAL = "INT", "BIGINT", "DOUBLE", "DECIMAL(12,2)"
TEXT, BOOLEAN, TIMESTAMP, DATE = "TEXT", "BOOLEAN", "TIMESTAMP", "DATE"
BYTES, TIME = "BYTES", "TIME"
TYPES = (INT, BIGINT, DOUBLE, DECIMAL, TEXT, BOOLEAN, TIMESTAMP, BYTES, TIME, DATE)
SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

COMMON: dict[str, list[Any]] = {
    INT: [0, 1, -1, 2, 5, 7],
    BIGINT: [0, 1, -3, 4, 10],
    DOUBLE: [0.0, -0.0, 1.5, -2.25, 3.0, float("nan")],
    DECIMAL: [Decimal(x) for x in ("0.00", "1.50", "-2.25", "0.05", "3.00")],
    TEXT: ["a", "b", "", "ab", "A"],
    BOOLEAN: [True, False],
    TIMESTAMP: [0, -1, 1_772_946_000_000_000, 3_600_000_000],
    DATE: [0, -1, 20_520, 31],
    BYTES: [b"", b"a", b"ab", b"\x00", b"\xff\x00"],
    TIME: [0, 3_600 * SECOND, 43_200 * SECOND + 1, DAY - 1],
}
EXTREME: dict[str, list[Any]] = {
    INT: [2**31 - 1, -(2**31)],
    BIGINT: [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1],
    DOUBLE: [float("inf"), float("-inf"), 1e300, 5e-324, 0.1],
    DECIMAL: [Decimal("9999999999.99"), Decimal("-9999999999.99")],
    TEXT: ["é", "e\u0301", "👩‍🚀", "字段", "%_\\", "O'Hara", 'say "hi"'],
    BOOLEAN: [True],
    TIMESTAMP: [-11_676_096_000_000_000, 253_402_300_799_999_999],
    DATE: [-135_140, 2_932_896],
    BYTES: [bytes(range(256)), "é".encode()],
    TIME: [86_399 * SECOND, 59_999_999],
}


def random_value(choice: random.Random, kind: str) -> Any:
    """A value of a type: often a common one, so that equal ones meet, sometimes NULL, sometimes an extreme."""
    turn = choice.random()
    if turn < 0.12:
        return None
    return choice.choice(EXTREME[kind] if turn < 0.24 else COMMON[kind])


def as_json(value: Any, kind: str) -> Any:
    """How a timeline's row writes the value."""
    if value is None:
        return None
    if kind == TIMESTAMP:
        return (EPOCH + datetime.timedelta(microseconds=value)).isoformat()
    if kind == DATE:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=value)).isoformat()
    if kind == DECIMAL:
        return str(value)
    if kind == BYTES:
        return "\\x" + value.hex()
    if kind == TIME:
        return time_text(value)
    return shown(value)


def time_text(us: int) -> str:
    """A time of day as it is written."""
    return (EPOCH + datetime.timedelta(microseconds=us)).time().isoformat()


def shown(value: Any) -> Any:
    """What an answer of either side comes down to, so that equal answers are equal objects: floats that are special as text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else str(value) if math.isinf(value) else value + 0.0
    if isinstance(value, list | tuple):
        return [shown(v) for v in value]
    if isinstance(value, dict):
        return {name: shown(v) for name, v in value.items()}
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * SECOND + value.microsecond
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return value


def key_of(value: Any) -> Any:
    """K7: one zero, one NaN; NULL is a value of its own, TRUE is not 1."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None
    if isinstance(value, dict):
        return tuple(key_of(part) for part in value.values())
    if isinstance(value, list | tuple):
        return tuple(key_of(item) for item in value)
    return type(value) is bool, value


def is_nan(value: Any) -> bool:
    """Whether the value is a NaN."""
    return isinstance(value, float) and math.isnan(value)


class Order:
    """Makes values of one type comparable: NaN above all numbers, text by code point."""

    def __init__(self, value: Any) -> None:
        self.key = (1, 0) if is_nan(value) else (0, value)

    def __lt__(self, other: Order) -> bool:
        return self.key < other.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
