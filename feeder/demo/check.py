"""Compares a query's answer with DuckDB's over the same files: as bags of rows, DOUBLEs to a relative 1e-9."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from millstream.feeder import flights
from millstream.feeder.demo.queries import DemoQuery

RELATIVE = 1e-9
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_STREAMS = {"departures": flights.DEPARTURES, "arrivals": flights.ARRIVALS, "weather": flights.WEATHER}

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer is right: how it first differs from DuckDB's, in words."""

    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """No difference."""
        return not self.differences


class Oracle:
    """DuckDB over the demo's files."""

    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect()
        for name, path in _STREAMS.items():
            rows = f"read_parquet('{path}', file_row_number = true)"
            self._connection.execute(f"CREATE VIEW {name} AS SELECT *, epoch_us(ts) AS us, file_row_number AS seq FROM {rows}")
        self._connection.execute(f"CREATE VIEW airlines AS SELECT * FROM read_csv('{flights.AIRLINES}', header = true)")

    def answer(self, query: DemoQuery) -> list[Row]:
        """Return the whole answer of a query."""
        return [tuple(row) for row in self._connection.execute(query.truth).fetchall()]

    def close(self) -> None:
        """Let DuckDB go."""
        self._connection.close()


def compare(given: Iterable[Sequence[Any]], true: Iterable[Sequence[Any]]) -> Verdict:
    """Compare two bags of rows."""
    left, right = _sorted(given), _sorted(true)
    differences = []
    if len(left) != len(right):
        differences.append(f"{len(left):,} rows instead of {len(right):,}")
    differences += [
        f"{_spelled(mine)} instead of {_spelled(other)}" for mine, other in zip(left, right, strict=False) if not _same(mine, other)
    ]
    return Verdict(tuple(differences[:3]))


def settle(rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Return what a change log (`+` or `-` at the end of each row) sums up to; a `-` without its `+` stays, as a row of its own."""
    sums: Counter[Row] = Counter()
    for *row, op in rows:
        sums[tuple(row)] += 1 if op == "+" else -1
    left = [row for row, times in sums.items() for _ in range(times)]
    return left + [(*row, "-") for row, times in sums.items() for _ in range(-times)]


def _sorted(rows: Iterable[Sequence[Any]]) -> list[Row]:
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=_order)


def _plain(value: Any) -> Any:
    """Return the value as both sides can say it: instants as µs, decimals without a fraction as integers."""
    if isinstance(value, dt.datetime):
        instant = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (instant - _EPOCH) // _MICROSECOND
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value


def _order(row: Row) -> tuple[Any, ...]:
    """Sort by all that is exact first and by DOUBLEs last, so that a last bit does not part two equal rows. NULLs go last."""
    exact = tuple((value is None, str(value)) for value in row if not isinstance(value, float))
    return exact, tuple(value for value in row if isinstance(value, float))


def _same(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(map(_equal, left, right))


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        if left is None or right is None:
            return left is right
        return math.isclose(left, right, rel_tol=RELATIVE, abs_tol=1e-12) or (math.isnan(left) and math.isnan(right))
    return bool(left == right)


def _spelled(row: Row) -> str:
    return "(" + ", ".join("NULL" if value is None else str(value) for value in row) + ")"
