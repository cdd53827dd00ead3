"""A query that comes while operators that it shares lag: what they still hold from before, marks of idleness too, is not for it."""

from __future__ import annotations

from typing import Any

import pytest
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.plan.plan import derived_stream, plan_select

from tests.support.engine_run import SECOND, SqlEngine

STREAMS = [f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts IDLE 3 SECONDS" for name in "ab"]
HOST = "SELECT a.v, b.v AS other FROM a JOIN b ON a.k = b.k WITHIN 9 SECONDS WHERE a.v > 3 AND b.v > 3"
QUERIES = (
    HOST,
    "SELECT a.v, b.v AS other FROM a LEFT ASOF JOIN b ON a.k = b.k WHERE a.v > 3",
    "SELECT window_end, COUNT(*) AS n FROM (SELECT ts FROM a WHERE v > 3 UNION ALL SELECT ts FROM b WHERE v > 3) "
    "[RANGE 2 SECONDS SLIDE 2 SECONDS] u",
)


def answers(query: str, silent: str, *, work: bool, sharing: bool) -> tuple[Any, Any]:
    engine = SqlEngine(*STREAMS, sharing=sharing)
    for name, text in enumerate(QUERIES):
        engine.select(text, f"host {name}")
    engine.tick(SECOND)
    engine.put("a", [(SECOND, 1, 5)])
    engine.put("b", [(SECOND, 1, 5)])
    engine.tick(6 * SECOND)  # both go idle
    for stream in "ab":
        if stream != silent:
            engine.put(stream, [(2 * SECOND, 1, 6)])  # wakes it
    if work:
        engine.work()
    engine.select(query, "late comer")
    for second in (3, 4, 8):
        for stream in "ab":
            if stream != silent:
                engine.put(stream, [(second * SECOND, 1, 10 + second)])
    engine.tick(7 * SECOND)
    engine.put(silent or "b", [(8 * SECOND, 1, 20)])
    engine.work()
    before_the_end = engine.rows("late comer")
    engine.end()
    engine.work()
    return before_the_end, (engine.rows("late comer"), engine.account("late comer"))


@pytest.mark.parametrize("work", [True, False])
def test_a_derived_stream_whose_sources_have_ended_takes_no_more_readers_though_it_has_rows_to_read_itself(work: bool) -> None:
    engine = SqlEngine(*STREAMS)
    planned = plan_select("SELECT ts, k, v FROM a WHERE v > 3", engine.catalog)
    engine.catalog.add(derived_stream("d", planned))
    engine.deltas["d"] = engine.network.create_derived("d", planned.physical)
    engine.network.attach(engine.deltas["d"].query.id)
    engine.put("a", [(SECOND, 1, 5)])
    engine.end("a")
    if work:
        engine.work()
    with pytest.raises(InvalidDefinition, match="stream a has ended"):
        engine.select("SELECT d.v, b.v AS other FROM d JOIN b ON d.k = b.k WITHIN 1 SECOND")


@pytest.mark.parametrize("silent", ["", "a", "b"])
@pytest.mark.parametrize("query", QUERIES)
def test_marks_from_before_a_query_neither_stop_it_nor_change_what_it_answers(query: str, silent: str) -> None:
    alone = answers(query, silent, work=True, sharing=False)
    assert alone[1][0], "there is an answer"
    for work in (True, False):
        assert answers(query, silent, work=work, sharing=True) == alone, work
