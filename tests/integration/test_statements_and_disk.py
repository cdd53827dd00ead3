"""A statement that the disk does not take changes nothing, in memory or on disk; every write of every statement fails in turn."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.server.journal.store import Store

from tests.support.failing_disk import FAULTS, FailingDisk
from tests.support.live_server import Harness, running

SETUP = [
    "CREATE CLASS gold PRIORITY 2",
    "CREATE CLASS unused PRIORITY 3",
    "CREATE STREAM plain (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s",
    "CREATE STREAM kept (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s DURABILITY journal",
    "CREATE STREAM target (v BIGINT) DURABILITY sync",
    "CREATE TABLE names (k TEXT, name TEXT, PRIMARY KEY (k))",
    "CREATE STREAM derived AS SELECT ts, v FROM kept WHERE v > 0",
    "CREATE QUERY runs AS SELECT v FROM derived",
    "CREATE QUERY stopped AS SELECT v FROM plain",
    "CREATE QUERY paused AS SELECT v FROM plain",
    "INSERT INTO target SELECT v FROM kept",
    "STOP QUERY stopped",
    "PAUSE QUERY paused",
]
STATEMENTS = [
    "CREATE CLASS silver PRIORITY 3",
    "CREATE STREAM new (v BIGINT)",
    "CREATE STREAM new (v BIGINT) LATE INTO late ON ERROR INTO bad DURABILITY sync",
    "CREATE STREAM new AS SELECT v FROM kept",
    "CREATE TABLE new (k TEXT, PRIMARY KEY (k))",
    "CREATE TABLE new (k TEXT, PRIMARY KEY (k)) FROM '{folder}/keys.csv' DURABILITY sync",
    "CREATE FUNCTION twice(x BIGINT) RETURNS BIGINT FROM '{folder}/twice.py'",
    "CREATE QUERY new AS SELECT SUM(v) AS total FROM kept EMIT FINAL",
    "INSERT INTO target SELECT v + 1 FROM kept",
    "START QUERY stopped",
    "STOP QUERY runs",
    "PAUSE QUERY runs",
    "RESUME QUERY paused",
    "SET POLICY chain",
    "DROP QUERY runs",
    "DROP CLASS unused",
    "DROP TABLE names",
    "DROP STREAM kept CASCADE",
    "DROP STREAM target CASCADE",
]
FUNCTION = "def twice(x):\n    return x + x\n"


def by_statements(operation: str, name: str) -> bool:
    return threading.current_thread().name.startswith("statements")


async def code_of(client: Any, statement: str) -> str | None:
    """Execute a statement; return the code of its error, None when it went well."""
    try:
        await client.execute(statement)
    except MillstreamError as error:
        return error.code
    return None


def in_memory(harness: Harness) -> dict[str, Any]:
    """What the server has, as far as a user can tell."""
    host = harness.server.application.host
    catalog = host.catalog
    return {
        "definitions": sorted(map(str, (*catalog.streams(), *catalog.tables(), *catalog.queries(), *catalog.classes()))),
        "queries": sorted((q.name, q.state.value, q.id is not None) for q in host.queries),
        "derived": sorted((name, q.state.value) for name, q in host.derived.items()),
        "open": sorted(host.intakes),
        "sources": sorted(host.network.sources),
        "running": len(host.network.queries),
        "classes": sorted(host.class_nodes),
        "functions": sorted(host.functions),
        "kept": sorted(host.journaling.numbers) if host.journaling is not None else [],
        "policy": str(host.policy),
    }


def on_disk(directory: Path, copy: Path) -> list[Any]:
    """What a server would find that were started now."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in directory.glob("catalogue.sqlite*"):
        shutil.copy(file, copy)
    store = Store(copy)
    found = [store.definitions(), store.queries(), {key: run.began_at for key, run in store.runs().items()}, store.note("policy")]
    store.close()
    return found


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: "-".join(statement.split()[:3]))
def test_every_write_of_a_statement_fails_in_turn_and_it_is_in_force_nowhere_until_it_is_everywhere(tmp_path: Path, statement: str) -> None:
    (tmp_path / "twice.py").write_text(FUNCTION, "utf-8")
    (tmp_path / "keys.csv").write_text("k\na\nb\n", "utf-8")
    data, copy = tmp_path / "data", tmp_path / "copy"
    text = statement.format(folder=tmp_path)
    disk = FailingDisk()

    async def test() -> dict[str, Any]:
        async with running(disk=disk, data_dir=str(data)) as harness:
            client = await harness.client()
            for line in SETUP:
                await client.execute(line)
            before, kept = in_memory(harness), on_disk(data, copy)
            for point in range(100):
                disk.breaks(FAULTS[point % len(FAULTS)], point, by_statements)
                code = await code_of(client, text)
                disk.is_mended()
                if code is None:
                    break
                assert code == "storage"
                assert in_memory(harness) == before, disk.failed
                assert on_disk(data, copy) == kept, disk.failed
            assert point >= 2
            assert not disk.failed
            after = in_memory(harness)
            assert after != before
            assert on_disk(data, copy) != kept
            await client.publish("plain", [{"ts": 1, "v": 1}])
        async with running(data_dir=str(data)) as harness:
            assert in_memory(harness) == {**after, "running": in_memory(harness)["running"]}
        return after

    asyncio.run(test())


