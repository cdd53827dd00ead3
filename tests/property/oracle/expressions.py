"""Random typed expressions: the SQL text and what it comes to for a row (None is NULL), by K6, K8 and K13."""

from __future__ import annotations

import base64
import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from millstream.engine.data.calendar import INT64_MAX, civil_from_days, days_from_civil, days_in_month

from tests.property.oracle.values import (
    BIGINT,
    BOOLEAN,
    BYTES,
    COMMON,
    DATE,
    DAY,
    DECIMAL,
    DOUBLE,
    INT,
    SECOND,
    TEXT,
    TIME,
    TIMESTAMP,
    TYPES,
    Order,
    is_nan,
    time_text,
)

Row = dict[str, Any]
Columns = list[tuple[str, str]]
EXACT = Context(prec=100)
WHOLE = (INT, BIGINT)


@dataclass(frozen=True)
class Expr:
    """`value` gives the expression's value for a row."""

    sql: str
    type: str
    value: Callable[[Row], Any]


def strict(function: Callable[..., Any], *parts: Expr) -> Callable[[Row], Any]:
    """A function that is NULL when an argument is."""

    def value(row: Row) -> Any:
        given = [p.value(row) for p in parts]
        return None if any(g is None for g in given) else function(*given)

    return value


def column(name: str, kind: str) -> Expr:
    return Expr(name, kind, lambda row: row[name])


def literal(value: Any, kind: str) -> Expr:
    """A constant, written so that it has the type."""
    text = f"'{str(value).replace(chr(39), chr(39) * 2)}'" if isinstance(value, str) else str(value)
    if kind == DOUBLE:
        text = (
            f"CAST('{'NaN' if is_nan(value) else value}' AS DOUBLE)"
            if is_nan(value) or math.isinf(value)
            else f"{value!r}e0".replace("e+", "e")
        )
        text = text if text.count("e") == 1 or "CAST" in text else repr(value)
    elif kind == BOOLEAN:
        text = "TRUE" if value else "FALSE"
    elif kind == BYTES:
        text = f"x'{value.hex()}'"
    elif kind == TIME:
        text = f"TIME '{time_text(value)}'"
    return Expr(f"({text})" if text.startswith("-") else text, kind, lambda row: value)


