"""One query over the same rows cut in several ways: the answers must be the same bytes (K15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.support.engine_run import SqlEngine
from tests.support.reference_windows import same

CUTS = ((4096, 100), (1, 1), (7, 7), (4096, 3))  # rows a step, rows a publish


def merged(streams: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    """Rows of several streams, dealt in turn: one fixed order of arrival."""
    longest = max((len(rows) for rows in streams.values()), default=0)
    return [(name, rows[i]) for i in range(longest) for name, rows in streams.items() if i < len(rows)]


def run_once(create: Sequence[str], query: str, streams: dict[str, list[Any]], train: int, chunk: int) -> SqlEngine:
    engine = SqlEngine(*create, train=train)
    engine.select(query)
    waiting: list[Any] = []
    arrivals = merged(streams)
    for place, (name, row) in enumerate(arrivals):
        waiting.append(row)
        last = place + 1 == len(arrivals) or arrivals[place + 1][0] != name
        if last or len(waiting) == chunk:
            engine.put(name, waiting)
            waiting = []
        if (place + 1) % chunk == 0:
            engine.work()
    engine.end()
    engine.work()
    assert all(a.balances for a in engine.account("q").values())
    return engine


def outcome(engine: SqlEngine) -> tuple[Any, ...]:
    """Rows and counts of a finished query."""
    return engine.rows("q"), {name: (a.late, a.partly_late) for name, a in engine.account("q").items()}


def same_for_all_trains(
    create: Sequence[str], query: str, streams: dict[str, list[Any]], cuts: Sequence[tuple[int, int]] = CUTS
) -> list[Any]:
    """Return the rows of the query, having checked that no way of cutting trains gives others."""
    first, *others = [outcome(run_once(create, query, streams, train, chunk)) for train, chunk in cuts]
    for other in others:
        if "EMIT CHANGES" in query:  # the values in between may differ, their sum may not (K9)
            assert added_up(other[0]) == added_up(first[0])
        else:
            assert same(other[0], first[0]), (other[0], first[0])
        assert other[1] == first[1]
    rows: list[Any] = first[0]
    return rows


def added_up(changes: list[Any]) -> Counter[Any]:
    """The rows that stand after a change log; no '-' may come without its '+'."""
    state: Counter[Any] = Counter()
    for *row, op in changes:
        key = tuple(str(0.0 if value == 0.0 and isinstance(value, float) else value) for value in row)  # -0.0 is 0.0 (K7)
        state[key] += 1 if op == "+" else -1
        assert state[key] >= 0, changes
    return +state
