"""What survives: rows of journaled streams and tables, and what durable queries made of them, each result once."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.client.subscriber import Lost
from millstream.engine.data.errors import InvalidDefinition
from millstream.server.app import Application
from millstream.server.durability.journaling import Journaling
from millstream.server.errors import StoreError
from millstream.server.journal.disk import SystemDisk

from tests.support.live_server import Harness, running, until

STREAM = "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s DURABILITY {}"
DERIVED = "CREATE STREAM d AS SELECT window_end AS closed, k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
QUERIES = {
    "plain": "SELECT ts, v FROM s WHERE v % 2 = 0",
    "windows": "SELECT window_start, k, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "sessions": "SELECT window_start, k, COUNT(*) AS n FROM s [SESSION 3 SECONDS] GROUP BY k",
    "joined": "SELECT a.v AS a, b.v AS b FROM s a LEFT JOIN s b ON a.k = b.k AND a.ts < b.ts WITHIN 3 SECONDS",
    "named": "SELECT s.v, n.name FROM s LEFT JOIN names n ON s.k = n.k",
    "derived": "SELECT window_start, COUNT(*) AS n FROM d [RANGE 20 SECONDS SLIDE 20 SECONDS]",
}


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ts": n // 2, "k": "ab"[n % 2] if n % 5 else None, "v": n} for n in range(start, stop)]


async def define(harness: Harness, level: str) -> Any:
    client = await harness.client()
    await client.execute(STREAM.format(level))
    await client.execute(f"CREATE TABLE names (k TEXT, name TEXT, PRIMARY KEY (k)) DURABILITY {level}")
    await client.execute(
        "CREATE STREAM d AS SELECT window_end AS closed, k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
    )
    for name, text in QUERIES.items():
        await client.submit(text, name=name)
    return client


async def taken(subscription: Any, count: int) -> list[dict[str, Any]]:
    """Take batches until there are at least `count` rows."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        batch = await asyncio.wait_for(subscription.next_item(), 10)
        found += batch.to_pylist()
    return found


async def expected_answers() -> dict[str, list[dict[str, Any]]]:
    """Return what the queries answer when nothing ever stops."""
    async with running() as harness:
        client = await define(harness, "none")
        subscriptions = {name: await client.subscribe(name) for name in QUERIES}
        await client.publish("names", [{"k": "a", "name": "first"}, {"k": "b", "name": "b"}])
        await client.publish("s", rows(0, 30))
        await client.publish("names", [{"k": "a", "name": "second"}, {"k": "b", "op": "-"}])
        await client.publish("s", rows(30, 80))
        await client.finish("s")
        await client.finish("names")
        return {name: (await subscription.to_arrow()).to_pylist() for name, subscription in subscriptions.items()}


@pytest.mark.parametrize("level", ["journal", "sync"])
def test_after_restarts_every_result_comes_once_to_whoever_resumes_with_a_token(tmp_path: Path, level: str) -> None:
    async def test() -> None:
        expected = await expected_answers()
        tokens: dict[str, str | None] = dict.fromkeys(QUERIES)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in QUERIES}
        steps = [(0, 7), (7, 30), (30, 61), (61, 80)]
        for number, (start, stop) in enumerate(steps):
            async with running(data_dir=str(tmp_path), results_kept_bytes_max=2**20) as harness:
                client = await (define(harness, level) if number == 0 else harness.client())
                options = {name: {"resume_token": t} if t is not None else {"from_start": True} for name, t in tokens.items()}
                subscriptions = {name: await client.subscribe(name, **options[name]) for name in QUERIES}
                if start == 0:
                    await client.publish("names", [{"k": "a", "name": "first"}, {"k": "b", "name": "b"}])
                if start == 30:
                    await client.publish("names", [{"k": "a", "name": "second"}, {"k": "b", "op": "-"}])
                ack = await client.publish("s", rows(start, stop))
                assert (ack.accepted, ack.durability) == (stop - start, level)
                if number == 1:  # some go on from a checkpoint, and the journal before it is gone
                    journaling = harness.server.application.host.journaling
                    assert isinstance(journaling, Journaling)
                    await harness.server.application.call(journaling.checkpoint)
                for name in ("plain", "named") if number < 3 else ():  # read a part, leave a part unread
                    batch = await asyncio.wait_for(subscriptions[name].next_item(), 10)
                    found[name] += batch.to_pylist()
                if number == 3:
                    await client.finish("s")
                    await client.finish("names")
                    for name, subscription in subscriptions.items():
                        found[name] += (await subscription.to_arrow()).to_pylist()
                tokens = {name: s.resume_token for name, s in subscriptions.items()}
        assert found == expected

    asyncio.run(test())


