"""The archive: each accepted row in exactly one committed file, whatever the disk, the store or a kill does in between."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from millstream.client.errors import MillstreamError
from millstream.engine.language.parse import parse_statement
from millstream.server.archive import history, pieces
from millstream.server.archive.history import past_rows
from millstream.server.journal.disk import SystemDisk
from millstream.server.journal.salvage import salvage
from millstream.server.once.worker import Worker
from millstream.server.statements.fetch import fetch

from tests.support.failing_disk import FailingDisk
from tests.support.live_server import Harness, running

STREAM = "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s DELAY 2 SECONDS DURABILITY {} ARCHIVE {}"
SETTINGS: dict[str, Any] = {"archive_wait_s": 0.0, "journal_fsync_s": 0.001}
DAY_S = 86_400


def rows(start: int, stop: int, step_s: int = 1) -> list[dict[str, Any]]:
    return [{"ts": n * step_s, "k": "ab"[n % 2] if n % 5 else None, "v": n} for n in range(start, stop)]


async def settle(harness: Harness) -> None:
    """Have the disk take all that was written, and archive it."""
    application = harness.server.application
    assert application.journaling is not None
    await asyncio.to_thread(application.journaling.wait_safe)
    await application.archive()


def archive_of(harness: Harness, stream: str = "s") -> Any:
    journaling = harness.server.application.journaling
    assert journaling is not None
    assert journaling.archives is not None
    found = journaling.archives.find(stream)
    assert found is not None
    return found


def committed(harness: Harness, stream: str = "s") -> list[int]:
    """Return `v` of all rows in committed files, in arrival order."""
    archive = archive_of(harness, stream)
    tables = [pq.read_table(Path(archive.where.text) / file.path, partitioning=None) for file in archive.state.files]
    for table, file in zip(tables, archive.state.files, strict=True):
        assert table.num_rows == file.rows
    found = sorted((seq, v) for table in tables for seq, v in zip(*(table[c].to_pylist() for c in ("_arrival", "v")), strict=True))
    assert len({seq for seq, _ in found}) == len(found)
    return [v for _, v in found]


def counted_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make row groups of four rows; return the list to which each that is read adds its rows."""
    monkeypatch.setattr(pieces, "ROW_GROUP_ROWS", 4)
    read: list[int] = []

    def counted(definition: Any, batch: Any, bounds: Any, lo: int) -> Any:
        read.append(batch.num_rows)
        return past_rows(definition, batch, bounds, lo)

    monkeypatch.setattr(history, "past_rows", counted)
    return read


@pytest.mark.parametrize("level", ["journal", "sync"])
def test_rows_become_files_that_any_tool_reads_with_arrival_number_watermark_and_time(tmp_path: Path, level: str) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format(level, ""))
            await client.execute("CREATE STREAM other (v BIGINT) DURABILITY journal")
            await client.publish("s", rows(0, 3))
            await client.publish("other", [{"v": 1}])
            await client.publish("s", [{"ts": 10, "k": "x", "v": 3}, {"ts": 1, "k": "late", "v": 4}])
            await settle(harness)
            archive = archive_of(harness)
            table = ds.dataset(archive.where.text).to_table()
            assert table.column_names == ["ts", "k", "v", "_arrival", "_watermark", "_arrived_at"]
            first = table["_arrival"][0].as_py()
            assert [seq - first for seq in table["_arrival"].to_pylist()] == [0, 1, 2, 4, 5]
            marks = [None if w is None else w.timestamp() for w in table["_watermark"].to_pylist()]
            assert marks == [None, -2, -1, 0, 8]
            shown = (await client.execute("SHOW ARCHIVES")).rows[0]
            assert (shown["stream"], shown["rows"], shown["files"], shown["last_error"]) == ("s", 5, 1, None)
            assert shown["behind_bytes"] == 0
            assert "ARCHIVE" in (await client.execute("SHOW STREAMS")).rows[0]["definition"]

    asyncio.run(test())


