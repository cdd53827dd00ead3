"""An operator restored from a snapshot goes on as if nothing had happened: the same rows, for every kind that has state."""

from __future__ import annotations

import random
from typing import Any

import pytest
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.language.recipes import SinkRecipe
from millstream.engine.operators.build import build_operator
from millstream.engine.operators.contract import Operator
from millstream.engine.state.encoding import encode
from millstream.engine.state.forms import Fields, form_named

from tests.support.engine_run import SqlEngine

STREAMS = (
    "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 3 MICROSECONDS",
    "CREATE STREAM r (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 3 MICROSECONDS",
)
QUERIES = [
    "SELECT k, COUNT(*) AS n, SUM(v) AS a, MAX(t) AS b, MEDIAN(v) AS c FROM s [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS] GROUP BY k",
    "SELECT t, AVG(v) AS n FROM s [RANGE 8 MICROSECONDS] GROUP BY t",
    "SELECT k, SUM(v) AS n FROM s [PARTITION BY k ROWS 3] GROUP BY k",
    "SELECT k, APPROX_COUNT_DISTINCT(t) AS a, APPROX_PERCENTILE(v, 0.4) AS b, APPROX_TOP_K(t, 2) AS c FROM s GROUP BY k EMIT FINAL",
    "SELECT k, COUNT(*) AS n FROM s [SESSION 4 MICROSECONDS] GROUP BY k",
    "SELECT t, COUNT(*) AS n FROM s GROUP BY t",
    "SELECT COUNT(*) AS n FROM s [LANDMARK] EMIT EVERY 5 MICROSECONDS",
    "SELECT n, COUNT(*) AS groups FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) GROUP BY n",
    "SELECT DISTINCT t FROM s",
    "SELECT k, v FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] ORDER BY v LIMIT 2",
    "SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY v) AS r FROM s [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS]",
    "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, t) AS r FROM s) WHERE r <= 3",
    "SELECT t, v, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY t ORDER BY v) AS r FROM s) WHERE r <= 2 EMIT FINAL",
    "SELECT k, v, LAG(v) OVER (PARTITION BY k) AS before FROM s",
    "DSTREAM(SELECT k, t FROM s [RANGE 5 MICROSECONDS])",
    "SELECT s.v AS a, r.v AS b FROM s LEFT JOIN r ON s.t = r.t WITHIN 6 MICROSECONDS",
    "SELECT s.v AS a, r.v AS b FROM s ASOF JOIN r ON s.k = r.k AND r.ts <= s.ts",
    "SELECT s.v AS a, r.v AS b FROM s LEFT ASOF JOIN r ON s.k = r.k AND r.ts > s.ts WITHIN 5 SECONDS",
    "SELECT t, v, (SELECT MIN(v) FROM r [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS] WHERE r.k = s.k) AS least"
    " FROM s [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS] WHERE t IN (SELECT t FROM r [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS])",
    "SELECT k, t FROM s [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS]"
    " EXCEPT SELECT k, t FROM r [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS]",
    "SELECT k FROM s UNION ALL SELECT k FROM r",
    "SELECT k, SUM(v) AS n FROM s [RANGE 10 MICROSECONDS SLIDE 4 MICROSECONDS] GROUP BY k EMIT CHANGES",
    "SELECT k, COUNT(*) AS n FROM s [SESSION 4 MICROSECONDS] GROUP BY k EMIT CHANGES",
    "SELECT k, COUNT(*) AS n FROM s [ROWS 3 SLIDE 2] GROUP BY k EMIT CHANGES",
    "ISTREAM(SELECT t, COUNT(*) AS n FROM s GROUP BY t)",
]


def run(query: str, rows: list[Any], swap_at: int | None) -> list[Any]:
    engine = SqlEngine(*STREAMS, fuse=False)  # a fused chain would go on with the logic that is swapped out
    delta = engine.select(query)
    for n, (stream, row) in enumerate(rows):
        if n == swap_at:
            engine.work()
            for operator in [o.id for o in delta.operators if o.id in engine.network.operators]:
                running = engine.network.operators[operator]
                if not running.logic.state_fields:
                    continue
                state = running.logic.snapshot()
                fresh = build_operator(running.recipe, [c.log.schema for c in running.inputs])
                fresh.restore(state)
                running.logic = fresh
        engine.put(stream, [row])
        if n % 5 == 0:
            engine.work()
    engine.end()
    engine.work()
    return engine.rows("q")


@pytest.mark.parametrize("query", QUERIES)
def test_a_restored_operator_goes_on_as_if_nothing_had_happened(query: str) -> None:
    dice = random.Random(7)
    now, rows = 0, []
    for _ in range(80):
        now += dice.randint(-1, 3)
        rows.append((dice.choice("sr"), (now, dice.choice([0, 1, 2, None]), dice.random(), dice.choice(["a", "b", None]))))
    whole = run(query, rows, None)
    assert whole
    assert run(query, rows, 43) == whole


def aggregate(query: str) -> Operator:
    engine = SqlEngine(*STREAMS)
    delta = engine.select(query)
    return engine.network.operators[next(o.id for o in delta.operators if o.kind == "aggregate")].logic


def test_a_snapshot_of_a_newer_release_or_of_another_operator_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    logic, other = aggregate(QUERIES[0]), aggregate(QUERIES[1])
    with pytest.raises(InvalidDefinition, match="the state of ordered_aggregate is not one of window_aggregate"):
        logic.restore(other.snapshot())
    with pytest.raises(InvalidDefinition, match="Sink has no state, and there is one"):
        build_operator(SinkRecipe(logic.schemas[0], "q"), logic.schemas).restore(logic.snapshot())
    form = form_named("window_aggregate", 1)
    monkeypatch.setattr(form, "version", 2)
    newer = logic.snapshot()
    monkeypatch.undo()
    with pytest.raises(InvalidDefinition, match="version 2 of the state window_aggregate is newer than this release, which reads up to 1"):
        logic.restore(newer)


def test_a_snapshot_whose_fields_are_of_other_kinds_is_refused_and_changes_nothing() -> None:
    logic = aggregate(QUERIES[0])
    before = logic.snapshot()
    fields = logic.read(before)
    odd = encode(Fields("window_aggregate", {**fields, "_keys": [1, 2]}), check=False)
    with pytest.raises(InvalidDefinition, match="the state of window_aggregate is damaged: _keys"):
        logic.restore(odd)
    assert logic.snapshot() == before


def test_an_operator_that_goes_back_to_a_snapshot_closes_windows_as_it_did() -> None:
    """What it knew of the next end of a window belongs to a later time than the snapshot."""
    before, after = (0, 3, 5, 6), (11, 13, 21)

    def fed(*times: int) -> tuple[SqlEngine, Any]:
        engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts", fuse=False)
        delta = engine.select("SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 10 MICROSECONDS SLIDE 5 MICROSECONDS] GROUP BY k")
        feed(engine, times)
        return engine, engine.network.operators[next(o.id for o in delta.operators if o.kind == "aggregate")]

    def feed(engine: SqlEngine, times: tuple[int, ...]) -> None:
        for time in times:
            engine.put("s", [(time, 1)])
            engine.work()

    engine, running = fed(*before)
    state = running.logic.snapshot()
    ahead, far = fed(*before, 100, 101, 102)
    far.logic.restore(state)
    running.logic = far.logic
    feed(engine, after)
    assert len(ahead.rows("q")) > 0
    assert engine.rows("q") == fed(*before, *after)[0].rows("q")