def test_two_statements_at_once_are_each_in_force_or_not(tmp_path: Path) -> None:
    disk = FailingDisk()

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path / "data")) as harness:
            clients = [await harness.client() for _ in range(2)]
            await clients[0].execute("CREATE STREAM base (v BIGINT)")
            for point in range(10):
                disk.breaks(errno.ENOSPC, point, by_statements)
                texts = [f"CREATE STREAM a{point} (v BIGINT) DURABILITY journal", f"CREATE QUERY b{point} AS SELECT v FROM base"]
                codes = await asyncio.gather(*(code_of(c, t) for c, t in zip(clients, texts, strict=True)))
                disk.is_mended()
                assert set(codes) <= {None, "storage"}
                host = harness.server.application.host
                in_force = [code is None for code in codes]
                assert [f"a{point}" in host.intakes, host.queries.find(f"b{point}") is not None] == in_force
                kept = [f"a{point}" in [d.name for d in host.store.definitions()], f"b{point}" in [q.name for q in host.store.queries()]]
                assert kept == in_force

    asyncio.run(test())


def test_a_full_database_file_is_such_a_failure_and_passes(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            store = harness.server.application.store
            store._connection.execute("PRAGMA max_page_count = 1")  # not less than there are
            codes = [await code_of(client, f"CREATE STREAM s{n} (v BIGINT) -- {'x' * 3000}") for n in range(10)]
            assert "storage" in codes
            made = [n for n, code in enumerate(codes) if code is None]
            assert [d.name for d in store.definitions()] == [f"s{n}" for n in made]
            assert sorted(harness.server.application.host.intakes) == [f"s{n}" for n in made]
            store._connection.execute("PRAGMA max_page_count = 100000")
            assert await code_of(client, f"CREATE STREAM s9 (v BIGINT) -- {'x' * 3000}") is None

    asyncio.run(test())


KILLED = [s for s in STATEMENTS if s.startswith(("CREATE STREAM new (v BIGINT) LATE", "CREATE TABLE new (k TEXT, PRIMARY KEY (k)) FROM"))]
KILLED += [s for s in STATEMENTS if s.startswith(("CREATE QUERY", "STOP", "DROP STREAM kept"))]


@pytest.mark.parametrize("statement", KILLED, ids=lambda statement: "-".join(statement.split()[:3]))
def test_a_server_killed_before_any_write_of_a_statement_has_it_whole_or_not_at_all(tmp_path: Path, statement: str) -> None:
    (tmp_path / "keys.csv").write_text("k\na\nb\n", "utf-8")
    data = tmp_path / "data"
    text = statement.format(folder=tmp_path)
    disk = FailingDisk()
    images: list[Path] = []
    is_table = "TABLE" in statement

    def keep_image(operation: str, name: str) -> None:
        """What a kill at this moment leaves: what was written is in the system's hands."""
        if by_statements(operation, name):
            images.append(tmp_path / f"image{len(images)}")
            shutil.copytree(data, images[-1])

    async def started(directory: Path) -> dict[str, Any]:
        async with running(data_dir=str(directory)) as harness:
            client = await harness.client()
            rows = (
                (await client.query_once("SELECT k FROM new")).to_pylist()
                if is_table and "new" in harness.server.application.host.intakes
                else []
            )
            return {**in_memory(harness), "rows": rows}

    async def test() -> None:
        async with running(disk=disk, data_dir=str(data)) as harness:
            client = await harness.client()
            for line in SETUP:
                await client.execute(line)
            shutil.copytree(data, tmp_path / "before")
            disk.at_point = keep_image
            await client.execute(text)
            disk.at_point = lambda operation, name: None
            shutil.copytree(data, tmp_path / "after")
        before, after = await started(tmp_path / "before"), await started(tmp_path / "after")
        assert before != after
        assert len(images) >= 2
        found = [await started(image) for image in images]
        assert all(one in (before, after) for one in found)

    asyncio.run(test())
