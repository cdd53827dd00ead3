"""Results over the wire: order, ends, slow readers (C34), leaks (C35), reconnection (C36), dropped streams (C38)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pyarrow as pa
import pytest
from millstream.client.errors import MillstreamError
from millstream.server.results.trains import ResultRows

from tests.support.live_server import Harness, rows_of, run, until

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT, pad TEXT) TIMESTAMP BY ts UNIT us"


def table(start: int, rows: int, pad: int = 0) -> Any:
    values = pa.array(range(start, start + rows), pa.int64())
    return pa.table({"ts": values, "v": values, "pad": pa.array(["x" * pad] * rows, pa.string())})


def test_every_row_acked_after_subscribing_is_seen_in_order_and_the_end_says_why() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s WHERE v % 2 = 0", name="even")
        subscription = await client.subscribe("even")
        for start in range(0, 1000, 100):
            ack = await client.publish("s", table(start, 100))
            assert ack.accepted == 100
        await client.finish("s")
        seen = [row["v"] async for batch in subscription for row in batch.to_pylist()]
        assert seen == list(range(0, 1000, 2))
        assert subscription.end.reason == "finished"
        assert subscription.end.counts["accepted"] == 1000
        assert subscription.end.counts["processed"] == 1000

    run(test)


def test_a_slow_reader_is_cut_off_within_its_bound_and_the_other_sees_every_row() -> None:
    bound = 1 << 20

    async def test(harness: Harness) -> None:
        publisher, slow, fast = [await harness.client() for _ in range(3)]
        await publisher.execute(STREAM)
        await publisher.submit("SELECT v, pad FROM s", name="everything")
        never_read = await slow.subscribe("everything", bytes_window=1 << 16)
        reading = await fast.subscribe("everything")
        seen: list[int] = []

        async def read() -> None:
            async for batch in reading:
                seen.extend(batch.column("v").to_pylist())

        task = asyncio.create_task(read())
        rows, total = 1000, 20_000
        for start in range(0, total, rows):
            await publisher.publish("s", table(start, rows, pad=500))
        await publisher.finish("s")
        await task
        assert seen == list(range(total))
        feed = harness.server.application.feeds["everything"].feed
        assert feed.slow_total == 1
        # What had been sent before is still taken, then the end tells why and where to resume.
        got = [v async for batch in never_read for v in batch.column("v").to_pylist()]
        assert got == list(range(len(got)))
        assert never_read.end.reason == "slow"
        again = await slow.subscribe("everything", resume_token=never_read.end.resume_token)
        rest = [v async for batch in again for v in batch.column("v").to_pylist()]
        assert sum(g.rows for g in again.gaps) + len(got) + len(rest) == total
        assert rest == list(range(total - len(rest), total))

    run(test, subscriber_bytes_max=bound, results_kept_bytes_max=4 << 20)


def test_the_same_client_id_replaces_its_subscription_and_its_old_socket_is_closed() -> None:
    async def test(harness: Harness) -> None:
        publisher = await harness.client()
        await publisher.execute(STREAM)
        await publisher.submit("SELECT v FROM s", name="everything")
        old = await harness.client(client_id="reader")
        await old.subscribe("everything")
        new = await harness.client(client_id="reader")
        other = await harness.client(client_id="other")
        subscription, second = await new.subscribe("everything"), await other.subscribe("everything")
        await until(lambda: not old.is_open, "the old connection closes")
        await publisher.publish("s", table(0, 1))
        assert await rows_of(subscription, 1) == await rows_of(second, 1) == [{"v": 0}]
        assert len(harness.server.application.feeds["everything"].feed.subscriptions) == 2

    run(test)


def test_a_stream_in_use_is_not_dropped_and_cascade_ends_its_readers_with_the_reason() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT v FROM s", name="everything")
        subscription = await client.subscribe("everything")
        with pytest.raises(MillstreamError) as caught:
            await client.execute("DROP STREAM s")
        assert caught.value.code == "in_use"
        assert "everything" in caught.value.message
        await client.execute("DROP STREAM s CASCADE")
        assert [batch async for batch in subscription] == []
        assert subscription.end.reason == "dropped"
        assert "s was dropped" in subscription.end.message
        await client.execute(STREAM)
        assert len(await client.execute("SHOW QUERIES")) == 0

    run(test)


def test_connections_that_break_off_leave_nothing_behind() -> None:
    async def test(harness: Harness) -> None:
        keeper = await harness.client()
        await keeper.execute(STREAM)
        application = harness.server.application

        def counts() -> tuple[int, ...]:
            host = application.host
            return (
                len(application.sessions), len(application.feeds), len(host.queries), len(host.network.queries),
                len(host.network.operators), len(host.network.sources["s"].log.cursors), threading.active_count(), len(asyncio.all_tasks()),
            )  # fmt: skip

        await until(lambda: len(asyncio.all_tasks()) <= 3, "the server is quiet")
        before = counts()
        for turn in range(40):
            client = await harness.client()
            answer = await client.execute("SELECT v, pad FROM s WHERE v > 1")
            await client.subscribe(answer.query)
            with pytest.raises(MillstreamError):
                await client.execute("SELECT nothing FROM s")
            if turn % 2:
                client._wire._transport.write(b"\x00\x00\x10\x00\x00")  # half a frame
            client._wire.abort()
        await until(lambda: counts() == before, f"{counts()} back to {before}")

    run(test)


def test_a_temporary_query_goes_with_its_connection_and_a_named_one_stays() -> None:
    async def test(harness: Harness) -> None:
        keeper, client = await harness.client(), await harness.client()
        await keeper.execute(STREAM)
        await client.execute("SELECT v FROM s")
        await client.submit("SELECT v FROM s", name="stays")
        assert len(await keeper.execute("SHOW QUERIES")) == 2
        await client.close()
        await until(lambda: len(harness.server.application.host.queries) == 1, "the temporary query is gone")
        assert [r["name"] for r in await keeper.execute("SHOW QUERIES")] == ["stays"]

    run(test)


def test_a_query_stopped_by_another_connection_ends_its_subscriptions_and_starts_anew() -> None:
    async def test(harness: Harness) -> None:
        client, other = await harness.client(), await harness.client()
        await client.execute(STREAM)
        query = await client.submit("SELECT v FROM s", name="everything")
        subscription = await client.subscribe(query)
        await client.publish("s", table(0, 1))
        await rows_of(subscription, 1)
        await other.execute("STOP QUERY everything")
        assert [b async for b in subscription] == []
        assert subscription.end.reason == "stopped"
        await client.publish("s", table(1, 1))
        await other.execute("START QUERY everything")
        subscription = await client.subscribe(query)
        await client.publish("s", table(2, 1))
        assert await rows_of(subscription, 1) == [{"v": 2}]

    run(test)


def test_a_paused_query_keeps_what_waits_and_goes_on() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        query = await client.submit("SELECT v FROM s", name="everything")
        subscription = await client.subscribe(query)
        await client.execute("PAUSE QUERY everything")
        await client.publish("s", table(0, 3))
        assert (await client.execute("SHOW QUERIES")).rows[0]["state"] == "paused"
        await client.execute("RESUME QUERY everything")
        assert [r["v"] for r in await rows_of(subscription, 3)] == [0, 1, 2]

    run(test)


def test_a_result_that_cannot_be_made_ends_no_other_sessions_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever publishes the row, and whoever else reads, has nothing to do with a reader whose results cannot be made."""
    to_arrow = ResultRows.to_arrow

    def fails_for_all_but_nine(rows: ResultRows) -> Any:
        if rows.columns[0].values[0] != 9:
            raise OverflowError("cannot be told")
        return to_arrow(rows)

    async def test(harness: Harness) -> None:
        publisher, broken, reader = [await harness.client() for _ in range(3)]
        await publisher.execute(STREAM)
        await publisher.submit("SELECT v FROM s", name="everything")
        doomed = await broken.subscribe("everything", format="msgpack")
        well = await reader.subscribe("everything")
        monkeypatch.setattr(ResultRows, "to_arrow", fails_for_all_but_nine)
        assert (await publisher.publish("s", table(1, 1))).accepted == 1
        assert await rows_of(well, 1) == [{"v": 1}]
        assert [row async for rows in doomed for row in rows] == []
        assert (doomed.end.reason, "OverflowError" in doomed.end.message) == ("failed", True)
        again = await broken.subscribe("everything", format="msgpack")
        assert (await publisher.publish("s", table(9, 1))).accepted == 1
        assert await anext(aiter(again)) == [{"v": 9}]
        assert await rows_of(well, 1) == [{"v": 9}]

    run(test)


def test_a_result_that_is_lost_before_it_is_kept_ends_its_readers_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(harness: Harness) -> None:
        publisher, reader = await harness.client(), await harness.client()
        await publisher.execute(STREAM)
        for name in ("lossy", "sound"):
            await publisher.submit(f"SELECT v, '{name}' AS name FROM s", name=name)
        lossy, sound = await reader.subscribe("lossy"), await reader.subscribe("sound")
        log = harness.server.application.feeds["lossy"].feed.log
        monkeypatch.setattr(log, "append", lambda *_: 1 / 0)
        assert (await publisher.publish("s", table(1, 1))).accepted == 1
        assert await rows_of(sound, 1) == [{"v": 1, "name": "sound"}]
        assert [batch async for batch in lossy] == []
        assert (lossy.end.reason, "fault of the server" in lossy.end.message) == ("failed", True)

    run(test)
