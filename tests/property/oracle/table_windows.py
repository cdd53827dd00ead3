"""Aggregates of table LEFT JOIN stream [tumbling window]: each window has every row of the table, also without rows of the stream."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from tests.property.oracle.aggregates import random_aggregate
from tests.property.oracle.expressions import Columns, Maker
from tests.property.oracle.feeds import END, Feed, Row
from tests.property.oracle.queries import Expected, grouped_query, hopping_window
from tests.property.oracle.subqueries import standing
from tests.property.oracle.values import SECOND, key_of


def table_windows_query(choice: random.Random, feed: Feed, changes: Sequence[tuple[int, Row]], columns: Columns) -> Expected:
    """Aggregates by a column of the table; a row meets the table as it stood when it came, a window's close as it stands then (K18)."""
    keys = [n for n, t in feed.columns if t == "INT" and n != "n"]
    arrived = [(time, event.seq, row) for event in feed.events for time, row in event.rows]
    watermarks = [-math.inf, *(event.watermark for event in feed.events)]
    in_time = all(time >= before for event, before in zip(feed.events, watermarks, strict=False) for time, _ in event.rows)
    size = choice.randint(1, 12)
    window = hopping_window(choice, "tumbling", size, size)
    if not keys or not arrived or not in_time or window.assign is None:
        return grouped_query(choice, feed)
    key = choice.choice(keys)
    maker = Maker(choice, [(f"a.{n}", t) for n, t in feed.columns])
    items = [random_aggregate(choice, maker, True) for _ in range(choice.randint(1, 3))]
    by = choice.choice([n for n, _ in columns])
    nothing: Row = {f"a.{n}": None for n, _ in feed.columns}
    times = [time for time, _, _ in arrived]
    bounds = sorted({b for time in range(min(times), max(times) + 1, SECOND) for b in window.assign(time)}, key=lambda b: b[1])
    rows: list[list[Any]] = []
    for start, end in bounds:
        inside = sorted((one for one in arrived if start <= one[0] < end), key=lambda one: one[:2])
        closed = next((event.seq for event in feed.events if event.watermark >= end), END)
        seen = {row[key] for _, _, row in inside if row[key] is not None}
        pairs = [
            (table, {f"a.{n}": v for n, v in row.items()})
            for _, seq, row in inside
            for table in standing(changes, seq, "id")
            if row[key] is not None and table["id"] == row[key]
        ]
        pairs += [(table, nothing) for table in standing(changes, closed, "id") if table["id"] not in seen]
        groups: dict[Any, list[Row]] = {}
        shown: dict[Any, Any] = {}
        for table, row in pairs:
            shown.setdefault(key_of(table.get(by)), table.get(by))
            groups.setdefault(key_of(table.get(by)), []).append(row)
        rows += [[end, shown[own], len(members), *(item.value(members) for item in items)] for own, members in groups.items()]
    select = ", ".join(["window_end", f"t.{by}", "COUNT(*) AS n", *(f"{item.sql} AS x{i}" for i, item in enumerate(items))])
    sql = f"SELECT {select} FROM t LEFT JOIN a {window.sql} ON t.id = a.{key} GROUP BY t.{by}"
    return Expected(sql, rows, False, shape="table windows")
