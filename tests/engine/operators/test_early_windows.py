"""EMIT EVERY and EMIT CHANGES over windows made of panes: hopping, cumulating, under a time zone; against whole windows, for any trains."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.trains import added_up, outcome, run_once, same_for_all_trains

HOUR = 3_600_000_000
STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts DELAY 3 HOURS"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SPRING = int((datetime(2026, 3, 6, tzinfo=UTC) - EPOCH) / timedelta(hours=1))
ROWS = st.lists(st.tuples(st.integers(-4, 9), st.integers(0, 1)), max_size=20)


def local_day(hour: int) -> tuple[int, int]:
    zone = ZoneInfo("America/New_York")
    here = (EPOCH + timedelta(hours=hour)).astimezone(zone)
    start = here.replace(hour=0, minute=0, fold=0)
    bounds = [start, (start.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=zone)]
    first, last = (int((b.astimezone(UTC) - EPOCH) / timedelta(hours=1)) for b in bounds)
    return first, last


def windows(form: str, hour: int) -> list[tuple[int, int]]:
    if form.startswith("zoned"):
        start, end = local_day(hour)
        if form == "zoned day":
            return [(start, end)]
        part = start + (hour - start) // 5 * 5
        return [(part, min(part + 5, end))]
    if form == "cumulate":
        start = hour // 12 * 12
        return [(start, start + e) for e in (4, 8, 12) if start + e > hour]
    return [(s, s + 7) for s in range(hour - 20, hour + 1) if s % 3 == 1 and s <= hour < s + 7]


FORMS = {
    "cumulate": "CUMULATE(s, ts, 4 HOURS, 12 HOURS)",
    "zoned day": "s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'America/New_York']",
    "zoned hours": "s [RANGE 5 HOURS SLIDE 5 HOURS TIME ZONE 'America/New_York']",
    "hopping": "s [RANGE 7 HOURS SLIDE 3 HOURS OFFSET 1 HOUR]",
}


def taken(drawn: list[Any], form: str) -> list[Any]:
    """(hour, key, windows still open when it came) of each row."""
    now, watermark, rows = SPRING, -math.inf, []
    for step, key in drawn:
        now += step
        rows.append((now, key, [w for w in windows(form, now) if w[1] > watermark]))
        watermark = max(watermark, now - 3)
    return rows


def answers(rows: list[Any], window: tuple[int, int], below: float) -> list[Any]:
    keys = [k for hour, k, open_ in rows if window in open_ and hour < below]
    return [(k, n, window[0] * HOUR, window[1] * HOUR) for k, n in Counter(keys).items()]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=4, deadline=None)
@given(drawn=ROWS, every=st.integers(1, 6))
def test_early_answers_hold_the_rows_below_their_moment(form: str, drawn: list[Any], every: int) -> None:
    rows = taken(drawn, form)
    query = f"SELECT k, COUNT(*) AS n, window_start AS a, window_end AS b FROM {FORMS[form]} GROUP BY k EMIT EVERY {every} HOURS"
    found = same_for_all_trains([STREAM], query, {"s": [(hour * HOUR, k) for hour, k, _ in rows]})
    expected = []
    alive = sorted({w for _, _, open_ in rows for w in open_}, key=lambda w: (w[1], w[0]))
    for window in alive:
        expected += [(window[1], 1, answer) for answer in answers(rows, window, math.inf)]
        newest = max(hour for hour, _, _ in rows)
        for moment in (m for m in range(window[0] + 1, window[1]) if m % every == 0 and m <= newest):
            below = [r for i, r in enumerate(rows) if came_before(rows, i, moment)]
            expected += [(moment, 0, answer) for answer in answers(below, window, moment)]
    assert found == [e[2] for e in sorted(expected, key=lambda e: e[:2])]


def came_before(rows: list[Any], place: int, moment: int) -> bool:
    """The row came before W reached the moment."""
    return all(hour - 3 < moment for hour, _, _ in rows[:place])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=4, deadline=None)
@given(drawn=ROWS)
def test_changes_add_up_to_the_final_answer(form: str, drawn: list[Any]) -> None:
    rows = [(hour * HOUR, k) for hour, k, _ in taken(drawn, form)]
    select = f"SELECT k, COUNT(*) AS n, window_start AS a, window_end AS b FROM {FORMS[form]} GROUP BY k"
    changes = added_up(same_for_all_trains([STREAM], f"{select} EMIT CHANGES", {"s": rows}))
    final = same_for_all_trains([STREAM], select, {"s": rows})
    assert changes == Counter(tuple(str(v) for v in row) for row in final)


def test_no_early_answer_is_lost_in_a_long_train() -> None:
    stream = "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts"
    rows = [(t,) for t in range(0, 10_500, 5)]
    query = "SELECT COUNT(*) AS n, window_start AS a FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] EMIT EVERY 1 MICROSECOND"
    whole, parts = (outcome(run_once([stream], query, {"s": rows}, 65_536, chunk)) for chunk in (20_000, 250))
    assert whole == parts
    assert len(whole[0]) > 10_000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) AS n FROM s [LANDMARK] EMIT EVERY 1 MICROSECOND",
        "RSTREAM(SELECT COUNT(*) AS n FROM s [ROWS 2] EVERY 1 MICROSECOND)",
    ],
)
def test_what_a_silence_leaves_out_does_not_depend_on_trains(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.engine.windows.early.EARLY_ANSWERS_MAX", 50)
    stream = "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts"
    rows = [(0,), (1,), (110,), (111,), (220,), (221,)]
    whole, parts = (outcome(run_once([stream], query, {"s": rows}, 65_536, chunk)) for chunk in (100, 1))
    assert whole == parts
    assert 50 < len(whole[0]) < 110
