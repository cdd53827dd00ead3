"""Functions with OVER: random frames over partitions in event-time order, and when each row leaves (K23)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.property.oracle import windows
from tests.property.oracle.aggregates import random_aggregate
from tests.property.oracle.expressions import Maker, literal
from tests.property.oracle.feeds import Feed, Row
from tests.property.oracle.queries import Expected
from tests.property.oracle.values import COMMON, DATE, SECOND, TIMESTAMP, TYPES, key_of

# What cannot be folded into one state needs a frame that begins somewhere.
_NEEDS_ALL = ("DISTINCT", "MEDIAN", "PERCENTILE", "TOP(", "MODE", "COLLECT_SET", "ARRAY_AGG", "STRING_AGG", "APPROX")


@dataclass
class _Frame:
    sql: str
    by_rank: bool
    preceding: int | None
    following: int

    def members(self, place: int, mine: list[tuple[int, Row]]) -> list[Row]:
        """The rows of the frame of the row at a place among those of its partition."""
        if self.by_rank:
            low = 0 if self.preceding is None else max(0, place - self.preceding)
            return [row for _, row in mine[low : max(low, place + self.following + 1)]]
        time = mine[place][0]
        return [r for t, r in mine if (self.preceding is None or t >= time - self.preceding) and t <= time + self.following]

    def complete(self, place: int, mine: list[tuple[int, Row]], newest: int) -> int:
        """The event time at which the frame is complete."""
        if self.following <= 0:
            return mine[place][0]
        if not self.by_rank:
            return mine[place][0] + self.following
        return mine[place + self.following][0] if place + self.following < len(mine) else newest


def random_frame(choice: random.Random) -> _Frame:
    by_rank = choice.random() < 0.5
    unit = 1 if by_rank else SECOND
    following = choice.choice([0, 0, 0, 1, 2, -1, -2])
    if choice.random() < 0.25 and (by_rank or following == 0):
        preceding = None
    else:
        preceding = choice.choice([0, 1, 2, 5, -1])
        if preceding < -following:
            preceding = -following + 1

    def end(offset: int) -> str:
        size = f"{abs(offset)}" if by_rank or choice.random() < 0.5 else f"INTERVAL '{abs(offset)}' SECOND"
        return "CURRENT ROW" if offset == 0 else f"{size} {'FOLLOWING' if offset > 0 else 'PRECEDING'}"

    start = "UNBOUNDED PRECEDING" if preceding is None else end(-preceding)
    sql = f" {'ROWS' if by_rank else 'RANGE'} BETWEEN {start} AND {end(following)}"
    if not by_rank and preceding is None and choice.random() < 0.5:
        sql = ""
    return _Frame(sql, by_rank, None if preceding is None else preceding * unit, following * unit)


@dataclass
class _Item:
    sql: str
    frame: _Frame
    by: str | None
    value: Callable[[list[Row]], Any]


def random_item(choice: random.Random, feed: Feed) -> _Item:
    maker = Maker(choice, feed.columns)
    by = choice.choice([None, *(n for n, t in feed.columns if n not in ("ts", "n") and t in TYPES)])
    partition = "" if by is None else f"PARTITION BY {by} "
    if choice.random() < 0.35:
        return _neighbour(choice, maker, by, partition)
    frame = random_frame(choice)
    while True:
        aggregate = random_aggregate(choice, maker)
        if frame.preceding is not None or not any(word in aggregate.sql for word in _NEEDS_ALL):
            return _Item(f"{aggregate.sql} OVER ({partition}ORDER BY ts{frame.sql})", frame, by, aggregate.value)


def _neighbour(choice: random.Random, maker: Maker, by: str | None, partition: str) -> _Item:
    kind = choice.choice([k for k in TYPES if k not in (TIMESTAMP, DATE)])
    one, back = maker.make(kind, 1), choice.randint(1, 3)
    word = choice.choice(["LEAD", "LEAD", "LAG", "NTH_VALUE", "FIRST_VALUE"])
    if word == "FIRST_VALUE":
        frame = random_frame(choice)
        first = lambda rows: one.value(rows[0]) if rows else None  # noqa: E731
        return _Item(f"FIRST_VALUE({one.sql}) OVER ({partition}ORDER BY ts{frame.sql})", frame, by, first)
    if word == "NTH_VALUE":
        frame = _Frame(" ROWS 4 PRECEDING", True, 4, 0)
        nth = lambda rows: one.value(rows[back - 1]) if len(rows) >= back else None  # noqa: E731
        return _Item(f"NTH_VALUE({one.sql}, {back}) OVER ({partition}ORDER BY ts{frame.sql})", frame, by, nth)
    default = literal(choice.choice(COMMON[kind]), kind) if word == "LAG" or choice.random() < 0.5 else None
    ahead = back if word == "LEAD" else -back
    more = "" if default is None else f", {default.sql}"

    def value(rows: list[Row]) -> Any:
        return one.value(rows[0]) if rows else None if default is None else default.value({})

    return _Item(f"{word}({one.sql}, {back}{more}) OVER ({partition}ORDER BY ts)", _Frame("", True, -ahead, ahead), by, value)


def over_query(choice: random.Random, feed: Feed) -> Expected:
    """Some functions with OVER beside each other: a row leaves when all its frames are complete."""
    items = [random_item(choice, feed) for _ in range(choice.choice([1, 1, 2, 3]))]
    kept, _ = windows._timely(Feed("", feed.columns, feed.events))
    ordered = [(time, row) for time, _, row in sorted(kept, key=lambda one: one[:2])]
    newest = max((time for time, _ in ordered), default=0)
    places: list[dict[Any, list[tuple[int, Row]]]] = [{} for _ in items]
    where = []
    for time, row in ordered:
        where.append([])
        for item, groups in zip(items, places, strict=True):
            mine = groups.setdefault(None if item.by is None else key_of(row[item.by]), [])
            where[-1].append((len(mine), mine))
            mine.append((time, row))
    rows = []
    for number, ((_, row), found) in enumerate(zip(ordered, where, strict=True)):
        moment = max(item.frame.complete(place, mine, newest) for item, (place, mine) in zip(items, found, strict=True))
        answers = [item.value(item.frame.members(place, mine)) for item, (place, mine) in zip(items, found, strict=True)]
        rows.append((moment, number, [row["n"], *answers]))
    select = ", ".join(["n", *(f"{item.sql} AS x{i}" for i, item in enumerate(items))])
    return Expected(f"SELECT {select} FROM {feed.sql}", [row for _, _, row in sorted(rows, key=lambda one: one[:2])], shape="over")
