"""table LEFT JOIN stream [window]: against a plain count over the same rows, whatever the trains, rewrites and the table's changes."""

from __future__ import annotations

import io
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError, Unsupported
from millstream.engine.plan.explain import rules_in_force
from millstream.engine.plan.plan_writer import to_plan_object
from millstream.server.run.embedded import Replay, run_replay
from millstream.server.run.output import write_results

from tests.support.plans import plan

SCRIPT = """
CREATE TABLE devices (device BIGINT, room TEXT, PRIMARY KEY (device));
CREATE STREAM readings (ts BIGINT, device INT, value INT) TIMESTAMP BY ts UNIT s;
SELECT window_end, d.device AS device, room, value FROM devices d
    LEFT JOIN readings [RANGE {size} SECONDS SLIDE {slide} SECONDS] r ON d.device = r.device AND value > 0;
SELECT window_end, d.device AS device, room FROM devices d
    LEFT JOIN readings [RANGE {size} SECONDS SLIDE {slide} SECONDS] r ON d.device = r.device AND value > 0 WHERE r.device IS NULL;
"""
DEVICES = {0: "attic", 1: "cellar", 2: None}
readings = st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 4), st.integers(-1, 2)), max_size=20)


def answers(events: list[dict[str, Any]], size: int, slide: int, **how: Any) -> list[list[dict[str, Any]]]:
    """Return the rows of the two queries, each as the command prints them."""
    with tempfile.TemporaryDirectory() as folder:
        timeline = Path(folder) / "timeline.jsonl"
        timeline.write_text("".join(json.dumps(event) + "\n" for event in events))
        outcomes = run_replay(Replay(SCRIPT.format(size=size, slide=slide), timeline=timeline, **how))
    assert outcomes.failure is None
    out = io.BytesIO()
    write_results(outcomes.results, "json", out)
    found: list[list[dict[str, Any]]] = []
    for line in out.getvalue().decode().splitlines():
        if line.startswith("-- "):
            found.append([])
        else:
            found[-1].append(json.loads(line))
    return found


def row(stream: str, **values: Any) -> dict[str, Any]:
    return {"stream": stream, "row": values}


def instant(second: int) -> str:
    return f"1970-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


def expected(rows: list[tuple[int, int | None, int]], size: int, slide: int) -> Counter[tuple[str, int, str | None, int | None]]:
    """Count what each window of every row, and each between them, should give."""
    found: Counter[tuple[str, int, str | None, int | None]] = Counter()
    if not rows:
        return found
    first, last = rows[0][0] // slide * slide - size + slide, rows[-1][0] // slide * slide
    for start in range(-(-first // slide) * slide, last + 1, slide):
        within = [(device, value) for ts, device, value in rows if start <= ts < start + size and value > 0]
        for device, room in DEVICES.items():
            values = [value for other, value in within if other == device]
            for value in values or [None]:
                found[instant(start + size), device, room, value] += 1
    return found


@settings(max_examples=40, deadline=None)
@given(readings, st.sampled_from([(5, 5), (10, 5), (12, 4)]), st.sampled_from([None, 1, 3]), st.booleans())
def test_each_window_has_every_row_of_the_table(
    rows: list[tuple[int, int | None, int]], window: tuple[int, int], train: int | None, plain: bool
) -> None:
    rows = sorted(rows, key=lambda one: one[0])
    events = [row("devices", device=device, room=room) for device, room in DEVICES.items()]
    events += [row("readings", ts=ts, device=device, value=value) for ts, device, value in rows]
    whole, missing = answers(events, *window, train=train, rules_off=frozenset({"all"} if plain else ()))
    wanted = expected(rows, *window)
    assert Counter((r["window_end"], r["device"], r["room"], r["value"]) for r in whole) == wanted
    alone = Counter({(end, device, room): n for (end, device, room, value), n in wanted.items() if value is None})
    assert Counter((r["window_end"], r["device"], r["room"]) for r in missing) == alone
    assert [r["window_end"] for r in missing] == sorted(r["window_end"] for r in missing)


def test_what_is_missing_is_missing_from_the_table_as_it_stands_when_the_window_closes() -> None:
    events = [
        row("devices", device=1, room="attic"),
        row("readings", ts=1, device=1, value=1),
        row("devices", device=2, room="hall"),  # in time for the first window
        row("readings", ts=6, device=1, value=1),
        row("devices", op="-", device=2, room=None),
        row("devices", device=3, room="cellar"),
        row("readings", ts=11, device=3, value=1),
    ]
    _, missing = answers(events, 5, 5)
    assert [(r["window_end"], r["device"]) for r in missing] == [(instant(5), 2), (instant(10), 3), (instant(15), 1)]


COUNT = "SELECT COUNT(*) FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS]"
JOIN = "SELECT tab.k FROM tab LEFT JOIN s [RANGE 5 SECONDS SLIDE 5 SECONDS]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT tab.k FROM tab JOIN s ON tab.k = s.k", "cannot stand on the left of this join.*stream left"),
        ("SELECT tab.k FROM tab LEFT JOIN s ON tab.k = s.k", "needs a tumbling or hopping window on the stream.*5 MINUTES SLIDE"),
        ("SELECT tab.k FROM tab LEFT JOIN s [ROWS 5] ON tab.k = s.k", "needs a tumbling or hopping window"),
        (f"{JOIN} ON tab.k < s.k", "takes one equality"),
        (f"{JOIN} ON tab.k = s.v", "takes one equality.*of one type"),
        (f"{JOIN} ON tab.k = s.k AND tab.label = s.name", "takes one equality, and conditions on the stream alone"),
        (f"{JOIN} ON tab.k = s.k JOIN r ON r.k = tab.k WITHIN 1 SECOND", "a further join.*derived stream"),
        (
            "SELECT COUNT(*) FROM tab LEFT JOIN s [RANGE 5 SECONDS SLIDE 1 SECOND] ON tab.k = s.k",
            "an aggregate over.*windows that overlap.*take tumbling windows",
        ),
    ],
)
def test_what_it_cannot_do_is_said_with_the_way_on(text: str, message: str) -> None:
    with pytest.raises(Unsupported, match=f"(?s){message}"):
        plan(text)


def test_the_rules_say_that_windows_without_a_row_come_too() -> None:
    said = ["; ".join(rule for _, rule in rules_in_force(plan(text))) for text in (f"{JOIN} ON tab.k = s.k", f"{COUNT} EMIT EMPTY", COUNT)]
    assert ["windows without a row between" in one for one in said] == [True, True, False]
    assert ["a window without a row gives no result" in one for one in said] == [False, False, True]


def test_using_names_the_key_too() -> None:
    assert plan(f"{JOIN} USING (k)").physical.schema == plan(f"{JOIN} ON tab.k = s.k").physical.schema


def test_what_is_missing_tells_its_time_so_that_a_derived_stream_has_one() -> None:
    assert plan(f"{JOIN.replace('tab.k', 'tab.k, window_end')} ON tab.k = s.k WHERE s.k IS NULL").times.keys() == {"window_end"}


def test_there_is_no_tree_for_it() -> None:
    with pytest.raises(EngineError):
        plan(to_plan_object(plan(f"{JOIN} ON tab.k = s.k").bound))
