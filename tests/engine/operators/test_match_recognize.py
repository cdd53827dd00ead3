"""MATCH_RECOGNIZE (K27): random patterns, conditions and rows against a reference that tries every way through a pattern.

python -m tests.engine.operators.test_match_recognize 0 20000          # the same for seeds 0 to 19,999
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import millstream
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError
from millstream.engine.operators import row_patterns
from millstream.engine.operators.build import build_operator, kind_of
from millstream.engine.plan.explain import explain, rules_in_force
from millstream.engine.plan.plan import plan_select
from millstream.engine.plan.plan_writer import to_plan_object

from tests.support.engine_run import SqlEngine
from tests.support.live_server import rows_of, running
from tests.support.random_matches import Case


def found_by_the_engine(case: Case, dice: random.Random) -> list[tuple[Any, ...]]:
    """Run it: rows in pieces of any size, orders of any size, and now and then the operator is restored from its snapshot."""
    engine = SqlEngine(case.created, fuse=False, train=dice.choice([None, 1, 3]))
    delta = engine.select(case.text)
    waiting = list(case.rows)
    while waiting:
        size = dice.choice([1, 2, 5, 30])
        part, waiting = waiting[:size], waiting[size:]
        engine.put("s", [tuple(row.values()) for row in part])
        if dice.random() < 0.7:
            engine.work()
        if dice.random() < 0.3:
            for running in [engine.network.operators[o.id] for o in delta.operators if o.id in engine.network.operators]:
                if running.logic.state_fields:
                    fresh = build_operator(running.recipe, [c.log.schema for c in running.inputs])
                    fresh.restore(running.logic.snapshot())
                    running.logic = fresh
    engine.end()
    engine.work()
    return engine.rows("q")


def check(seed: int) -> bool:
    """Compare one case; return whether it has a match."""
    try:
        case = Case(random.Random(seed))
        engine = SqlEngine(case.created)
        engine.select(case.text)
    except Exception as error:
        if "is always the first row" in str(error):
            return False
        raise
    wanted = [tuple("nan" if v != v else v for v in row) for row in case.wanted()]
    rows = found_by_the_engine(case, random.Random(seed))
    found = [tuple(float(v) if hasattr(v, "as_tuple") else "nan" if v != v else v for v in row) for row in rows]
    assert found == wanted, f"seed {seed}: {case.text}\n{case.rows}\nfound  {found}\nwanted {wanted}"
    return bool(wanted)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_matches_are_those_of_the_reference(seed: int) -> None:
    check(seed)


CREATE = "CREATE STREAM s (ts BIGINT, k TEXT, v INT) TIMESTAMP BY ts UNIT s"
TABLE = "CREATE TABLE t (k TEXT, v INT, PRIMARY KEY (k))"
FALL = (
    "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(v) AS a, LAST(v) AS b "
    "PATTERN (x y+) WITHIN 10 SECONDS DEFINE y AS v < PREV(v))"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y+))", "WITHIN INTERVAL '1' HOUR behind PATTERN"),
        ("s [RANGE 5 SECONDS] MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x))", "over the rows of a window"),
        ("s [UNBOUNDED] MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x) WITHIN 5 SECONDS)", "contradict each other"),
        ("s MATCH_RECOGNIZE (ORDER BY v MEASURES v AS a PATTERN (x))", "in order of event time only.*ORDER BY ts"),
        ("s MATCH_RECOGNIZE (ORDER BY ts DESC MEASURES v AS a PATTERN (x))", "in order of event time only"),
        ("s MATCH_RECOGNIZE (ORDER BY ts, v MEASURES v AS a PATTERN (x))", "in order of event time only"),
        ("s MATCH_RECOGNIZE (PARTITION BY v + 1 MEASURES v AS a PATTERN (x))", "PARTITION BY takes columns"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x) DEFINE y AS v > 1)", "there is no y in PATTERN.*x"),
        ("s MATCH_RECOGNIZE (MEASURES y.v AS a PATTERN (x))", "there is no y in PATTERN"),
        ("s MATCH_RECOGNIZE (MEASURES COUNT(y.*) AS a PATTERN (x))", "there is no pattern variable y"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x) DEFINE x AS v > 1, x AS v < 9)", "defined twice"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x) SUBSET x = (x))", "is a variable already"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x) SUBSET u = (y))", "there is no y in PATTERN"),
        ("s MATCH_RECOGNIZE (MEASURES v + 1 PATTERN (x))", "a measure needs a name"),
        ("s MATCH_RECOGNIZE (PARTITION BY k MEASURES v AS k PATTERN (x))", "two columns k"),
        ("s MATCH_RECOGNIZE (PATTERN (x))", "shows nothing"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a)", "expected PATTERN"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a AFTER MATCH SKIP TO FIRST x PATTERN (x y))", "always the first row.*TO NEXT ROW"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a AFTER MATCH SKIP TO x y PATTERN (x y))", "expected PATTERN"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a AFTER MATCH SKIP TO z PATTERN (x y))", "there is no z in PATTERN"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x{3,2}))", "asks for no rows"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x+*))", "a quantifier stands behind another"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN ({- x -} y))", "an exclusion"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (^ x))", "an anchor"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x $))", "an anchor"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (PERMUTE(a, b, c, d, e, f)))", "PERMUTE of more than 5"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN ((x{40}){40}))", "1600 places"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x) DEFINE x AS v)", "must be a condition"),
        ("s MATCH_RECOGNIZE (MEASURES NEXT(v) AS a PATTERN (x))", "NEXT in MEASURES.*LEAD"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y) DEFINE y AS NEXT(x.v) > 1)", "NEXT of an earlier row"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y) DEFINE y AS FIRST(PREV(v)) > 1)", "PREV and NEXT stand around"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y) DEFINE y AS MEDIAN(x.v) > 1)", "MEDIAN in DEFINE"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y) DEFINE y AS SUM(DISTINCT v) > 1)", "SUM.DISTINCT .* in DEFINE"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y) DEFINE y AS CLASSIFIER() = 'x')", "CLASSIFIER.. in DEFINE"),
        ("s MATCH_RECOGNIZE (MEASURES LAST(v, -1) AS a PATTERN (x))", "a constant from 0 to 1000"),
        ("s MATCH_RECOGNIZE (MEASURES SUM(x.v + y.v) AS a PATTERN (x y))", "of different variables"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (x))", "WITH UNMATCHED ROWS"),
        ("s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x) DEFINE x AS v > 1 WITHIN 5 SECONDS)", "WITHIN stands behind PATTERN"),
        ("t MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x))", "over a table is not supported"),
        ("(SELECT k, COUNT(*) AS n FROM s GROUP BY k) MATCH_RECOGNIZE (MEASURES n AS a PATTERN (x))", "over a change log"),
    ],
)
def test_what_is_not_there_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        SqlEngine(CREATE, TABLE).select(f"SELECT * FROM {text}")
    assert caught.value.line == 1


def test_explain_says_what_is_held_what_grows_and_what_rules_are_in_force() -> None:
    engine = SqlEngine(CREATE)
    told = explain(plan_select(f"SELECT * FROM s {FALL}", engine.catalog))
    assert "Match x y+ by k within 10 SECONDS, one row a match, then skip past last row: y when v < PREV(v)" in told
    assert "match: the rows of matches that are not decided, for 10 SECONDS at most; 1 row a partition before these, for PREV" in told
    assert "grows with the number of partitions, as PREV needs something of each" in told
    endless = "SELECT * FROM s [UNBOUNDED] MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y+) DEFINE y AS NEXT(v) > 1)"
    assert "may grow without bound" in explain(plan_select(endless, engine.catalog))
    ahead = plan_select(
        "SELECT * FROM s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y) WITHIN 5 SECONDS DEFINE y AS NEXT(v) > 1)", engine.catalog
    )
    rules = rules_in_force(ahead)
    assert ("K27", "the watermark behind the matches is 10 SECONDS behind, as a match may wait that long") in rules
    assert "K4" in {rule for rule, _ in rules}


def test_a_plan_object_says_the_same() -> None:
    for seed in range(40):
        case = Case(random.Random(seed))
        engine = SqlEngine(case.created)
        try:
            planned = plan_select(case.text, engine.catalog)
        except EngineError:
            continue
        assert plan_select(json.loads(json.dumps(to_plan_object(planned.bound))), engine.catalog).physical.root == planned.physical.root


def test_windows_behind_matches_call_none_late_and_close() -> None:
    script = f"""{CREATE};
        CREATE STREAM falls AS SELECT k, a - b AS depth, at FROM s MATCH_RECOGNIZE (
            PARTITION BY k MEASURES FIRST(v) AS a, LAST(v) AS b, ts AS at PATTERN (x y+) WITHIN 10 SECONDS DEFINE y AS v < PREV(v));
        SELECT window_start, COUNT(*) AS n, SUM(depth) AS depth FROM falls [RANGE 10 SECONDS SLIDE 10 SECONDS];"""
    rows = [
        {"ts": ts, "k": k, "v": v}
        for ts, k, v in ((1, "p", 9), (3, "p", 5), (4, "q", 7), (9, "q", 6), (14, "q", 5), (40, "p", 1), (90, "q", 1))
    ]
    found = millstream.run_script(script, inputs={"s": rows})["q1"]
    assert [(row["n"], row["depth"]) for row in found] == [(1, 4), (1, 2)]
    assert not any("late" in message for message in found.messages)


def test_a_match_leaves_when_the_watermark_has_passed_what_decides_it() -> None:
    engine = SqlEngine(f"{CREATE} DELAY 2 SECONDS")
    engine.select(f"SELECT * FROM s {FALL}")

    def put(*rows: tuple[int, str, int]) -> list[Any]:
        engine.put("s", rows)
        engine.work()
        return [(row[1], row[2]) for row in engine.rows("q")]

    assert put((1, "p", 9), (2, "p", 5), (6, "q", 1)) == []
    assert put((7, "p", 6)) == []  # W has not passed the row that decides it
    assert put((10, "q", 8)) == [(9, 5)]
    assert put((14, "q", 3), (22, "r", 1)) == [(9, 5)]
    assert put((23, "r", 1)) == [(9, 5), (8, 3)]  # ten seconds after its first row


def test_what_cannot_be_computed_fails_at_its_row_and_is_no_match() -> None:
    engine = SqlEngine(CREATE)
    engine.select("SELECT * FROM s MATCH_RECOGNIZE (MEASURES v AS a PATTERN (x y) DEFINE x AS 10 / v > 1, y AS 10 / v > x.v / (v - 1))")
    engine.put("s", [(1, "p", 0), (2, "p", 2), (3, "p", 1), (4, "p", 5), (5, "p", 1)])
    engine.end()
    engine.work()
    assert [(int(rows.rows.seq.array()[0]), rows.reason) for _, _, rows in engine.hooks.errors]
    assert engine.account("q")["s"].failed >= 1


def test_a_match_with_no_row_to_skip_to_counts_as_failed_and_the_next_one_begins_one_row_on() -> None:
    engine = SqlEngine(CREATE)
    engine.select(
        "SELECT * FROM s MATCH_RECOGNIZE (MEASURES FIRST(ts) AS a AFTER MATCH SKIP TO y PATTERN (x y?) WITHIN 9 SECONDS DEFINE y AS v > 1)"
    )
    engine.put("s", [(1, "p", 0), (2, "p", 2), (3, "p", 1), (4, "p", 1)])
    engine.end()
    engine.work()
    assert [row[0] for row in engine.rows("q")] == [1, 2, 3, 4]
    assert engine.account("q")["s"].failed == 3


def test_more_runs_than_may_be_open_end_the_query_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_patterns, "RUNS_MAX", 5)
    engine = SqlEngine(CREATE)
    engine.failures_expected = True
    engine.select(
        "SELECT * FROM s MATCH_RECOGNIZE (MEASURES v AS a PATTERN ((x | y)+ z) WITHIN 99 SECONDS DEFINE z AS v > 99 AND SUM(x.v) > 1000)"
    )
    engine.put("s", [(n, "p", 2**n) for n in range(5)])
    engine.end()
    engine.work()
    assert [str(error) for error in engine.hooks.failures if "has more than 5 ways to go on with a match" in str(error)]


def test_what_is_held_goes_when_it_is_decided() -> None:
    engine = SqlEngine(CREATE)
    delta = engine.select(
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k MEASURES v AS a PATTERN (x y+? z) WITHIN 10 SECONDS DEFINE x AS v = 1, z AS v = 3)"
    )
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "match")
    engine.put("s", [(n, f"k{n}", n % 2) for n in range(20)])
    engine.work()
    assert 0 < logic.state_rows() <= 8
    engine.put("s", [(n, f"k{n % 7}", 0) for n in range(20, 400)])
    engine.work()
    assert logic.state_rows() <= 1
    assert logic.state_bytes() < 20_000


def test_equal_queries_share_the_operator() -> None:
    engine = SqlEngine(CREATE, sharing=True)
    engine.select(f"SELECT * FROM s {FALL}", "q")
    before = len(engine.network.operators)
    engine.select(f"SELECT a FROM s {FALL} AS m WHERE a > 3", "other")
    kinds = [kind_of(o.recipe) for o in engine.network.operators.values()]
    assert kinds.count("match") == 1
    assert len(engine.network.operators) > before


def test_live_and_over_a_restart_and_asked_for_once(tmp_path: Path) -> None:
    query = f"SELECT * FROM s {FALL}"

    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(f"{CREATE} DURABILITY journal")
            await client.execute(f"CREATE QUERY falls AS {query}")
            await client.publish("s", [{"ts": 1, "k": "a", "v": 9}, {"ts": 2, "k": "b", "v": 1}, {"ts": 3, "k": "a", "v": 2}])
            assert [tuple(row.values()) for row in (await client.query_once(query)).to_pylist()] == [("a", 9, 2)]

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            falls = await client.subscribe("falls", from_start=True)
            await client.publish(
                "s", [{"ts": 5, "k": "a", "v": 1}, {"ts": 6, "k": "a", "v": 7}, {"ts": 9, "k": "b", "v": 0}, {"ts": 40, "k": "b", "v": 5}]
            )
            assert [tuple(row.values()) for row in await rows_of(falls, 2)] == [("a", 9, 1), ("b", 1, 0)]

    asyncio.run(first())
    asyncio.run(again())


if __name__ == "__main__":
    first, stop = int(sys.argv[1]), int(sys.argv[2])
    some = sum(check(seed) for seed in range(first, stop))
    print(f"{stop - first} cases, {some} with matches")
