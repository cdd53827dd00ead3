"""The receipt of an answer is the exact share of its input that was seen, whatever was shed, however rows were cut, and whoever shares."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.client.receipts import Receipt, receipt_from
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.data.train import Train

from tests.support.engine_run import SECOND, SqlEngine, rows_of

CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts DELAY 2 SECONDS"
LOW = ClassNode(ClassId(1), "low", may_shed=True)
Row = tuple[int, int, int]


@dataclass
class Offered:
    """A row as it was offered: its time, W before it, whether it was kept."""

    ts: int
    watermark: int
    kept: bool


def offered(rows: list[Row], kept: set[int], delay: int = 2 * SECOND) -> list[Offered]:
    """`v` is unique, so the kept rows are known by it."""
    found, newest = [], -(2**62)
    for ts, _, v in rows:
        found.append(Offered(ts, newest - delay, v in kept))
        newest = max(newest, ts)
    return found


def receipts(trains: list[Train]) -> list[tuple[int, int]]:
    """(offered, shed) of each result row."""
    found: list[tuple[int, int]] = []
    for train in trains:
        if not train.rows:
            continue
        notes = train.notes or {}
        runs = notes.get("receipts")
        if runs is None:
            assert notes["share_seen"] == 1.0
            found += [(-1, 0)] * train.rows
            continue
        assert sum(run[0] for run in runs) == train.rows
        for rows, seen, shed, share in runs:
            assert share == pytest.approx(seen / (seen + shed))
            found += [(seen + shed, shed)] * rows
    return found


def check(expected: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    """A result that saw everything need not say of how much."""
    assert len(expected) == len(found)
    for want, have in zip(expected, found, strict=True):
        assert want[1] == have[1]
        assert have[0] == -1 or want == have


def generated(seed: int, size: int = 400, disorder: int = 6) -> list[Row]:
    dice = random.Random(seed)
    return [((i // 4 + dice.randint(-disorder, 0)) * SECOND // 2, dice.randint(0, 3), i) for i in range(size)]


def played(engine: SqlEngine, rows: list[Row], seed: int) -> None:
    """Publish in chunks of random size, with another drop ratio now and then, and let operators run now and then."""
    dice = random.Random(seed)
    at = 0
    while at < len(rows):
        size = dice.choice((1, 3, 17, 64))
        if dice.random() < 0.3:
            engine.network.set_drop_ratio("s", LOW.id, dice.choice((0.0, 0.2, 0.5, 0.9, 1.0)))
        engine.put("s", rows[at : at + size])
        at += size
        if dice.random() < 0.4:
            engine.work()
    engine.end()
    engine.work()


def run(text: str, rows: list[Row], seed: int, **how: Any) -> tuple[SqlEngine, list[Offered]]:
    engine = SqlEngine(CREATE, **how)
    engine.select("SELECT v FROM s", "kept", class_node=LOW)
    engine.select(text, "q", class_node=LOW)
    played(engine, rows, seed)
    return engine, offered(rows, {v for (v,) in engine.rows("kept")})


HOW = st.fixed_dictionaries(
    {"train": st.sampled_from([None, 1, 7]), "shuffle": st.sampled_from([None, 1, 2]), "sharing": st.booleans(), "fuse": st.booleans()}
)


def in_windows(rows: list[Offered], bounds: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of each window [start, end): rows that came before it closed, and how many of them were shed."""
    found = []
    for start, end in bounds:
        inside = [r for r in rows if start <= r.ts < end and r.watermark < end]
        found.append((len(inside), sum(not r.kept for r in inside)))
    return found


HOPPING = "SELECT window_start, window_end, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS]"


@settings(max_examples=6, deadline=None)
@given(HOW, st.integers(0, 1000))
def test_a_hopping_window_states_the_rows_that_came_before_it_closed_and_those_shed(how: dict[str, Any], seed: int) -> None:
    rows = generated(seed)
    engine, offers = run(HOPPING, rows, seed, **how)
    answers = engine.rows("q")
    check(in_windows(offers, [(a[0], a[1]) for a in answers]), receipts(engine.results["q"]))


@settings(max_examples=4, deadline=None)
@given(HOW, st.integers(0, 1000))
def test_groups_share_their_windows_receipt_behind_a_filter_and_having(how: dict[str, Any], seed: int) -> None:
    text = """SELECT k, window_start, window_end, SUM(v) AS total FROM s [RANGE 6 SECONDS SLIDE 6 SECONDS]
        WHERE v % 3 <> 0 GROUP BY k HAVING COUNT(*) > 1"""
    engine, offers = run(text, generated(seed), seed, **how)
    answers = engine.rows("q")
    check(in_windows(offers, [(a[1], a[2]) for a in answers]), receipts(engine.results["q"]))


