"""Every kind of sliding window under every EMIT, against a reference that looks at whole windows; the same bytes for any trains."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine_run import SqlEngine
from tests.support.reference_windows import extreme, same
from tests.support.trains import CUTS, added_up, run_once, same_for_all_trains

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, i BIGINT) TIMESTAMP BY ts DELAY 3 MICROSECONDS"
VALUES = st.sampled_from([0.5, -0.0, 0.0, 1.25, -3.0, 7.5, math.nan, math.inf, -math.inf, None])
KEYS = st.sampled_from([0, 1, 2, None])
ROWS = st.lists(st.tuples(st.integers(-3, 4), KEYS, VALUES, st.integers(-(2**63), 2**63 - 1) | st.none()), max_size=30)
SELECT = "k, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi, SUM(i) AS big"
HOLISTIC = "k, COUNT(DISTINCT v) AS d, SUM(i) AS big"


def timed(drawn: list[Any]) -> list[Any]:
    now, rows = -20, []
    for step, *rest in drawn:
        now += step
        rows.append((now, *rest))
    return rows


def on_time(rows: list[Any]) -> list[tuple[int, Any]]:
    """(arrival, row) of rows that are not late, by event time, ties by arrival."""
    watermark, kept = -math.inf, []
    for arrival, row in enumerate(rows):
        if row[0] >= watermark:
            kept.append((arrival, row))
        watermark = max(watermark, row[0] - 3)
    return sorted(kept, key=lambda r: r[1][0])


def total(values: list[Any]) -> Any:
    present = [v for v in values if v is not None]
    return sum(present) if present else None


def answer(rows: list[Any], holistic: bool) -> tuple[Any, ...]:
    values = [r[2] for r in rows]
    big = total([r[3] for r in rows])
    if holistic:
        present = {"nan" if v != v else v for v in values if v is not None}
        return len(present), big
    return len(rows), len(values) - values.count(None), total(values), extreme(values, False), extreme(values, True), big


class Windows:
    """The window of a kind after the first `upto` rows in order (or at an instant), per partition."""

    def __init__(self, kind: str, size: int, rows: list[Any]) -> None:
        self.kind, self.size, self.rows = kind, size, on_time(rows)

    def at(self, instant: int) -> list[Any]:
        """The relation after all rows of an instant."""
        seen = [r for r in self.rows if r[1][0] <= instant]
        if self.kind == "range":
            return [r for r in seen if r[1][0] > instant - self.size]
        return self.last(seen)

    def last(self, seen: list[Any]) -> list[Any]:
        if self.kind == "rows":
            return seen[-self.size :]
        kept: list[Any] = []
        for k in dict.fromkeys(r[1][1] for r in seen):
            kept += [r for r in seen if r[1][1] == k][-self.size :]
        return kept

    def answers(self, window: list[Any], holistic: bool, only: set[Any] | None = None) -> list[Any]:
        """One row a group, in order of first arrival."""
        groups = {r[1][1] for r in window} if only is None else only
        first = {g: min(a for a, r in window if r[1] == g) for g in groups}
        return [(g, *answer([r for _, r in window if r[1] == g], holistic)) for g in sorted(groups, key=lambda g: first[g])]


def clause(kind: str, size: int) -> str:
    return {
        "range": f"[RANGE {size} MICROSECONDS]",
        "rows": f"[ROWS {size}]",
        "partition": f"[PARTITION BY k ROWS {size}]",
    }[kind]


KINDS = st.sampled_from(["range", "rows", "partition"])


@settings(max_examples=8, deadline=None)
@given(ROWS, KINDS, st.integers(1, 7), st.booleans())
def test_final_answers_are_those_of_the_window_at_each_instant_or_row(drawn: list[Any], kind: str, size: int, holistic: bool) -> None:
    rows = timed(drawn)
    found = same_for_all_trains([STREAM], f"SELECT {HOLISTIC if holistic else SELECT} FROM s {clause(kind, size)} GROUP BY k", {"s": rows})
    windows = Windows(kind, size, rows)
    expected: list[Any] = []
    if kind == "range":
        for instant in sorted({r[0] for _, r in windows.rows}):
            touched = {r[1] for _, r in windows.rows if r[0] == instant}
            expected += windows.answers(windows.at(instant), holistic, touched)
    else:
        for place, (_, row) in enumerate(windows.rows):
            expected += windows.answers(windows.last(windows.rows[: place + 1]), holistic, {row[1]})
    assert same(found, expected)


@settings(max_examples=8, deadline=None)
@given(ROWS, KINDS, st.integers(1, 7), st.integers(1, 5), st.booleans())
def test_early_answers_are_samples_of_the_window_and_the_last_instant_comes_last(
    drawn: list[Any], kind: str, size: int, every: int, holistic: bool
) -> None:
    rows = timed(drawn)
    query = f"SELECT {HOLISTIC if holistic else SELECT} FROM s {clause(kind, size)} GROUP BY k EMIT EVERY {every} MICROSECONDS"
    found = same_for_all_trains([STREAM], query, {"s": rows})
    windows = Windows(kind, size, rows)
    instants = [r[0] for _, r in windows.rows]
    moments: list[int] = []
    if instants:
        moments = [m for m in range(instants[0], instants[-1] + 1) if m % every == 0]
        moments += [instants[-1]] if instants[-1] % every else []
    expected = [windows.answers(windows.at(m), holistic) for m in moments]
    assert len(found) == sum(len(e) for e in expected)
    start = 0
    for block in expected:
        part, start = found[start : start + len(block)], start + len(block)
        assert same(sorted(part, key=repr), sorted(block, key=repr))
        assert kind != "range" or same(part, block)


@settings(max_examples=8, deadline=None)
@given(ROWS, KINDS, st.integers(1, 7), st.booleans())
def test_changes_with_their_bounds_add_up_to_the_last_window(drawn: list[Any], kind: str, size: int, holistic: bool) -> None:
    rows = timed(drawn)
    select = HOLISTIC if holistic else SELECT
    query = f"SELECT {select}, window_end AS e FROM s {clause(kind, size)} GROUP BY k EMIT CHANGES"
    state = added_up(same_for_all_trains([STREAM], query, {"s": rows}))
    windows = Windows(kind, size, rows)
    last = windows.at(windows.rows[-1][1][0]) if windows.rows else []
    expected = windows.answers(last, holistic)
    found = [row[:-1] for row in state.elements()]
    assert same(sorted(found, key=repr), sorted((tuple(str(x) for x in row) for row in expected), key=repr))


@settings(max_examples=6, deadline=None)
@given(ROWS, st.integers(1, 5), st.booleans())
def test_rows_that_where_drops_still_push_others_out_of_a_change_log(drawn: list[Any], size: int, partitioned: bool) -> None:
    rows = timed(drawn)
    window = clause("partition" if partitioned else "rows", size)
    query = f"SELECT k, COUNT(*) AS n FROM s {window} WHERE v IS NOT NULL GROUP BY k EMIT CHANGES"
    state = added_up(same_for_all_trains([STREAM], query, {"s": rows}))
    windows = Windows("partition" if partitioned else "rows", size, rows)
    counts = Counter(r[1] for _, r in windows.last(windows.rows) if r[2] is not None)
    assert state == Counter((str(k), str(n)) for k, n in counts.items())


@settings(max_examples=6, deadline=None)
@given(ROWS, st.integers(1, 6), st.integers(2, 4), st.booleans())
def test_row_windows_that_slide_answer_at_each_mth_row_and_once_more_at_the_end(
    drawn: list[Any], size: int, slide: int, partitioned: bool
) -> None:
    rows = timed(drawn)
    window = f"[PARTITION BY k ROWS {size} SLIDE {slide}]" if partitioned else f"[ROWS {size} SLIDE {slide}]"
    found = same_for_all_trains([STREAM], f"SELECT k, COUNT(*) AS n, SUM(i) AS s FROM s {window} GROUP BY k", {"s": rows})
    by_partition: dict[Any, list[Any]] = {}
    expected: list[Any] = []
    windows = Windows("rows", size, rows)

    def answers(seen: list[Any], end: int) -> list[Any]:
        held = seen[max(0, end - size) :]
        return [(row[0], row[1], row[6]) for row in windows.answers(held, False)]

    for entry in windows.rows:
        seen = by_partition.setdefault(entry[1][1] if partitioned else 0, [])
        seen.append(entry)
        if len(seen) % slide == 0:
            expected += answers(seen, len(seen))
    rest = [seen for seen in by_partition.values() if len(seen) % slide]
    for seen in sorted(rest, key=lambda s: s[-1][1][0]):
        expected += answers(seen, (len(seen) // slide + 1) * slide)
    assert same(sorted(found, key=repr), sorted(expected, key=repr))
    if not partitioned:
        assert same(found, expected)


@pytest.mark.parametrize("emit", ["", " EMIT CHANGES"])
def test_what_is_left_in_partitions_at_the_end_stands_in_one_order_however_rows_are_batched(emit: str) -> None:
    rows = [(-20, 1, 0.5, None), *((-16, 0, 0.5, n) for n in range(4)), (-16, 1, 0.5, 0)]
    query = f"SELECT k, COUNT(*) AS n FROM s [PARTITION BY k ROWS 3 SLIDE 3] GROUP BY k{emit}"
    first, *others = [run_once([STREAM], query, {"s": rows}, train, chunk).rows("q") for train, chunk in CUTS]
    assert [tuple(row[:2]) for row in first if row[-1] != "-"] == [(0, 3), (1, 2), (0, 1)]  # by the first row of each
    assert all(other == first for other in others)


def test_a_silence_gives_so_many_early_answers_however_rows_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.engine.windows.early.EARLY_ANSWERS_MAX", 50)
    rows = [(0, 0, 1.0, 1), (500, 0, 1.0, 1), (501, 0, 1.0, 1)]
    found = same_for_all_trains([STREAM], "SELECT COUNT(*) AS n FROM s [ROWS 2] EMIT EVERY 1 MICROSECOND", {"s": rows})
    assert found == [(1,)] * 50 + [(2,)] * 2


@pytest.mark.parametrize("kind", ["RANGE 4 MICROSECONDS", "ROWS 4"])
def test_texts_and_wide_decimals_are_folded_too(kind: str) -> None:
    stream = "CREATE STREAM s (ts TIMESTAMP, t TEXT, d DECIMAL(30, 2)) TIMESTAMP BY ts"
    rows = [(i, None if i % 5 == 0 else "dacbe"[i % 5] * (i % 3 + 1), None if i % 4 == 0 else 10**20 + i % 7) for i in range(40)]
    found = same_for_all_trains([stream], f"SELECT MIN(t) AS a, MAX(t) AS b, MIN(d) AS c, SUM(d) AS e FROM s [{kind}]", {"s": rows})
    for place, row in enumerate(found):
        window = rows[max(0, place - 3) : place + 1]
        texts, numbers = [r[1] for r in window if r[1]], [r[2] for r in window if r[2] is not None]
        assert row[:2] == (min(texts, default=None), max(texts, default=None))
        assert list(row[2:]) == ([Decimal(min(numbers)), Decimal(sum(numbers))] if numbers else [None, None])


def test_a_query_that_ends_holds_nothing_and_groups_that_left_are_forgotten() -> None:
    engine = SqlEngine(STREAM)
    delta = engine.select("SELECT k, SUM(v) AS s FROM s [RANGE 10 MICROSECONDS] GROUP BY k")
    engine.put("s", [(i, i, 1.0, 1) for i in range(5_000)])
    engine.work()
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    assert logic.state_rows() <= 10 + 3 + 1
    assert logic.state_bytes() - logic._encoder.nbytes() < 50_000
    engine.end()
    engine.work()
    assert logic.state_rows() == 0
