"""Windows: which rows each evaluation sees, by K1, K2, K4, K5 and K14."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from tests.property.oracle.feeds import END, Feed, Row
from tests.property.oracle.values import EPOCH, SECOND

Key = Callable[[Row], Any]
DAY = 86_400


@dataclass
class Seen:
    """One evaluation: the event that brought it, its event time, its bounds, the rows it sees (with time and place), the keys it names.

    `named` is None when every group of the rows is named.
    """

    seq: int
    time: int
    start: int | None
    end: int | None
    rows: list[tuple[int, int, Row]]
    named: set[Any] | None = None


def items(feed: Feed) -> Iterator[tuple[int, int, int, Row, float, float]]:
    """Yield (place, arrival number, time, row, W before, W after); the row may be missing: then its time is meaningless."""
    before, place = -math.inf, 0
    for event in feed.events:
        for time, row in event.rows:
            yield place, event.seq, time, row, before, before
            place += 1
        yield -1, event.seq, 0, {}, before, event.watermark
        before = max(before, event.watermark)


def hopping(size: int, slide: int, offset: int = 0) -> Callable[[int], list[tuple[int, int]]]:
    """Multiples of the slide from the epoch, moved by the offset; half-open."""

    def assign(time: int) -> list[tuple[int, int]]:
        start, found = (time - offset) // slide * slide + offset, []
        while start + size > time:
            found.append((start, start + size))
            start -= slide
        return found

    return assign


def cumulative(step: int, size: int) -> Callable[[int], list[tuple[int, int]]]:
    """Windows that begin together at multiples of the size and end at each step."""

    def assign(time: int) -> list[tuple[int, int]]:
        start = time // size * size
        return [(start, start + i * step) for i in range(1, size // step + 1) if start + i * step > time]

    return assign


def _midnight(day: int, zone: ZoneInfo) -> int:
    """The first instant of a local day given by its number: the earlier of two, or moved on by the gap that swallows it."""
    naive = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=day)
    return (naive.replace(tzinfo=zone, fold=0) - EPOCH) // datetime.timedelta(microseconds=1)


def zoned(size: int, slide: int, zone: str) -> Callable[[int], list[tuple[int, int]]]:
    """Whole days by the local calendar, shorter windows from each local midnight and cut at the next. Seconds in, microseconds out."""
    where = ZoneInfo(zone)

    def local_day(time: int) -> int:
        day = (EPOCH + datetime.timedelta(microseconds=time)).astimezone(where).date()
        return (day - datetime.date(1970, 1, 1)).days

    def by_days(time: int) -> list[tuple[int, int]]:
        days, step, found = size // DAY, slide // DAY, []
        origin = 4 if slide % (7 * DAY) == 0 else 0  # 1970-01-05 was a Monday
        start = (local_day(time) - origin) // step * step + origin
        while start > local_day(time) - days - step:
            bounds = _midnight(start, where), _midnight(start + days, where)
            if bounds[0] <= time < bounds[1]:
                found.append(bounds)
            start -= step
        return found

    def within_day(time: int) -> list[tuple[int, int]]:
        day = local_day(time)
        first, last = _midnight(day, where), _midnight(day + 1, where)
        starts = range(first, last, slide * SECOND)
        return [(s, min(s + size * SECOND, last)) for s in starts if s <= time < min(s + size * SECOND, last)]

    return by_days if size % DAY == 0 and slide % DAY == 0 else within_day


def closing(feed: Feed, assign: Callable[[int], list[tuple[int, int]]]) -> list[Seen]:
    """Windows of time, each when W reaches its end; a row counts in those that are open."""
    found: list[Seen] = []
    inside: dict[tuple[int, int], list[tuple[int, int, Row]]] = {}
    for place, seq, time, row, before, after in items(feed):
        if place >= 0:
            windows = assign(time)
            open_ones = [w for w in windows if w[1] > before]
            feed.late += bool(windows) and not open_ones
            for window in open_ones:
                inside.setdefault(window, []).append((time, place, row))
        for end, start in sorted((e, s) for s, e in inside if e <= after):
            found.append(Seen(seq, end - 1, start, end, inside.pop((start, end))))
    return found


def _timely(feed: Feed) -> tuple[list[tuple[int, int, Row]], list[tuple[int, float]]]:
    """Rows at or above W, by (time, place); and W after each event."""
    kept, steps = [], []
    for place, seq, time, row, before, after in items(feed):
        if place < 0:
            steps.append((seq, after))
        elif time < before:
            feed.late += 1
        else:
            kept.append((time, place, row))
    return sorted(kept, key=lambda r: r[:2]), steps


def _known(steps: list[tuple[int, float]], time: int) -> int:
    """The event after which all rows of an instant have come."""
    return next((seq for seq, w in steps if w > time), END)


def sliding(feed: Feed, size: int, key: Key, where: Callable[[Row], bool]) -> list[Seen]:
    """[RANGE size] at each instant that brings a row, for the groups that received one."""
    kept, steps = _timely(feed)
    passing = [r for r in kept if where(r[2])]
    found = []
    for instant in sorted({t for t, _, _ in passing}):
        rows = [r for r in passing if instant - size < r[0] <= instant]
        found.append(Seen(_known(steps, instant), instant, None, None, rows, {key(r[2]) for r in rows if r[0] == instant}))
    return found


def counted(feed: Feed, size: int, key: Key, where: Callable[[Row], bool], partition: Key, slide: int = 1) -> list[Seen]:
    """[ROWS size] at each row for its own group, at each slide-th row of a partition for all groups, the unfilled rest at the end."""
    kept, steps = _timely(feed)
    found: list[Seen] = []
    members: dict[Any, list[tuple[int, int, Row]]] = {}
    for time, place, row in kept:
        mine = members.setdefault(partition(row), [])
        mine.append((time, place, row))
        if slide > 1:
            if len(mine) % slide == 0:
                found.append(Seen(_known(steps, time), time, None, None, mine[-size:]))
        elif where(row):
            rows = [r for r in mine[-size:] if where(r[2])]
            found.append(Seen(_known(steps, time), time, None, None, rows, {key(row)}))
    if slide > 1:
        for mine in members.values():
            rest = len(mine) % slide
            rows = mine[max(0, len(mine) - rest + slide - size) :] if rest else []
            if rest and rows:
                found.append(Seen(END, mine[-1][0], None, None, rows))
    return found


def sessions(feed: Feed, gap: int, key: Key, most: int | None = None) -> list[Seen]:
    """[SESSION gap MAX most], a session per key; a row is late when the session it would form or join has closed."""
    found: list[Seen] = []
    open_rows: dict[Any, list[tuple[int, int, Row]]] = {}
    for place, seq, time, row, before, after in items(feed):
        if place >= 0:
            mine = open_rows.setdefault(key(row), [])
            one = (time, place, row)
            start, end, _ = next(s for s in _split([*mine, one], gap, most) if any(r is one for r in s[2]))
            if end <= before:
                feed.late += 1
            else:
                mine.append(one)
        closed = []
        for own, members in open_rows.items():
            gone = [s for s in _split(members, gap, most) if s[1] <= after]
            closed += gone
            left = {r[1] for s in gone for r in s[2]}
            open_rows[own] = [r for r in members if r[1] not in left]
        for start, end, rows in sorted(closed, key=lambda s: (s[1], s[0], min(r[1] for r in s[2]))):
            found.append(Seen(seq, end - 1, start, end, rows))
    return found


def _split(rows: list[tuple[int, int, Row]], gap: int, most: int | None) -> list[tuple[int, int, list[tuple[int, int, Row]]]]:
    """Cut rows into (start, end, rows): a gap apart, or the longest allowed after the first."""
    parts: list[list[tuple[int, int, Row]]] = []
    for row in sorted(rows, key=lambda r: r[:2]):
        if parts and row[0] < parts[-1][-1][0] + gap and (most is None or row[0] < parts[-1][0][0] + most):
            parts[-1].append(row)
        else:
            parts.append([row])
    ends = [p[-1][0] + gap if most is None else min(p[-1][0] + gap, p[0][0] + most) for p in parts]
    return [(p[0][0], end, p) for p, end in zip(parts, ends, strict=True)]


def whole(feed: Feed) -> list[Seen]:
    """No window, EMIT FINAL: everything, at the end."""
    rows = [(time, place, row) for place, _, time, row, _, _ in items(feed) if place >= 0]
    return [Seen(END, max((r[0] for r in rows), default=0), None, None, rows)]
