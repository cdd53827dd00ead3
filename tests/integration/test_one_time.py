"""FETCH: one answer now, the same as the continuous query's over the same rows (C14)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, rows_of, run

JOINS = [
    "SELECT l.k AS a, r.k AS b FROM l JOIN r ON l.k = r.k WITHIN 1 SECOND",
    "SELECT l.k AS a, r.k AS b FROM l LEFT JOIN r ON l.k = r.k WITHIN 1 SECOND",
    "SELECT l.k AS a, r.k AS b FROM l FULL JOIN r ON l.k = r.k WITHIN 1 SECOND",
    "SELECT l.k AS a, r.k AS b FROM l JOIN r ON l.k IS NOT DISTINCT FROM r.k WITHIN 1 SECOND",
]
ROWS: list[dict[str, Any]] = [{"ts": t, "k": k} for t, k in [(1, 1), (2, None), (3, 2), (11, 1), (12, 1), (25, None), (26, 2)]]


def plain(table: Any) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


async def streams(harness: Harness, *names: str) -> Any:
    client = await harness.client()
    for name in names:
        await client.execute(f"CREATE STREAM {name} (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s")
    return client


@pytest.mark.parametrize("join", JOINS)
def test_a_join_with_null_keys_answers_alike_as_continuous_query_and_once_over_the_same_rows(join: str) -> None:
    async def test(harness: Harness) -> None:
        client = await streams(harness, "l", "r")
        for name in "lr":
            await client.execute(f"CREATE QUERY {name}q AS SELECT * FROM {name}")
        await client.submit(join, name="joined")
        subscription = await client.subscribe("joined")
        for name in "lr":
            await client.publish(name, [{"ts": 0, "k": 1}, {"ts": 0, "k": None}])
        once = await client.query_once(join.replace("FROM l ", "FROM lq l ").replace("JOIN r ", "JOIN rq r "))
        for name in "lr":
            await client.finish(name)
        assert plain(await subscription.to_arrow()) == plain(once)

    run(test)


def test_tables_are_answered_from_their_standing_rows_and_the_position_is_stated() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE TABLE t (id BIGINT, k BIGINT, PRIMARY KEY (id))")
        await client.publish("t", [{"id": 1, "k": 1}, {"id": 2, "k": None}, {"id": 3, "k": 1}])
        ack = await client.publish("t", [{"id": 1, "k": 5}, {"id": 3, "op": "-"}])
        found = await client.query_once("SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k")
        assert found.to_pylist() == [{"k": 5, "n": 1}, {"k": None, "n": 1}]
        assert json.loads(found.schema.metadata[b"millstream.position"]) == ack.position
        assert (await client.query_once("SELECT id FROM t LIMIT 1")).to_pylist() == [{"id": 2}]
        assert (await client.query_once("SELECT id FROM t WHERE id > 9")).num_rows == 0

    run(test)


def test_what_the_open_windows_hold_and_what_was_answered_before_are_together_the_whole_answer() -> None:
    queries = {
        "tumbling": "SELECT window_start, k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k",
        "hopping": "SELECT window_start, SUM(k) AS total FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS]",
        "sessions": "SELECT window_start, k, COUNT(*) AS n FROM s [SESSION 5 SECONDS] GROUP BY k",
        "top": "SELECT window_start, k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k ORDER BY n DESC LIMIT 1",
        "outer": "SELECT a.ts AS a, b.ts AS b FROM s a LEFT JOIN s b ON a.k = b.k AND a.ts < b.ts WITHIN 3 SECONDS",
        "derived": "SELECT window_start, COUNT(*) AS n FROM d [RANGE 20 SECONDS SLIDE 20 SECONDS]",
    }

    async def test(harness: Harness) -> None:
        client = await streams(harness, "s")
        await client.execute(
            "CREATE STREAM d AS SELECT window_end AS closed, k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
        )
        subscriptions, once = {}, {}
        for name, text in queries.items():
            await client.submit(text, name=name)
            subscriptions[name] = await client.subscribe(name)
        ack = await client.publish("s", ROWS)
        for name, text in queries.items():
            once[name] = await client.query(name).fetch()
            assert plain(once[name]) == plain(await client.query_once(text)), "the same SELECT asks the running query"
            assert json.loads(once[name].schema.metadata[b"millstream.position"]) == ack.position
        kept = {name: await client.query_once(f"SELECT * FROM {name}") for name in queries}
        await client.finish("s")
        for name, subscription in subscriptions.items():
            whole = await subscription.to_arrow()
            assert whole.num_rows
            assert sorted(kept[name].to_pylist() + once[name].to_pylist(), key=repr) == plain(whole), name
        assert once["hopping"].num_rows

    run(test)


def test_a_query_that_gives_changes_is_answered_by_the_rows_that_stand() -> None:
    async def test(harness: Harness) -> None:
        client = await streams(harness, "s")
        text = "SELECT k, COUNT(*) AS n FROM s GROUP BY k"
        await client.submit(text, name="counts")
        await client.publish("s", ROWS)
        expected = plain(await client.query_once("SELECT * FROM counts"))
        assert expected == sorted([{"k": 1, "n": 3}, {"k": None, "n": 2}, {"k": 2, "n": 2}], key=repr)
        assert plain(await client.query("counts").fetch()) == expected
        assert plain(await client.query_once(text)) == expected

    run(test)


def test_a_select_over_rows_that_nobody_holds_is_refused_with_what_to_register() -> None:
    async def test(harness: Harness) -> None:
        client = await streams(harness, "s")
        with pytest.raises(MillstreamError) as caught:
            await client.query_once("SELECT COUNT(*) AS n FROM s")
        assert "no rows of stream s are held" in caught.value.message
        assert "CREATE QUERY name AS SELECT * FROM s" in (caught.value.hint or "")
        await client.execute("CREATE QUERY q AS SELECT k FROM s")
        await client.publish("s", ROWS)
        for text, part in [
            ("SELECT COUNT(*) AS n FROM q [RANGE 1 SECOND SLIDE 1 SECOND]", "no event time"),
            ("SELECT k FROM q EMIT CHANGES", "FETCH answers once"),
            ("ISTREAM(SELECT k FROM q)", "no meaning in FETCH"),
            ("SELECT k FROM nowhere", "there is no stream or table nowhere"),
        ]:
            with pytest.raises(MillstreamError, match=part):
                await client.query_once(text)
        assert (await client.query_once("SELECT k, COUNT(*) AS n FROM q GROUP BY k ORDER BY n DESC, k LIMIT 1")).to_pylist() == [
            {"k": 1, "n": 3}
        ]
        await client.execute("STOP QUERY q")
        with pytest.raises(MillstreamError, match="stopped"):
            await client.query("q").fetch()

    run(test)


def test_a_fetch_under_load_stands_at_one_point_in_arrival_order() -> None:
    async def test(harness: Harness) -> None:
        client = await streams(harness, "s")
        await client.submit("SELECT k, COUNT(*) AS n FROM s GROUP BY k", name="counts")
        other = await harness.client()
        publisher = await client.publisher("s")
        for block in range(40):
            await publisher.send([{"ts": block, "k": k} for k in range(50)])
            if block % 10 == 5:
                counts = {row["n"] for row in (await other.query("counts").fetch()).to_pylist()}
                assert len(counts) <= 1, "a block of 50 keys is one publish, in or out as a whole"
        await publisher.close()

    run(test)


def test_kept_results_can_be_joined_and_windowed_by_their_event_time() -> None:
    async def test(harness: Harness) -> None:
        client = await streams(harness, "s")
        await client.execute("CREATE QUERY q AS SELECT ts, k FROM s")
        window = "SELECT window_start, COUNT(*) AS n FROM {} [RANGE 10 SECONDS SLIDE 10 SECONDS]"
        await client.submit(window.format("s"), name="counts")
        subscription = await client.subscribe("counts")
        await client.publish("s", ROWS)
        once = await client.query_once(window.format("q"))
        await client.finish("s")
        assert once.to_pylist() == (await subscription.to_arrow()).to_pylist()
        assert await rows_of(await client.subscribe("counts", from_start=True), 3) == once.to_pylist()

    run(test)