@settings(max_examples=6, deadline=None)
@given(HOW, st.integers(0, 1000))
def test_a_session_states_the_rows_of_its_stretch_of_time(how: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    rows = [((i // 4 + (i // 60) * 20) * SECOND, dice.randint(0, 1), i) for i in range(300)]
    text = "SELECT k, window_start, window_end, COUNT(*) AS n FROM s [SESSION 4 SECONDS] GROUP BY k"
    engine, offers = run(text, rows, seed, **how)
    answers = engine.rows("q")
    expected = [(len(inside), sum(not r.kept for r in inside)) for a in answers for inside in [[r for r in offers if a[1] <= r.ts < a[2]]]]
    check(expected, receipts(engine.results["q"]))


@settings(max_examples=6, deadline=None)
@given(HOW, st.integers(0, 1000), st.sampled_from(["[RANGE 5 SECONDS]", "[ROWS 7]", "[PARTITION BY k ROWS 3]"]))
def test_a_sliding_window_states_the_rows_back_to_its_oldest(how: dict[str, Any], seed: int, window: str) -> None:
    text = f"SELECT window_start, window_end, COUNT(*) AS n FROM s {window}"
    engine, offers = run(text, generated(seed, 200), seed, **how)
    timely = [r for r in offers if r.ts >= r.watermark]
    expected = []
    for start, end, _ in engine.rows("q"):
        inside = [r for r in timely if r.ts <= end and (r.ts > start if "RANGE" in window else r.ts >= start)]
        expected.append((len(inside), sum(not r.kept for r in inside)))
    check(expected, receipts(engine.results["q"]))


def test_a_limit_per_window_keeps_the_windows_receipt() -> None:
    text = """SELECT k, window_start, window_end, COUNT(*) AS n FROM s [RANGE 6 SECONDS SLIDE 6 SECONDS]
        GROUP BY k ORDER BY n DESC LIMIT 2"""
    engine, offers = run(text, generated(3), 3)
    answers = engine.rows("q")
    check(in_windows(offers, [(a[1], a[2]) for a in answers]), receipts(engine.results["q"]))


def test_a_query_that_joins_a_synopsis_later_counts_only_what_it_was_offered() -> None:
    rows = generated(5, disorder=0)
    engine = SqlEngine(CREATE, sharing=True)
    engine.select("SELECT v FROM s", "kept", class_node=LOW)
    engine.select(HOPPING, "first", class_node=LOW)
    engine.network.set_drop_ratio("s", LOW.id, 0.4)
    engine.put("s", rows[:150], chunk=20)
    engine.work()
    engine.select(HOPPING.replace("4 SECONDS", "2 SECONDS"), "second", class_node=LOW)
    engine.put("s", rows[150:], chunk=20)
    engine.end()
    engine.work()
    offers = offered(rows, {v for (v,) in engine.rows("kept")})
    for name, seen in (("first", offers), ("second", offers[150:])):
        found = receipts(engine.results[name])
        check(in_windows(seen, [(a[0], a[1]) for a in engine.rows(name)]), found)
        assert any(shed for _, shed in found)


def test_windows_over_windows_sum_the_receipts_of_what_they_saw() -> None:
    engine = SqlEngine(CREATE)
    engine.select("SELECT v FROM s", "kept", class_node=LOW)
    text = """SELECT window_start, window_end, MAX(n) AS most FROM
        (SELECT COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS]) [RANGE 8 SECONDS SLIDE 8 SECONDS] w"""
    engine.select(text, "q", class_node=LOW)
    rows = [(i * SECOND // 8, 0, i) for i in range(800)]
    engine.network.set_drop_ratio("s", LOW.id, 0.25)
    engine.put("s", rows, chunk=50)
    engine.end()
    engine.work()
    kept = {v for (v,) in engine.rows("kept")}
    expected = []
    for start, end, _ in engine.rows("q"):
        inside = [r for r in rows if start <= r[0] < end]
        expected.append((len(inside), sum(r[2] not in kept for r in inside)))
    assert receipts(engine.results["q"]) == expected


def test_the_share_of_a_join_is_the_product_of_its_sides() -> None:
    engine = SqlEngine(CREATE, CREATE.replace("STREAM s", "STREAM r"))
    text = """SELECT window_start, window_end, COUNT(*) AS n FROM
        (SELECT s.ts AS ts, s.v AS v FROM s JOIN r ON s.k = r.k WITHIN 1 SECOND) [RANGE 20 SECONDS SLIDE 20 SECONDS] j"""
    engine.select(text, "q", class_node=LOW)
    engine.select("SELECT v FROM s", "left", class_node=LOW)
    engine.select("SELECT v FROM r", "right", class_node=LOW)
    engine.network.set_drop_ratio("s", LOW.id, 0.5)
    engine.network.set_drop_ratio("r", LOW.id, 0.25)
    rows = [(i * SECOND // 8, i % 2, i) for i in range(800)]
    for at in range(0, 800, 40):
        engine.put("s", rows[at : at + 40])
        engine.put("r", rows[at : at + 40])
        engine.work()
    engine.end()
    engine.work()
    shares = []
    for start, end, _ in engine.rows("q"):
        inside = [r for r in rows if start <= r[0] < end]
        share = 1.0
        for side in ("left", "right"):
            kept = {v for (v,) in engine.rows(side)}
            share *= sum(r[2] in kept for r in inside) / len(inside)
        shares.append(share)
    told = [run[3] for train in engine.results["q"] if train.rows for run in (train.notes or {})["receipts"] for _ in range(run[0])]
    assert told == pytest.approx(shares)


def test_a_selection_states_the_share_of_what_came_since_its_last_result() -> None:
    engine = SqlEngine(CREATE)
    engine.select("SELECT v FROM s WHERE v % 10 = 0", "q", class_node=LOW)
    rows = [(i * SECOND, 0, i) for i in range(1000)]
    for at in range(0, 1000, 25):
        engine.network.set_drop_ratio("s", LOW.id, (at % 3) * 0.4)
        engine.put("s", rows[at : at + 25])
        engine.work()
    engine.end()
    engine.work()
    told = [train.notes or {} for train in engine.results["q"]]
    assert sum(notes.get("shed_rows", 0) for notes in told) == engine.account("q")["s"].shed
    assert all(0.0 <= notes["share_seen"] <= 1.0 for notes in told)


def told_of(text: str) -> list[Receipt]:
    """Shed nothing of the first window of ten rows and half of the second; return the receipts of the results."""
    engine = SqlEngine(CREATE, CREATE.replace("STREAM s", "STREAM t"))
    engine.select(text, "q", class_node=LOW)
    for at in range(0, 40, 4):
        for stream in "st":
            engine.network.set_drop_ratio(stream, LOW.id, 0.0 if at < 10 else 0.5)
            engine.put(stream, [((at + i) * SECOND, 0, at + i) for i in range(4)])
        engine.work()
    engine.end()
    engine.work()
    found = [receipt_from(train.notes or {}, train.rows) for train in engine.results["q"] if train.rows]
    return [one for one in found if one is not None]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x.v AS v FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] AS x JOIN t [RANGE 10 SECONDS SLIDE 10 SECONDS] AS y ON x.v = y.v",
        "SELECT v FROM s",
        "SELECT k, COUNT(*) AS n FROM s GROUP BY k EMIT CHANGES",
    ],
    ids=["join", "selection", "changes"],
)
def test_rows_that_belong_to_no_closed_window_have_no_share_but_the_batchs(text: str) -> None:
    told = told_of(text)
    assert any(receipt.share_seen < 1.0 for receipt in told)
    for receipt in told:
        assert receipt.of_batch
        assert [set(column) for column in receipt.rows().to_pydict().values()] == [{None}] * 3


def test_rows_of_a_window_have_its_own_share_whatever_the_batchs_is() -> None:
    told = told_of("SELECT window_end, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]")
    shares = [share for receipt in told for share in receipt.rows().to_pydict()["share_seen"]]
    assert not any(receipt.of_batch for receipt in told)
    assert shares[0] == 1.0
    assert max(shares[1:]) < 1.0


def test_a_class_that_is_never_shed_pays_nothing_and_states_nothing() -> None:
    engine = SqlEngine(CREATE)
    delta = engine.select(HOPPING, "q")
    engine.select(HOPPING, "low", class_node=LOW)
    engine.put("s", generated(1), chunk=50)
    engine.end()
    engine.work()
    assert all(train.notes is None and train.tally is None for train in engine.results["q"])
    assert all(engine.network.operators[o].keeper is None for o in delta.query.operators if o in engine.network.operators)
    assert [rows_of([t]) for t in engine.results["q"]] != []


def test_what_waits_behind_a_full_drop_stays_small() -> None:
    engine = SqlEngine(CREATE)
    engine.select(HOPPING, "q", class_node=LOW)
    engine.network.set_drop_ratio("s", LOW.id, 1.0)
    dice = random.Random(1)
    for block in range(40):
        engine.put("s", [(block * 60 * SECOND + dice.randint(0, 60 * SECOND), 0, i) for i in range(10_000)])
    log = engine.network.sources["s"].shed_logs[LOW.id, ""].log
    assert log.rows_held == 0
    assert log.bytes_held < 8_000_000
