"""Random calls of the functions of text, URLs, times and buckets, and what each comes to by Python's own (K8, K22)."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

from tests.property.oracle.expressions import Columns, Expr, Maker, column, strict
from tests.property.oracle.values import BIGINT, DAY, EPOCH, INT, SECOND, TEXT, TIMESTAMP

FORMATS = ("%Y-%m-%d %H:%M:%S", "%d/%m/%Y %H:%M", "%j %Y %I %p", "%a %b %d")
MONDAY = datetime.datetime(2000, 1, 3, tzinfo=datetime.UTC)
STRIDES = (("7 minutes", 420), ("1 hour", 3_600), ("36 hours", 129_600))
PARTS = ("PROTOCOL", "HOST", "PORT", "PATH", "FRAGMENT", "PARAMETER")


class FunctionMaker:
    """Makes calls over columns of plain types."""

    def __init__(self, choice: random.Random, columns: Columns) -> None:
        self.choice = choice
        self.plain = Maker(choice, columns)
        self.instants = [n for n, t in columns if t == TIMESTAMP]

    def any(self) -> Expr:
        """One call; its type is "" when no plain expression should be made of it."""
        ways = [self._quotient, self._bucket, self._split_part, self._split, self._url, self._encoded, self._greatest]
        if self.instants:
            ways += [self._binned, self._written, self._read]
        return self.choice.choice(ways)()

    def _quotient(self) -> Expr:
        a, b = self.plain.make(INT, 1), self.plain.make(INT, 0)
        whole = strict(lambda x, y: None if y == 0 else _fits(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)), a, b)
        return Expr(f"DIV({a.sql}, {b.sql})", BIGINT, whole)

    def _bucket(self) -> Expr:
        a = column("n", INT)
        low, high, parts = self.choice.choice([(0, 30, 3), (5, 25, 4), (-8, 8, 16)])

        def value(x: int) -> int:
            return 0 if x < low else parts + 1 if x >= high else (x - low) * parts // (high - low) + 1

        return Expr(f"WIDTH_BUCKET({a.sql}, {low}, {high}, {parts})", BIGINT, strict(value, a))

    def _split_part(self) -> Expr:
        a, b, place = self.plain.make(TEXT, 1), self.plain.make(TEXT, 0), self.choice.randint(1, 3)
        sql = f"SPLIT_PART(CONCAT_WS('|', {a.sql}, {b.sql}, 'end'), '|', {place})"

        def value(row: Any) -> str:
            parts = "|".join([v for v in (a.value(row), b.value(row)) if v is not None] + ["end"]).split("|")
            return parts[place - 1] if place <= len(parts) else ""

        return Expr(sql, TEXT, value)

    def _split(self) -> Expr:
        a = self.plain.make(TEXT, 1)
        return Expr(f"SPLIT({a.sql} || 'xay', 'a')", "", strict(lambda v: (v + "xay").split("a"), a))

    def _url(self) -> Expr:
        part = self.choice.choice(PARTS)
        a, n = self.plain.make(TEXT, 1), column("n", INT)
        text = f"CONCAT('https://h', {n.sql}, '.org:80', {n.sql}, '/p/', {n.sql}, '?x=1&q=', URL_ENCODE_PARAM({a.sql}), '#f', {n.sql})"
        find: Callable[[str | None, int], Any] = {
            "PROTOCOL": lambda v, i: "https",
            "HOST": lambda v, i: f"h{i}.org",
            "PORT": lambda v, i: int(f"80{i}"),
            "PATH": lambda v, i: f"/p/{i}",
            "FRAGMENT": lambda v, i: f"f{i}",
            "PARAMETER": lambda v, i: v or "",
        }[part]
        more = ", 'q'" if part == "PARAMETER" else ""
        kind = INT if part == "PORT" else TEXT
        return Expr(f"URL_EXTRACT_{part}({text}{more})", kind, lambda row: find(a.value(row), row["n"]))

    def _encoded(self) -> Expr:
        a = self.plain.make(TEXT, 1)
        if self.choice.random() < 0.5:
            return Expr(f"URL_DECODE_PARAM(URL_ENCODE_PARAM({a.sql}))", TEXT, a.value)
        return Expr(f"REPLACE(URL_ENCODE_PARAM({a.sql}), '%20', '+')", TEXT, strict(lambda v: quote_plus(v, safe="-_.~"), a))

    def _greatest(self) -> Expr:
        kind = self.choice.choice([INT, BIGINT, TEXT])
        parts = [self.plain.make(kind, 1) for _ in range(self.choice.randint(1, 3))]
        most = self.choice.random() < 0.5
        both = BIGINT if any(p.type == BIGINT for p in parts) else kind
        word = self.choice.choice([("GREATEST", "ARRAY_MAX") if most else ("LEAST", "ARRAY_MIN")][0])

        def value(row: Any) -> Any:
            known = [v for p in parts if (v := p.value(row)) is not None]
            return (max if most else min)(known) if known else None

        return Expr(f"{word}(ARRAY[{', '.join(p.sql for p in parts)}])", both, value)

    def _binned(self) -> Expr:
        a = column(self.choice.choice(self.instants), TIMESTAMP)
        text, size_s = self.choice.choice(STRIDES)
        size = size_s * SECOND
        if self.choice.random() < 0.5:
            return Expr(f"DATE_BIN(INTERVAL '{text}', {a.sql})", TIMESTAMP, strict(lambda v: v // size * size, a))
        since = (MONDAY - EPOCH) // datetime.timedelta(microseconds=1)
        return Expr(f"TIME_BUCKET(INTERVAL '{text}', {a.sql})", TIMESTAMP, strict(lambda v: (v - since) // size * size + since, a))

    def _written(self) -> Expr:
        a, shape = column(self.choice.choice(self.instants), TIMESTAMP), self.choice.choice(FORMATS)
        return Expr(
            f"STRFTIME({a.sql}, '{shape}')", TEXT, strict(lambda v: (EPOCH + datetime.timedelta(microseconds=v)).strftime(shape), a)
        )

    def _read(self) -> Expr:
        a = column(self.choice.choice(self.instants), TIMESTAMP)
        write, read, pattern, size = self.choice.choice(
            [
                ("STRFTIME", "STRPTIME", "%Y-%m-%d %H:%M:%S", SECOND),
                ("TO_CHAR", "TO_TIMESTAMP", "YYYY-MM-DD HH24:MI:SS.US", 1),
                ("TO_CHAR", "TO_TIMESTAMP", "DD.MM.YYYY", DAY),
            ]
        )
        sql = f"{read}({write}({a.sql}, '{pattern}'), '{pattern}')"
        return Expr(sql, TIMESTAMP, strict(lambda v: v // size * size, a))


def _fits(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None