def test_an_ack_of_a_sync_stream_comes_after_the_disk_has_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []

    def counted(disk: SystemDisk, file: int, real: Any = SystemDisk.sync) -> None:
        forced.append(file)
        real(disk, file)

    async def test() -> None:
        async with running(data_dir=str(tmp_path), journal_fsync_s=60.0) as harness:
            client = await define(harness, "sync")
            monkeypatch.setattr(SystemDisk, "sync", counted)
            before = len(forced)
            subscription = await client.subscribe("plain")
            await client.publish("s", rows(0, 2))
            assert len(forced) > before
            await client.execute("INSERT INTO s VALUES (1, 'a', 2)")
            assert [r["v"] for r in await taken(subscription, 2)] == [0, 2]
            await client.finish("s")

    asyncio.run(test())


def test_a_torn_end_is_cut_off_and_named_and_damage_is_refused_with_file_and_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(Application, "reported", lambda _, kind, message: said.append((kind, message)))
    stopped, killed = tmp_path / "stopped", tmp_path / "killed"

    async def fill() -> None:
        async with running(data_dir=str(stopped), journal_fsync_s=60.0) as harness:
            client = await define(harness, "journal")
            for n in range(5):
                await client.publish("s", rows(n, n + 1))
            shutil.copytree(stopped, killed)

    async def count(directory: Path) -> int:
        async with running(data_dir=str(directory)) as harness:
            client = await harness.client()
            return int((await client.query_once("SELECT COUNT(*) AS n FROM s")).to_pylist()[0]["n"])

    asyncio.run(fill())
    (file,) = (killed / "journal").glob("*.journal")
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert asyncio.run(count(killed)) == 4
    (cut,) = said
    assert cut[0] == "journal_cut"
    assert cut[1].startswith(f"{file}, byte ")
    assert cut[1].endswith("rows lost: 1 at most")
    assert asyncio.run(count(killed)) == 4
    assert len(said) == 1, "what was cut off is told once"
    (file,) = (stopped / "journal").glob("*.journal")
    for damaged, told in (
        (whole[:-3], "the disk had it|that the disk had"),
        (whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :], r"byte \d+: a record is damaged"),
        (whole[:4] + b"\x09\0\0\0" + bytes(60), "has format 9 and this server reads format 2"),
        (b"", "byte 0: the file is empty"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=told) as caught:
            asyncio.run(count(stopped))
        assert "journal salvage" in str(caught.value) or "release that wrote it" in str(caught.value)