def _fits(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def _quotient(a: int, b: int) -> int | None:
    return None if b == 0 else _fits(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def _rest(a: int, b: int) -> int | None:
    return None if b == 0 else int(math.copysign(abs(a) % abs(b), a)) if abs(a) < 2**52 else (abs(a) % abs(b)) * (1 if a >= 0 else -1)


def _double(operator: str) -> Callable[[float, float], float | None]:
    def value(a: float, b: float) -> float | None:
        if operator == "/":
            return None if b == 0 else _ieee_quotient(a, b)
        return a + b if operator == "+" else a - b if operator == "-" else a * b

    return value


def _ieee_quotient(a: float, b: float) -> float:
    try:
        return a / b
    except OverflowError:
        return math.copysign(math.inf, a) * math.copysign(1, b)


def _decimal(operator: str) -> Callable[[Decimal, Decimal], Decimal | None]:
    def value(a: Decimal, b: Decimal) -> Decimal | None:
        if operator == "/":
            return None if b == 0 else EXACT.divide(a, b).quantize(Decimal("0.000001"), ROUND_HALF_UP, EXACT)
        return EXACT.add(a, b) if operator == "+" else EXACT.subtract(a, b) if operator == "-" else EXACT.multiply(a, b)

    return value


def compared(operator: str, a: Any, b: Any) -> bool:
    """As PostgreSQL compares: NaN equals itself and is above every number."""
    x, y = Order(a), Order(b)
    return {"=": x == y, "<>": x != y, "<": x < y, "<=": not y < x, ">": y < x, ">=": not x < y}[operator]


class Maker:
    """Makes expressions over some columns."""

    def __init__(self, choice: random.Random, columns: Columns) -> None:
        self.choice = choice
        self.columns = columns

    def make(self, kind: str, depth: int = 2) -> Expr:
        """An expression of a type; INT may come out as BIGINT."""
        own = [c for c in self.columns if c[1] == kind]
        if depth == 0 or self.choice.random() < 0.3:
            if own and self.choice.random() < 0.8:
                return column(*self.choice.choice(own))
            if kind in (TIMESTAMP, DATE):
                return column(*own[0]) if own else self._null(kind)
            return literal(self.choice.choice(COMMON[kind]), kind)
        if self.choice.random() < 0.25:
            return self._any(kind, depth - 1)
        return {
            INT: self._whole, BIGINT: self._whole, DOUBLE: self._floating, DECIMAL: self._decimal, TEXT: self._text,
            BOOLEAN: self.condition,
            TIMESTAMP: self._instant, DATE: self._date, BYTES: self._bytes, TIME: self._time,
        }[kind](depth - 1)  # fmt: skip

    def _null(self, kind: str) -> Expr:
        return Expr(f"CAST(NULL AS {kind})", kind, lambda row: None)

    def _any(self, kind: str, depth: int) -> Expr:
        """CASE, COALESCE, NULLIF, GREATEST and LEAST, of any type."""
        way = self.choice.choice(["case", "coalesce", "nullif", "greatest", "least"])
        a, b = self.make(kind, depth), self.make(kind, depth)
        both = BIGINT if BIGINT in (a.type, b.type) else a.type
        if way == "case":
            when = self.condition(depth)
            other = self.choice.random() < 0.7
            end = f" ELSE {b.sql}" if other else ""
            return Expr(
                f"CASE WHEN {when.sql} THEN {a.sql}{end} END",
                both if other else a.type,
                lambda row: a.value(row) if when.value(row) else b.value(row) if other else None,
            )
        if way == "coalesce":
            return Expr(f"COALESCE({a.sql}, {b.sql})", both, lambda row: x if (x := a.value(row)) is not None else b.value(row))
        if way == "nullif":
            return Expr(f"NULLIF({a.sql}, {b.sql})", a.type, lambda row: self._nullif(a.value(row), b.value(row)))
        sign = way == "greatest"
        return Expr(f"{way.upper()}({a.sql}, {b.sql})", both, lambda row: self._most([a.value(row), b.value(row)], sign))

    @staticmethod
    def _nullif(a: Any, b: Any) -> Any:
        return None if a is not None and b is not None and compared("=", a, b) else a

    @staticmethod
    def _most(values: list[Any], greatest: bool) -> Any:
        given = [v for v in values if v is not None]
        return (max if greatest else min)(given, key=Order) if given else None

    def _whole(self, depth: int) -> Expr:
        way = self.choice.choice(["+", "-", "*", "/", "%", "abs", "neg", "length", "cast", "sign", "bytes", "clock"])
        if way == "bytes":
            data = self.make(BYTES, depth)
            return Expr(f"LENGTH({data.sql})", BIGINT, strict(len, data))
        if way == "clock":
            clock = self.make(TIME, depth)
            return Expr(f"EXTRACT(MINUTE FROM {clock.sql})", BIGINT, strict(lambda v: v // (60 * SECOND) % 60, clock))
        if way == "length":
            text = self.make(TEXT, depth)
            return Expr(f"LENGTH({text.sql})", BIGINT, strict(len, text))
        if way == "cast":
            number = self.make(DECIMAL, 0)
            return Expr(f"CAST({number.sql} AS BIGINT)", BIGINT, strict(lambda v: int(v.to_integral_value(ROUND_HALF_UP)), number))
        a = self.make(self.choice.choice(WHOLE), depth)
        if way == "abs":
            return Expr(f"ABS({a.sql})", BIGINT, strict(lambda v: _fits(abs(v)), a))
        if way == "neg":
            return Expr(f"(-({a.sql}))", BIGINT, strict(lambda v: _fits(-v), a))
        if way == "sign":
            return Expr(f"SIGN({a.sql})", INT, strict(lambda v: (v > 0) - (v < 0), a))
        b = self.make(self.choice.choice(WHOLE), depth)
        do: dict[str, Callable[[int, int], int | None]] = {
            "+": lambda x, y: _fits(x + y), "-": lambda x, y: _fits(x - y), "*": lambda x, y: _fits(x * y), "/": _quotient, "%": _rest,
        }  # fmt: skip
        return Expr(f"({a.sql} {way} {b.sql})", BIGINT, strict(do[way], a, b))

    def _floating(self, depth: int) -> Expr:
        way = self.choice.choice(["+", "-", "*", "/", "abs", "neg", "mixed"])
        a = self.make(DOUBLE, depth)
        if way == "abs":
            return Expr(f"ABS({a.sql})", DOUBLE, strict(abs, a))
        if way == "neg":
            return Expr(f"(-({a.sql}))", DOUBLE, strict(lambda v: -v, a))
        if way == "mixed":
            b = self.make(self.choice.choice([INT, DECIMAL]), 0)
            return Expr(f"({b.sql} + {a.sql})", DOUBLE, strict(lambda x, y: float(y) + x, a, b))
        b = self.make(DOUBLE, depth)
        return Expr(f"({a.sql} {way} {b.sql})", DOUBLE, strict(_double(way), a, b))

    def _decimal(self, depth: int) -> Expr:
        """One operation of two columns or constants, so that scales stay what K13 says of DECIMAL(12, 2)."""
        way = self.choice.choice(["+", "-", "abs", "greatest"])
        a, b = self.make(DECIMAL, 0), self.make(DECIMAL, 0)
        if way == "abs":
            return Expr(f"ABS({a.sql})", DECIMAL, strict(abs, a))
        if way == "greatest":
            return Expr(f"GREATEST({a.sql}, {b.sql})", DECIMAL, lambda row: self._most([a.value(row), b.value(row)], True))
        return Expr(f"({a.sql} {way} {b.sql})", DECIMAL, strict(_decimal(way), a, b))

    def _text(self, depth: int) -> Expr:
        way = self.choice.choice(["||", "upper", "substring", "replace", "cast", "concat", "bytes"])
        a, b = self.make(TEXT, depth), self.make(TEXT, 0)
        if way == "||":
            return Expr(f"({a.sql} || {b.sql})", TEXT, strict(lambda x, y: x + y, a, b))
        if way == "upper":
            return Expr(f"UPPER({a.sql})", TEXT, strict(str.upper, a))
        if way == "substring":
            return Expr(f"SUBSTRING({a.sql}, 2, 1)", TEXT, strict(lambda x: x[1:2], a))
        if way == "replace":
            return Expr(f"REPLACE({a.sql}, 'a', 'xy')", TEXT, strict(lambda x: x.replace("a", "xy"), a))
        if way == "cast":
            number = self.make(self.choice.choice(WHOLE), 0)
            return Expr(f"CAST({number.sql} AS TEXT)", TEXT, strict(str, number))
        if way == "bytes":
            return self._text_of_bytes(self.make(BYTES, depth))
        return Expr(f"CONCAT({a.sql}, {b.sql})", TEXT, lambda row: (a.value(row) or "") + (b.value(row) or ""))

    def _text_of_bytes(self, data: Expr) -> Expr:
        way = self.choice.choice(["hex", "base64", "utf8", "md5", "cast"])
        if way == "cast":
            return Expr(f"CAST({data.sql} AS TEXT)", TEXT, strict(lambda v: "\\x" + v.hex(), data))
        if way == "md5":
            return Expr(f"MD5({data.sql})", TEXT, strict(lambda v: hashlib.md5(v, usedforsecurity=False).hexdigest(), data))
        make = {"hex": bytes.hex, "base64": lambda v: base64.b64encode(v).decode(), "utf8": _of_utf8}[way]
        return Expr(f"ENCODE({data.sql}, '{way}')", TEXT, strict(make, data))

    def _bytes(self, depth: int) -> Expr:
        way = self.choice.choice(["||", "substring", "utf8", "back", "sha"])
        if way == "utf8":
            text = self.make(TEXT, depth)
            return Expr(f"TO_BYTES({text.sql})", BYTES, strict(str.encode, text))
        a = self.make(BYTES, depth)
        if way == "||":
            b = self.make(BYTES, 0)
            return Expr(f"({a.sql} || {b.sql})", BYTES, strict(lambda x, y: x + y, a, b))
        if way == "substring":
            return Expr(f"SUBSTRING({a.sql}, 2, 3)", BYTES, strict(lambda x: x[1:4], a))
        if way == "sha":
            return Expr(f"SHA256({a.sql})", BYTES, strict(lambda x: hashlib.sha256(x).digest(), a))
        encoding = self.choice.choice(["hex", "base64"])
        return Expr(f"DECODE(ENCODE({a.sql}, '{encoding}'), '{encoding}')", BYTES, a.value)

    def _time(self, depth: int) -> Expr:
        way = self.choice.choice(["+", "-", "cast", "text"])
        if way == "cast":
            instant = self.make(TIMESTAMP, depth)
            return Expr(f"CAST({instant.sql} AS TIME)", TIME, strict(lambda v: v % DAY, instant))
        a = self.make(TIME, depth)
        if way == "text":
            return Expr(f"CAST(CAST({a.sql} AS TEXT) AS TIME)", TIME, a.value)
        hours = self.choice.choice([1, 13, 24, 100])
        moved = (hours if way == "+" else -hours) * 3_600 * SECOND
        return Expr(f"({a.sql} {way} INTERVAL '{hours}' HOUR)", TIME, strict(lambda v: (v + moved) % DAY, a))

    def _instant(self, depth: int) -> Expr:
        a = self.make(TIMESTAMP, 0)
        if self.choice.random() < 0.3:
            n = self.make(INT, 0)
            months, days = self.choice.choice([1, 3, 13]), self.choice.choice([0, 0, 2])
            rest = f" {days} days" if days else ""
            value = strict(lambda v, count: _later(v, count * months, count * days), a, n)
            return Expr(f"({a.sql} + {n.sql} * INTERVAL '{months} months{rest}')", TIMESTAMP, value)
        if self.choice.random() < 0.5:
            return Expr(f"DATE_TRUNC('hour', {a.sql})", TIMESTAMP, strict(lambda v: v // 3_600_000_000 * 3_600_000_000, a))
        return a

    def _date(self, depth: int) -> Expr:
        return self.make(DATE, 0)

    def condition(self, depth: int) -> Expr:
        """A BOOLEAN, three-valued."""
        way = self.choice.choice(["compare", "compare", "compare", "and", "or", "not", "null", "distinct", "in", "between", "like", "is"])
        if depth == 0 and way in ("and", "or", "not", "is"):
            way = "compare"
        if way in ("and", "or"):
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return Expr(f"({a.sql} {way.upper()} {b.sql})", BOOLEAN, lambda row: _three(way == "and", a.value(row), b.value(row)))
        if way == "not":
            a = self.condition(depth - 1)
            return Expr(f"(NOT {a.sql})", BOOLEAN, strict(lambda v: not v, a))
        if way == "is":
            a, wanted = self.condition(depth - 1), self.choice.random() < 0.5
            no = self.choice.choice(["", "NOT "])
            word = "TRUE" if wanted else "FALSE"
            return Expr(f"({a.sql} IS {no}{word})", BOOLEAN, lambda row: (a.value(row) is wanted) != bool(no))
        kind = self.choice.choice(TYPES[:9])
        a = self.make(kind, depth)
        if way == "null":
            return Expr(f"({a.sql} IS NULL)", BOOLEAN, lambda row: a.value(row) is None)
        if way == "like":
            a = self.make(TEXT, depth)
            return Expr(f"({a.sql} LIKE 'a%')", BOOLEAN, strict(lambda v: v.startswith("a"), a))
        b = self.make(kind, min(depth, 1))
        if way == "distinct":
            return Expr(f"({a.sql} IS DISTINCT FROM {b.sql})", BOOLEAN, lambda row: _distinct(a.value(row), b.value(row)))
        c = self.make(kind, 0)
        if way == "in":
            return Expr(f"({a.sql} IN ({b.sql}, {c.sql}))", BOOLEAN, lambda row: _three(False, _equal(a, b, row), _equal(a, c, row)))
        if way == "between":
            above, below = strict(lambda x, y: compared(">=", x, y), a, b), strict(lambda x, y: compared("<=", x, y), a, c)
            return Expr(f"({a.sql} BETWEEN {b.sql} AND {c.sql})", BOOLEAN, lambda row: _three(True, above(row), below(row)))
        operator = self.choice.choice(["=", "<>", "<", "<=", ">", ">="])
        return Expr(f"({a.sql} {operator} {b.sql})", BOOLEAN, strict(lambda x, y: compared(operator, x, y), a, b))


def _of_utf8(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _later(us: int, months: int, days: int) -> int | None:
    """The same day and time of another month, or its last day, and then so many days more; NULL beyond what there is."""
    if abs(months) > 12 * 600_000:
        return None
    date, clock = divmod(us, DAY)
    year, month, day = civil_from_days(date)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    moved = days_from_civil(year, month + 1, min(day, days_in_month(year, month + 1)))
    if abs(moved) > INT64_MAX // DAY - 1:
        return None
    later = moved * DAY + clock + days * DAY
    return later if abs(later) <= INT64_MAX else None


def _equal(a: Expr, b: Expr, row: Row) -> bool | None:
    x, y = a.value(row), b.value(row)
    return None if x is None or y is None else compared("=", x, y)


def _distinct(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return (a is None) != (b is None)
    return not compared("=", a, b)


def _three(conjunction: bool, a: bool | None, b: bool | None) -> bool | None:
    decisive = not conjunction
    if a is decisive or b is decisive:
        return decisive
    return None if a is None or b is None else conjunction
