"""Shedding as clients see it: receipts with the results, news for publishers, counts that agree; others are not touched."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow as pa
import pytest
from millstream.client import cli, receipt_of
from millstream.server.net.metrics import ServerCollector

from tests.support.live_server import Harness, run, until

WINDOW = "SELECT window_start, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"


async def set_up(harness: Harness) -> None:
    client = await harness.client()
    await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
    await client.execute("CREATE CLASS low PRIORITY 1 SHED")
    await client.submit(WINDOW, name="low_counts", class_="low")
    await client.submit(WINDOW, name="all_counts")


def shed(harness: Harness, ratio: float) -> None:
    host = harness.server.application.host
    host.network.set_drop_ratio("s", host.class_nodes["low"].id, ratio)


def test_a_result_states_what_its_window_saw_and_the_publisher_hears_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    async def test(harness: Harness) -> None:
        await set_up(harness)
        client = await harness.client()
        notices: list[tuple[str, str]] = []
        client.on_notice(lambda code, message: notices.append((code, message)))
        low, everything = await client.subscribe("low_counts"), await client.subscribe("all_counts")
        await client.publish("s", [{"ts": n // 100, "v": n} for n in range(1000)])
        shed(harness, 0.5)
        await client.publish("s", [{"ts": 10 + n // 100, "v": n} for n in range(1000)])
        shed(harness, 0.0)
        await client.publish("s", [{"ts": 20 + n // 100, "v": n} for n in range(1000)])
        await client.finish("s")
        receipts, counts = [], []
        async for batch in low:
            receipt = receipt_of(batch)
            assert receipt is not None
            counts += batch.to_pydict()["n"]
            receipts += receipt.rows().to_pylist()
        lost = 2000 - counts[1] - 1000
        assert 400 < lost < 600
        assert counts == [1000, 1000 - lost, 1000]
        assert receipts[1] == {"rows_seen": 1000 - lost, "rows_shed": lost, "share_seen": pytest.approx(1 - lost / 1000)}
        assert [r["share_seen"] for r in (receipts[0], receipts[2])] == [1.0, 1.0]
        assert {receipt_of(b) async for b in everything} == {None}
        assert notices == [("shed", f"s: rows shed: {lost} before class low")]
        streams = {row["name"]: row for row in await client.execute("SHOW STREAMS")}
        assert (streams["s"]["accepted"], streams["s"]["shed"]) == (3000, lost)
        classes = {row["name"]: row for row in await client.execute("SHOW CLASSES")}
        assert (classes["low"]["shed"], classes["low"]["accepted"]) == (lost, 3000)
        assert classes["default"]["shed"] == 0
        assert not harness.server.application.host.unbalanced()
        capfd.readouterr()
        await asyncio.to_thread(
            cli.run, ["tail", "low_counts", "--from-start", "--receipts", "--format", "json", "--server", harness.address]
        )
        told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [(t["n"], t["rows_shed"]) for t in told] == [(1000, 0), (1000 - lost, lost), (1000, 0)]
        await asyncio.to_thread(cli.run, ["tail", "low_counts", "--from-start", "--format", "csv", "--server", harness.address])
        out, err = capfd.readouterr()
        assert out.splitlines()[0] == "window_start,n"
        assert "rows are being shed" in err

    run(test)


@pytest.mark.parametrize("level", ["journal", "sync"])
def test_a_publisher_to_a_durable_stream_is_told_what_of_its_acked_rows_was_shed(tmp_path: Path, level: str) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        notices: list[tuple[str, str]] = []
        client.on_notice(lambda code, message: notices.append((code, message)))
        await client.execute("CREATE CLASS low PRIORITY 1 SHED")
        await client.execute(f"CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us DURABILITY {level}")
        await client.submit("SELECT v FROM s WITH (class = 'low')", name="q")
        shed(harness, 0.5)
        async with await client.publisher("s") as channel:
            await channel.send([{"ts": n, "v": n} for n in range(500)])
            assert (await channel.flush()).accepted == 500
            for n in range(500, 1000):
                await channel.send([{"ts": n, "v": n}])
        lost = harness.server.application.host.counts(harness.server.application.host.queries.get("q"))["shed"]
        assert 0 < lost < 1000
        assert {code for code, _ in notices} == {"shed"}
        assert sum(int(message.split()[3]) for _, message in notices) == lost

    run(test, data_dir=str(tmp_path))


def test_a_reader_of_a_class_that_may_be_shed_makes_it_shed_and_never_a_publisher_wait() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        host = harness.server.application.host
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT, t TEXT) TIMESTAMP BY ts UNIT s")
        await client.execute("CREATE CLASS low PRIORITY 1 SHED")
        await client.submit("SELECT * FROM s", name="low", class_="low")
        reader = await harness.client()
        slow = await reader.subscribe("low")
        text = "x" * 1000
        batch = pa.table({"ts": [1] * 1000, "v": list(range(1000)), "t": [text] * 1000})
        for _ in range(40):
            await client.publish("s", batch)
        host.network.shed_logs.press(host.network.sources["s"], host.class_nodes["low"].id, 1.0)
        before = host.counts(host.queries.get("low"))["shed"]
        await client.publish("s", batch)
        assert host.counts(host.queries.get("low"))["shed"] == before + 1000
        assert not host.is_pressed("s")
        await until(lambda: not harness.server.application.feeds.shedding or slow.end is not None, "the reader is caught up or gone")

    run(test, subscriber_bytes_max=2**20)


def test_what_is_shed_upstream_is_not_rebuilt_and_states_its_share_all_the_same(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        host = harness.server.application.host
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s DURABILITY journal")
        await client.execute("CREATE CLASS low PRIORITY 1 SHED")
        await client.execute("CREATE STREAM odd AS SELECT ts, v FROM s WHERE v % 2 = 1 WITH (class = 'low')")
        await client.submit("SELECT COUNT(*) AS n FROM odd [RANGE 10 SECONDS SLIDE 10 SECONDS]", name="counts")
        await client.submit("SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]", name="exact")
        assert host.journaling is not None
        assert not host.journaling.keeps_all_of(host.queries.get("counts"))
        assert host.journaling.keeps_all_of(host.queries.get("exact"))
        counts = await client.subscribe("counts")
        shed(harness, 0.5)
        await client.publish("s", [{"ts": n // 100, "v": n} for n in range(1000)])
        await client.finish("s")
        batches = [batch async for batch in counts]
        receipt = receipt_of(batches[0])
        assert receipt is not None
        ((seen, lost, share),) = [tuple(row.values()) for row in receipt.rows().to_pylist()]
        assert (seen + lost, lost) == (1000, host.network.sources["s"].shed_logs[host.class_nodes["low"].id, ""].shed)
        assert share == pytest.approx(seen / 1000)
        accounts = {row["name"]: row for row in await client.execute("SHOW QUERIES")}
        assert (accounts["exact"]["accepted"], accounts["exact"]["shed"]) == (1000, 0)
        streams = {row["name"]: row for row in await client.execute("SHOW STREAMS")}
        assert (streams["odd"]["accepted"], streams["odd"]["shed"]) == (1000, lost)

    run(test, data_dir=str(tmp_path))


def test_a_class_that_may_be_shed_loses_nothing_before_a_derived_stream_that_is_never_shed(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        host = harness.server.application.host
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s DURABILITY journal")
        await client.execute("CREATE CLASS low PRIORITY 1 SHED")
        await client.execute("CREATE STREAM odd AS SELECT ts, v FROM s WHERE v % 2 = 1")
        await client.submit("SELECT COUNT(*) AS n FROM odd [RANGE 10 SECONDS SLIDE 10 SECONDS]", name="counts", class_="low")
        await client.submit("SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]", name="lossy", class_="low")
        assert host.journaling is not None
        assert host.journaling.keeps_all_of(host.queries.get("counts"))
        assert not host.journaling.keeps_all_of(host.queries.get("lossy"))
        counts = await client.subscribe("counts")
        shed(harness, 0.5)
        await client.publish("s", [{"ts": n // 100, "v": n} for n in range(1000)])
        await client.finish("s")
        batches = [batch async for batch in counts]
        assert [(batch.to_pydict(), receipt_of(batch)) for batch in batches] == [({"n": [500]}, None)]
        streams = {row["name"]: row for row in await client.execute("SHOW STREAMS")}
        assert (streams["odd"]["accepted"], streams["odd"]["shed"]) == (1000, 0)
        assert not host.unbalanced()

    run(test, data_dir=str(tmp_path))


def test_rows_at_which_shed_by_fails_are_counted_and_told() -> None:
    async def test(harness: Harness) -> None:
        await set_up(harness)
        client = await harness.client()
        # Never computed at every row: a condition decides. And one that fails where v is 3.
        await client.submit("SELECT v FROM s", name="fine", class_="low", shed_by="CASE WHEN v < 0 THEN 1 / 0 ELSE v END")
        await client.submit("SELECT v FROM s", name="bad", class_="low", shed_by="1 / (v - 3)")
        await client.publish("s", [{"ts": n, "v": n % 10} for n in range(40)])
        rows = {row["promise"]: row["measured"] for row in await client.execute("EXPLAIN QOS bad")}
        assert rows["shedding"].startswith("0 of 40 rows shed; shed_by failed at 4 rows, which are worth least (")
        fine = {row["promise"]: row["measured"] for row in await client.execute("EXPLAIN QOS fine")}
        assert fine["shedding"] == "0 of 40 rows shed"
        families = {family.name: family for family in ServerCollector(harness.server.application).collect()}
        counted = {sample.labels["query"]: sample.value for sample in families["millstream_query_shed_by_failed"].samples}
        assert counted == {"low_counts": 0, "all_counts": 0, "fine": 0, "bad": 4}

    run(test)
