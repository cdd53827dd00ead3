"""Processing time on the live clock (C10), start times, lifetimes, plan objects, rows without Arrow, counts that tell the truth (C42)."""

from __future__ import annotations

import datetime as dt

from tests.support.live_server import Harness, rows_of, run, until

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"


def test_a_processing_time_window_closes_by_the_clock_without_another_row() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM a (v INT)")
        await client.submit("SELECT COUNT(*) AS n FROM a [RANGE 200 MILLISECONDS SLIDE 200 MILLISECONDS]", name="counted")
        subscription = await client.subscribe("counted")
        await client.publish("a", [{"v": i} for i in range(4)])
        total = 0
        async for batch in subscription:
            total += sum(row["n"] for row in batch.to_pylist())
            if total == 4:
                break
        assert total == 4

    run(test)


def test_an_idle_stream_with_flush_closes_its_windows_after_the_silence() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM a (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s IDLE 200 MILLISECONDS FLUSH")
        await client.submit("SELECT COUNT(*) AS n FROM a [RANGE 2 SECONDS SLIDE 2 SECONDS]", name="counted")
        subscription = await client.subscribe("counted")
        await client.publish("a", [{"ts": ts, "v": 1} for ts in (0, 1, 1, 1)])
        assert await rows_of(subscription, 1) == [{"n": 4}]

    run(test)


def test_a_query_starts_when_its_time_comes_and_ends_with_its_lifetime() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="first")
        warm = await client.subscribe("first")  # the first subscription of a process imports much
        await client.publish("s", [{"ts": 0, "v": 0}])
        await rows_of(warm, 1)
        start = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2.5)
        await client.submit("SELECT v FROM s", name="later", start_at=start, lifetime=dt.timedelta(seconds=2.5))

        def state() -> str:
            return harness.server.application.host.queries.get("later").state.value

        assert state() == "submitted"
        await client.publish("s", [{"ts": 1, "v": 1}])
        await until(lambda: state() == "running", "it runs")
        subscription = await client.subscribe("later")
        await client.publish("s", [{"ts": 2, "v": 2}])
        rows = [row async for batch in subscription for row in batch.to_pylist()]
        assert rows == [{"v": 2}]
        assert subscription.end.reason == "lifetime"
        assert state() == "finished"

    run(test)


def test_a_plan_object_runs_like_the_text_it_says() -> None:
    plan = {
        "version": 1,
        "root": {
            "op": "project",
            "columns": [["w", "v * 2"]],
            "input": {"op": "select", "condition": "v > 1", "selectivity": 0.5, "input": {"op": "source", "stream": "s"}},
        },
    }

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit(plan, name="planned")
        await client.submit("SELECT v * 2 AS w FROM s WHERE v > 1", name="written")
        planned, written = await client.subscribe("planned"), await client.subscribe("written")
        await client.publish("s", [{"ts": i, "v": i} for i in range(4)])
        assert await rows_of(planned, 2) == await rows_of(written, 2) == [{"w": 4}, {"w": 6}]
        explained = await client.execute("EXPLAIN written")
        assert explained.info["plan"]["root"]["op"] == "project"

    run(test)


def test_rows_come_without_arrow_to_a_client_that_asks_for_them_so() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM d (ts TIMESTAMP, day DATE, price DECIMAL(10, 2), name TEXT) TIMESTAMP BY ts")
        await client.submit("SELECT ts, day, price, name FROM d", name="plain")
        subscription = await client.subscribe("plain", format="msgpack")
        await client.publish("d", [{"ts": "2024-05-06T12:00:00Z", "day": "2024-05-06", "price": "1.50", "name": None}])
        async for rows in subscription:
            (row,) = rows
            break
        assert (str(row["price"]), row["name"]) == ("1.50", None)

    run(test)


def test_the_counts_of_a_query_add_up_and_are_the_same_wherever_they_are_shown() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM m (ts BIGINT, x INT) TIMESTAMP BY ts UNIT s")
        await client.submit("SELECT COUNT(8 / x) AS n FROM m [RANGE 10 SECONDS SLIDE 10 SECONDS]", name="counted")
        subscription = await client.subscribe("counted")
        rows: list[dict[str, object]] = [{"ts": 1_000 + i, "x": 1 + i % 7} for i in range(946)]
        rows += [{"ts": 1_000 + i, "x": 0} for i in range(934, 946)]
        rows += [{"ts": 10, "x": 1} for _ in range(37)]
        rows += [{"ts": "soon", "x": 1} for _ in range(5)]
        ack = await client.publish("m", rows)
        assert (ack.accepted, ack.rejected_rows) == (995, 5)
        await client.finish("m")
        async for _ in subscription:
            pass
        counts = {
            "accepted": 995,
            "processed": 946,
            "late": 37,
            "partly_late": 0,
            "shed": 0,
            "failed": 12,
            "queued": 0,
            "failed_results": 0,
        }
        assert subscription.end.counts == counts
        (shown,) = (await client.execute("SHOW QUERIES")).rows
        assert {name: shown[name] for name in ("accepted", "late", "failed", "shed")} == {
            "accepted": 995,
            "late": 37,
            "failed": 12,
            "shed": 0,
        }
        (stream,) = (await client.execute("SHOW STREAMS")).rows
        assert (stream["accepted"], stream["refused"]) == (995, 5)
        assert harness.server.application.unbalanced_total == 0

    run(test)


def test_insert_select_keeps_running_for_rows_that_come_later() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.execute("CREATE STREAM t (v BIGINT)")
        await client.execute("INSERT INTO t SELECT v FROM s WHERE v > 1")
        await client.submit("SELECT v FROM t", name="fed")
        subscription = await client.subscribe("fed")
        await client.publish("s", [{"ts": i, "v": i} for i in range(4)])
        await client.execute("INSERT INTO t VALUES (9)")
        assert sorted(r["v"] for r in await rows_of(subscription, 3)) == [2, 3, 9]

    run(test)


def test_results_kept_are_had_from_the_start_and_after_a_token() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="kept")
        first = await client.subscribe("kept")
        for i in range(3):
            await client.publish("s", [{"ts": i, "v": i}])
        seen = await rows_of(first, 1)
        token = first.resume_token
        start = await client.subscribe("kept", from_start=True)
        assert [r["v"] for r in await rows_of(start, 3)] == [0, 1, 2]
        again = await client.subscribe("kept", resume_token=token)
        rest = await rows_of(again, 3 - len(seen)) if len(seen) < 3 else []
        assert [r["v"] for r in [*seen, *rest]] == [0, 1, 2]

    run(test)


def test_a_query_that_comes_after_rows_nobody_read_sees_all_that_follow() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM early (ts BIGINT, n INT) TIMESTAMP BY ts UNIT s")
        await client.publish("early", [{"ts": 1, "n": 100}, {"ts": 1, "n": 101}])
        await client.submit("SELECT n FROM early", name="first")
        await client.publish("early", [{"ts": 2, "n": 1}])
        await client.execute("STOP QUERY first")
        await client.publish("early", [{"ts": 3, "n": 102}])
        await client.submit("SELECT n FROM early", name="second")
        subscription = await client.subscribe("second")
        await client.publish("early", [{"ts": 4, "n": 2}, {"ts": 5, "n": 3}])
        await client.finish("early")
        assert [row["n"] async for batch in subscription for row in batch.to_pylist()] == [2, 3]

    run(test)