def test_the_journal_keeps_no_more_than_its_bound_and_queries_are_right_all_the_same(tmp_path: Path) -> None:
    text = "SELECT COUNT(*) AS n, SUM(v) AS total FROM s EMIT FINAL"
    blocks, size = 30, 4000

    async def fill() -> None:
        async with running(data_dir=str(tmp_path), journal_bytes_max=2**20) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal"))
            await client.execute("CREATE QUERY sums AS " + text)
            application = harness.server.application
            journaling = application.host.journaling
            assert journaling is not None
            for block in range(blocks):
                await client.publish("s", rows(block * size, (block + 1) * size))
                await application.checkpoint()
            assert journaling.journal.bytes <= 2**20
            assert journaling.journal.segments[0].base > 0
            kept = (await client.query_once("SELECT MIN(v) AS least, MAX(v) AS greatest FROM s")).to_pylist()[0]
            assert 0 < kept["least"] < kept["greatest"] == blocks * size - 1

    async def again() -> None:
        async with running(data_dir=str(tmp_path), journal_bytes_max=2**20) as harness:
            client = await harness.client()
            subscription = await client.subscribe("sums", from_start=True)
            await client.finish("s")
            total = blocks * size
            assert (await subscription.to_arrow()).to_pylist() == [{"n": total, "total": total * (total - 1) // 2}]

    asyncio.run(fill())
    asyncio.run(again())


def test_results_of_insert_select_enter_a_journaled_stream_once_over_restarts(tmp_path: Path) -> None:
    async def test() -> None:
        for number in range(3):
            async with running(data_dir=str(tmp_path)) as harness:
                client = await harness.client()
                if number == 0:
                    await client.execute(STREAM.format("journal"))
                    await client.execute("CREATE STREAM doubled (v BIGINT) DURABILITY journal")
                    await client.execute("INSERT INTO doubled SELECT 2 * v AS v FROM s")
                    await client.submit("SELECT v FROM doubled", name="out")
                await client.publish("s", rows(number * 3, number * 3 + 3))
                subscription = await client.subscribe("out", from_start=True)
                assert [r["v"] for r in await taken(subscription, 3 * number + 3)] == [2 * n for n in range(3 * number + 3)]

    asyncio.run(test())


def test_a_query_that_also_reads_a_stream_in_memory_begins_anew_and_a_change_log_is_not_continued(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal"))
            await client.execute("CREATE STREAM m (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s")
            await client.submit("SELECT v FROM s UNION ALL SELECT v FROM m", name="both")
            await client.submit("SELECT k, COUNT(*) AS n FROM s GROUP BY k", name="counts")
            subscription = await client.subscribe("counts")
            await client.publish("s", rows(1, 4))
            await taken(subscription, 1)
            token = subscription.resume_token
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            both = await client.subscribe("both", from_start=True)
            await client.publish("m", rows(7, 8))
            assert await taken(both, 1) == [{"v": 7}]
            with pytest.raises(MillstreamError, match="not of this run"):
                await client.subscribe("counts", resume_token=token)
            found = (await client.query_once("SELECT k, n FROM counts ORDER BY k")).to_pylist()
            assert found == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
            await client.execute("STOP QUERY counts")
            await client.execute("PAUSE QUERY both")
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            states = {r["name"]: r["state"] for r in await client.execute("SHOW QUERIES")}
            assert states == {"both": "paused", "counts": "stopped"}
            await client.execute("DROP STREAM s CASCADE")
            await client.execute(STREAM.format("journal"))
            assert (await client.query_once("SELECT COUNT(*) AS n FROM s")).to_pylist() in ([], [{"n": 0}])
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            assert (await client.query_once("SELECT v FROM s")).to_pylist() == []

    asyncio.run(test())


def test_a_query_whose_state_cannot_be_taken_up_counts_its_results_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), journal_bytes_max=1) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal"))
            await client.submit("SELECT v FROM s", name="q")
            before = await client.subscribe("q")
            await client.publish("s", rows(0, 5))
            await taken(before, 5)
            old = before.resume_token
            journaling = harness.server.application.host.journaling
            assert isinstance(journaling, Journaling)
            await harness.server.application.call(journaling.checkpoint)

        def differs(blueprint: object, states: object) -> None:
            raise InvalidDefinition("the plan has other operators")

        with monkeypatch.context() as patch:
            patch.setattr("millstream.server.durability.recovery.fork.restore", differs)
            async with running(data_dir=str(tmp_path), journal_bytes_max=1) as harness:
                client = await harness.client()
                with pytest.raises(MillstreamError, match="not of this run"):
                    await client.subscribe("q", resume_token=old)
                anew = await client.subscribe("q", from_start=True)
                await client.publish("s", rows(5, 8))
                assert [row["v"] for row in await taken(anew, 3)] == [5, 6, 7], "no gap before the first"
                token = anew.resume_token
                await client.publish("s", rows(8, 9))
                await until(lambda: harness.server.application.host.queries.get("q").rows_out == 4, "the row is a result")
                journaling = harness.server.application.host.journaling
                assert isinstance(journaling, Journaling)
                await harness.server.application.call(journaling.checkpoint)
        async with running(data_dir=str(tmp_path), journal_bytes_max=1) as harness:
            client = await harness.client()
            with pytest.raises(MillstreamError, match="not of this run"):
                await client.subscribe("q", resume_token=old)
            resumed = await client.subscribe("q", resume_token=token)
            await client.publish("s", rows(9, 10))
            lost = await asyncio.wait_for(resumed.next_item(), 10)
            assert isinstance(lost, Lost)
            assert lost.rows == 1, "the one that was not read, whose row the checkpoint stands for"
            assert [row["v"] for row in await taken(resumed, 1)] == [9]

    asyncio.run(test())


def test_without_a_data_directory_a_durable_stream_is_refused_with_the_mend() -> None:
    async def test() -> None:
        async with running() as harness:
            client = await harness.client()
            with pytest.raises(MillstreamError) as caught:
                await client.execute(STREAM.format("sync"))
            assert "--data-dir" in (caught.value.hint or "")

    asyncio.run(test())


def test_rows_that_come_while_a_sync_stream_is_ended_are_refused_and_the_journal_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            for name in ("s", "other"):
                await client.execute(f"CREATE STREAM {name} (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us DURABILITY sync")
            await client.submit("SELECT v FROM s", name="q")
            results = await client.subscribe("q")
            await client.publish("s", [{"ts": 1, "v": 1}])
            application = harness.server.application
            written_out = application._written_out
            refused = []

            async def then_more(name: str) -> None:
                await written_out(name)
                refused.append(application.host.intakes[name].take_rows([[2, 2]]).rejected)

            application._written_out = then_more  # type: ignore[method-assign]
            await client.finish("s")
            assert refused == [1]
            assert (await asyncio.wait_for(client.publish("other", [{"ts": 3, "v": 3}]), 5)).accepted == 1
            rows = [row async for batch in results for row in batch.to_pylist()]
            assert rows == [{"v": 1}]

    asyncio.run(test())