def test_days_are_folders_small_files_are_merged_and_old_ones_go(tmp_path: Path) -> None:
    async def test() -> None:
        place = tmp_path / "place"
        async with running(data_dir=str(tmp_path / "data"), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", f"INTO '{place}' PARTITION BY DAY KEEP 2 DAYS"))
            for day in range(4):
                for part in range(9):
                    first = day * 9 + part
                    await client.publish("s", rows(first, first + 1, DAY_S // 9))
                    await settle(harness)
            archive = archive_of(harness)
            folders = {path.name for path in place.iterdir()}
            assert folders == {"day=1970-01-02", "day=1970-01-03", "day=1970-01-04"}
            assert {path.name for path in place.rglob("*.parquet")} == {Path(file.path).name for file in archive.state.files}
            assert len(archive.state.files) <= 3 * 2
            assert committed(harness) == list(range(17, 36))
            assert archive.state.complete_from_us is not None
        async with running(data_dir=str(tmp_path / "data"), **SETTINGS) as harness:
            assert committed(harness) == list(range(17, 36))
            client = await harness.client()
            await client.execute("DROP STREAM s")
            assert list(place.rglob("*.parquet"))  # they are the user's
            await client.execute(STREAM.format("journal", f"INTO '{place}'"))
            await client.publish("s", rows(0, 2))
            await settle(harness)
            assert committed(harness) == [0, 1]

    asyncio.run(test())


def test_an_archive_under_the_data_directory_goes_with_its_stream(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", ""))
            await client.publish("s", rows(0, 2))
            await settle(harness)
            assert list(tmp_path.rglob("*.parquet"))
            await client.execute("DROP STREAM s")
            assert not list(tmp_path.rglob("*.parquet"))
            assert (await client.execute("SHOW ARCHIVES")).rows == []

    asyncio.run(test())


def test_what_cannot_be_an_archive_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            for text, word in (
                ("CREATE STREAM s (v BIGINT) ARCHIVE", "DURABILITY"),
                ("CREATE STREAM s (_arrival BIGINT) DURABILITY sync ARCHIVE", "_arrival"),
                ("CREATE STREAM s (v BIGINT) DURABILITY sync ARCHIVE KEEP 0 DAYS", "KEEP"),
                ("CREATE STREAM s (v BIGINT) DURABILITY sync ARCHIVE INTO 'here'", "whole path"),
                ("CREATE STREAM s (v BIGINT) DURABILITY sync ARCHIVE INTO 'nowhere://a/b'", "ARCHIVE INTO"),
            ):
                with pytest.raises(MillstreamError, match=word):
                    await client.execute(text)
            assert (await client.execute("SHOW ARCHIVES")).rows == []
            assert (await client.execute("SHOW STREAMS")).rows == []

    asyncio.run(test())


def test_after_a_kill_at_any_write_each_row_is_in_exactly_one_committed_file(tmp_path: Path) -> None:
    disk = FailingDisk()
    copies: list[Path] = []

    def copy(operation: str, name: str) -> None:
        copies.append(tmp_path / f"kill-{len(copies)}")
        shutil.copytree(tmp_path / "data", copies[-1])

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path / "data"), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", "PARTITION BY DAY"))
            for part in range(8):
                await client.publish("s", rows(part * 3, part * 3 + 3, DAY_S // 40))
                disk.at_point = copy if part in (0, 7) else lambda operation, name: None
                await settle(harness)
                disk.at_point = lambda operation, name: None
            assert committed(harness) == list(range(24))

    async def look(directory: Path) -> None:
        async with running(data_dir=str(directory), **SETTINGS) as harness:
            await settle(harness)
            found = committed(harness)
            assert found in (list(range(3)), list(range(24))), directory
            archive = archive_of(harness)
            there = {str(path.relative_to(archive.where.text)) for path in Path(archive.where.text).rglob("*") if path.is_file()}
            assert there == {file.path for file in archive.state.files}

    asyncio.run(test())
    assert len(copies) > 30  # of writing, committing and merging
    for directory in copies:
        asyncio.run(look(directory))


def test_a_store_that_fails_holds_the_journal_until_its_bound_then_publishes_are_refused_and_all_goes_on_afterwards(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    bulk = "x" * 20_000

    async def publish(client: Any, number: int) -> str | None:
        try:
            await client.publish("s", [{"ts": number, "k": bulk, "v": number}])
        except MillstreamError as error:
            return error.code
        return None

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path), journal_bytes_max=2**20, **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", ""))
            await client.execute("CREATE STREAM plain (v BIGINT)")
            application = harness.server.application
            assert application.journaling is not None
            disk.breaks(errno.ENOSPC, wanted=lambda operation, name: ".parquet" in name)
            acked = []
            for number in range(200):
                code = await publish(client, number)
                if code is not None:
                    assert code == "storage"
                    break
                acked.append(number)
                await settle(harness)
                await application.checkpoint()
            assert 40 < len(acked) < 100
            assert (await client.publish("plain", [{"v": 1}])).accepted == 1
            shown = (await client.execute("SHOW ARCHIVES")).rows[0]
            assert shown["failures"] >= 1
            assert "space" in shown["last_error"]
            assert committed(harness) == []
            disk.is_mended()
            archive_of(harness).retry_at_us = 0
            await settle(harness)
            assert committed(harness) == acked
            assert await publish(client, 1000) is None
            assert application.journaling.journal.bytes < 2**20
            await settle(harness)
            assert committed(harness) == [*acked, 1000]

    asyncio.run(test())


def test_the_catalogue_that_refuses_a_step_takes_it_later_and_no_row_is_twice_in_it(tmp_path: Path) -> None:
    disk = FailingDisk()

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", ""))
            await client.publish("s", rows(0, 5))
            application = harness.server.application
            assert application.journaling is not None
            await asyncio.to_thread(application.journaling.wait_safe)
            disk.breaks(errno.EIO, wanted=lambda operation, name: operation == "sql", times=1)
            with pytest.raises(Exception, match="catalogue"):
                await application.archive()
            assert committed(harness) == []
            await client.publish("s", rows(5, 7))
            await settle(harness)
            assert committed(harness) == list(range(7))

    asyncio.run(test())


async def fetched(client: Any, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await client.query_once(text)).to_pylist()
    return rows


@pytest.mark.parametrize("partition", ["", "PARTITION BY DAY"])
def test_a_fetch_of_history_reads_files_and_the_journal_as_of_one_arrival_number(
    tmp_path: Path, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the process of a FETCH finds a directory that is not whole too
    counts = "SELECT window_start, k, COUNT(*) AS n, SUM(v) AS total FROM s {} [RANGE 2 DAYS SLIDE 12 HOURS] GROUP BY k"

    async def test() -> None:
        async with running(data_dir="data", **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", partition))
            await client.execute(
                "CREATE STREAM live (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s DELAY 2 SECONDS DURABILITY journal"
            )
            await client.execute("CREATE TABLE names (k TEXT, name TEXT, PRIMARY KEY (k))")
            await client.publish("names", [{"k": "a", "name": "first"}])
            for part in range(12):
                some = rows(part * 5, part * 5 + 5, DAY_S // 7)
                some += [{"ts": 0 if part % 2 else part * DAY_S // 3, "k": "late", "v": -part}]
                for stream in ("s", "live"):
                    await client.publish(stream, some)
                if part < 9:
                    await settle(harness)
            assert len(archive_of(harness).state.files) >= 2
            plain = await fetched(client, "SELECT ts, k, v FROM s HISTORY")
            assert plain == await fetched(client, "SELECT ts, k, v FROM live")
            history = counts.format("HISTORY")
            assert await fetched(client, history) == await fetched(client, counts.format("").replace("FROM s", "FROM live"))
            joined = "SELECT s.v, n.name FROM s HISTORY LEFT JOIN names n ON s.k = n.k"
            assert {row["name"] for row in await fetched(client, joined)} == {"first", None}
            bounded = "SELECT v FROM s HISTORY FROM '1970-01-03' TO '1970-01-05'"
            expected = [row["v"] for row in plain if 2 * DAY_S <= row["ts"] < 4 * DAY_S]
            assert [row["v"] for row in await fetched(client, bounded)] == expected
            merged = "SELECT a.v AS a, b.v AS b FROM s HISTORY a JOIN live b ON a.v = b.v WITHIN 1 DAY"
            itself = await fetched(client, "SELECT a.v AS a, b.v AS b FROM live a JOIN live b ON a.v = b.v WITHIN 1 DAY")
            assert {row["a"] for row in await fetched(client, merged)} == {row["a"] for row in itself}
            for text, word in (
                ("SELECT v FROM live HISTORY", "no archive"),
                ("SELECT v FROM s HISTORY FROM 'x'", "HISTORY FROM"),
                ("SELECT v FROM s HISTORY FROM '1970-01-03' TO '1970-01-02'", "before it begins"),
                ("SELECT v FROM s HISTORY TO '1970-01-03' FROM '1970-01-02'", "write HISTORY FROM earlier TO later"),
            ):
                with pytest.raises(MillstreamError, match=word):
                    await client.query_once(text)
            with pytest.raises(MillstreamError, match=r"HISTORY can stand only in a FETCH.*history = 'archive'"):
                await client.submit("SELECT v FROM s HISTORY")
            with pytest.raises(MillstreamError, match="HISTORY can stand only in a FETCH"):
                await client.execute("SELECT v FROM s HISTORY FROM '1970-01-03'")
            assert archive_of(harness).readers == 0

    asyncio.run(test())


def test_a_salvaged_directory_keeps_the_archive_and_goes_on_with_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path / "data"), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", "PARTITION BY DAY"))
            await client.publish("s", rows(0, 12, DAY_S // 5))
            await settle(harness)
            await client.publish("s", rows(12, 15, DAY_S // 5))
        made = salvage(SystemDisk(), tmp_path / "data", tmp_path / "new", lambda body: None)
        assert made.is_whole
        async with running(data_dir=str(tmp_path / "new"), **SETTINGS) as harness:
            await settle(harness)
            assert committed(harness) == list(range(15))
            client = await harness.client()
            assert [row["v"] for row in await fetched(client, "SELECT v FROM s HISTORY")] == list(range(15))

    asyncio.run(test())


def test_files_days_and_row_groups_without_rows_that_are_asked_for_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted_rows(monkeypatch)

    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", "PARTITION BY DAY"))
            for part in range(3):
                await client.publish("s", rows(part * 20, part * 20 + 20, DAY_S // 20))
                await settle(harness)
            archive = archive_of(harness)
            hour_us = 3_600_000_000
            bounds = history.TimeBounds(24 * hour_us, 24 * hour_us + 4 * hour_us)
            past = history.StoredPast(archive.where, archive.definition, archive.state, bounds)
            found = [int(v) for item in past.items() for v in item.columns[2].values]  # type: ignore[union-attr]
            assert found == [v for v in range(60) if 24 <= v * 24 / 20 < 28]
            assert read == [4]  # one row group of the second day
            read.clear()
            late = history.StoredPast(archive.where, archive.definition, archive.state)
            assert [int(v) for item in late.items(lo=41) for v in item.columns[2].values] == list(range(41, 60))  # type: ignore[union-attr]
            assert sum(read) == 20

    asyncio.run(test())


def test_a_fetch_of_history_tells_how_much_it_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    eager = "from millstream.server.once import child; child.PROGRESS_S = 0.0; child.main()"
    monkeypatch.setattr(Worker.__init__, "__defaults__", ((sys.executable, "-c", eager),))
    told: list[tuple[str, str]] = []

    async def test() -> None:
        async with running(data_dir="data", **SETTINGS) as harness:
            client = await harness.client()
            client.on_notice(lambda code, message: told.append((code, message)))
            await client.execute(STREAM.format("journal", ""))
            for part in range(4):
                await client.publish("s", rows(part * 10, part * 10 + 10))
                await settle(harness)
            assert (await fetched(client, "SELECT COUNT(*) AS n FROM s HISTORY")) == [{"n": 40}]
            assert told
            assert {code for code, _ in told} == {"progress"}
            parts = [int(message.removesuffix("% of the history is read")) for _, message in told]
            assert parts == sorted(parts)
            assert parts[-1] > 90
            told.clear()
            assert len(await fetched(client, "SELECT v FROM s")) == 40
            assert not told

    asyncio.run(test())


QUESTIONS = [
    ("SELECT k, v FROM s HISTORY WHERE {}", True),
    ("SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s HISTORY WHERE {} GROUP BY k", True),
    ("SELECT window_end, k, COUNT(*) AS n, MAX(v) AS m FROM s HISTORY [RANGE 12 HOURS SLIDE 4 HOURS] WHERE {} GROUP BY k", True),
    ("SELECT window_end, COUNT(*) AS n FROM s HISTORY [RANGE 6 HOURS SLIDE 6 HOURS] WHERE {}", True),
    ("SELECT window_end, k, COUNT(*) AS n FROM s HISTORY [SESSION 2 HOURS] WHERE {} GROUP BY k", False),
    ("SELECT v, COUNT(*) AS n FROM s HISTORY [RANGE 3 HOURS] WHERE {} GROUP BY v", True),
    ("SELECT window_end, COUNT(*) AS n FROM s HISTORY [RANGE 6 HOURS SLIDE 6 HOURS] WHERE {} EMIT EMPTY", False),
    ("SELECT a.v AS a, b.v AS b FROM s HISTORY a JOIN s HISTORY b ON a.v = b.v WITHIN 1 HOUR WHERE a.{} AND b.{}", False),
]
CONDITIONS = [
    ("v = 37", 1), ("v BETWEEN 20 AND 22", 1), ("v IN (40, 42)", 1), ("v < 5 AND v >= 3", 1), ("50 <= v", 3), ("k = 'c'", None),
    ("k > 'f'", 0), ("ts >= 86400 AND ts < 90000", 1), ("v = 7 OR v = 50", None), ("v <> 3", None), ("v = 1000", 0), ("d > 57e0", None),
    ("ts <= 9000000000000000000", None), ("ts >= -9000000000000000000", None),
]  # fmt: skip


def test_row_groups_that_do_not_meet_the_conditions_are_not_read_and_the_answers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are compared with those of the same questions where every row group is read."""
    read = counted_rows(monkeypatch)
    create = (
        "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT, d DOUBLE) TIMESTAMP BY ts UNIT s DELAY 2 HOURS DURABILITY journal ARCHIVE"
        " PARTITION BY DAY"
    )

    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(create)
            draw = random.Random(4)
            for part in range(3):
                some = [
                    {"ts": max(0, n * DAY_S // 20 - draw.choice((0, 0, 3_000, 12_000))), "k": "abcde"[n // 4 % 5], "v": n, "d": float(n)}
                    for n in range(part * 20, part * 20 + 20)
                ]
                await client.publish("s", some)
                await settle(harness)
            host = harness.server.application.host

            def asked(text: str) -> tuple[list[dict[str, Any]], int]:
                read.clear()
                statement = parse_statement(f"FETCH {text}")
                answer = fetch(host, statement, None).answer  # type: ignore[arg-type]
                return [row for batch in answer.batches for row in pa.Table.from_batches([batch]).to_pylist()], sum(read)

            for number, (question, may_prune) in enumerate(QUESTIONS):
                for condition, groups in CONDITIONS if number < 2 else CONDITIONS[number % 3 :: 3]:
                    text = question.format(condition, condition)
                    if "a.{}" in question and not condition.startswith(("v BETWEEN", "v = 1000")):
                        continue
                    found, rows_read = asked(text)
                    with monkeypatch.context() as plain:
                        plain.setattr(sys.modules[fetch.__module__], "demands_of", lambda _: ())
                        expected, all_rows = asked(text)
                    assert found == expected, text
                    assert all_rows % 60 == 0
                    if not may_prune:
                        assert rows_read == all_rows, text
                    elif groups is not None:
                        assert rows_read <= (groups + 2) * 4 < 60, text

    asyncio.run(test())
