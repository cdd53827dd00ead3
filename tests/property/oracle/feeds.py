"""Feeds: what an operator puts out, item by item, each with the watermark after it (K3, K19)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.property.oracle.expressions import Columns, Expr
from tests.property.oracle.values import SECOND

Row = dict[str, Any]


@dataclass
class Event:
    """What came at one arrival number: rows with their event times, in order; then W is `watermark`."""

    seq: int
    rows: list[tuple[int, Row]]
    watermark: float


@dataclass
class Feed:
    """A stream as the rules see it. `sql` is how a FROM clause names it; the last event is the end, with W = +∞."""

    sql: str
    columns: Columns
    events: list[Event] = field(default_factory=list)
    late: int = 0

    def rows(self) -> list[Row]:
        """All rows in order."""
        return [row for event in self.events for _, row in event.rows]


END = 10**9


def source(name: str, columns: Columns, arrivals: Sequence[tuple[str, Row]], delay: int, watermark: float = -math.inf) -> Feed:
    """A stream: W is the greatest event time less the delay, after each row; `watermark` is what it was before."""
    feed = Feed(name, columns, [Event(-1, [], watermark)])
    for seq, (stream, row) in enumerate(arrivals):
        if stream == name:
            time = row["ts"] * SECOND
            watermark = max(watermark, time - delay * SECOND)
            feed.events.append(Event(seq, [(time, row)], watermark))
    feed.events.append(Event(END, [], math.inf))
    return feed


def mapped(feed: Feed, sql: str, columns: Columns, change: Callable[[Row], Row | None]) -> Feed:
    """Each row changed or, for None, dropped; W moves all the same."""
    events = [Event(e.seq, [(t, r) for t, row in e.rows if (r := change(row)) is not None], e.watermark) for e in feed.events]
    return Feed(sql, columns, events)


def selected(feed: Feed, condition: Expr, sql: str) -> Feed:
    """The rows for which a condition is true."""
    return mapped(feed, sql, feed.columns, lambda row: row if condition.value(row) is True else None)


def merged(feeds: Sequence[Feed]) -> Iterator[tuple[int, int, Event, float]]:
    """Yield (arrival number, which feed, its event, W over all after it); the feeds in order at one number."""
    reached = [-math.inf] * len(feeds)
    items = sorted(((e.seq, i, n, e) for i, f in enumerate(feeds) for n, e in enumerate(f.events)), key=lambda x: x[:3])
    low = -math.inf
    for seq, which, _, event in items:
        reached[which] = max(reached[which], event.watermark)
        low = max(low, min(reached))
        yield seq, which, event, low


def union(feeds: Sequence[Feed], sql: str) -> Feed:
    """UNION ALL: by arrival number, the branches in order."""
    result = Feed(sql, feeds[0].columns)
    for seq, _, event, low in merged(feeds):
        result.events.append(Event(seq, event.rows, low))
    return result
