"""Tables that are polled: changes of the file reach queries, what cannot be read changes nothing, SHOW TABLES tells, polls end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from millstream.client.connection import AsyncClient
from millstream.client.errors import MillstreamError
from millstream.server.errors import ConfigError

from tests.support.live_server import Harness, rows_of, run, running, until

TABLE = "CREATE TABLE names (k BIGINT, name TEXT, PRIMARY KEY (k)) FROM '{}' REFRESH"
STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT us"
JOIN = "SELECT s.k AS k, n.name AS name FROM s LEFT JOIN names n ON s.k = n.k"


def write(file: Path, text: str) -> None:
    """Replace the file whole, as its writer should."""
    part = file.with_suffix(".part")
    part.write_text(text, "utf-8")
    part.replace(file)


async def shown(client: AsyncClient) -> dict[str, Any]:
    return (await client.execute("SHOW TABLES")).rows[0]


async def held(client: AsyncClient) -> list[tuple[int, str | None]]:
    return sorted((row["k"], row["name"]) for row in (await client.execute("FETCH SELECT k, name FROM names")).rows)


async def comes(harness: Harness, client: AsyncClient, wanted: Any, of: Any = held) -> None:
    async with asyncio.timeout(30):
        while await of(client) != wanted:
            await asyncio.sleep(0.02)


def test_changes_of_the_file_become_changes_of_the_table(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    write(file, "k,name\n1,one\n2,two\n3,three\n")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(TABLE.format(file) + " MIN FRESHNESS 0.5")
        await client.execute(STREAM)
        await client.submit(JOIN, name="joined")
        subscription = await client.subscribe("joined")
        await client.publish("s", [{"ts": 1, "k": 1}, {"ts": 1, "k": 3}])
        assert [row["name"] for row in await rows_of(subscription, 2)] == ["one", "three"]
        accepted = harness.server.application.host.intakes["names"].accepted_total
        write(file, "k,name\n4,four\n1,uno\n2,two\n4,vier\n")
        await comes(harness, client, [(1, "uno"), (2, "two"), (4, "vier")])
        await client.publish("s", [{"ts": 2, "k": 1}, {"ts": 2, "k": 3}])
        assert [row["name"] for row in await rows_of(subscription, 2)] == ["uno", None]
        # Row 2 is as it was, so it is no change; 1, 4 and the deletion of 3 are.
        assert harness.server.application.host.intakes["names"].accepted_total - accepted == 3
        row = await shown(client)
        assert row["changes"] == 1
        assert row["polls"] >= 1
        assert 0.0 < row["freshness"] <= 1.0
        assert row["poll_error"] is None
        write(file, "k,name\n")
        await comes(harness, client, [])

    run(test)


def test_what_cannot_be_read_changes_nothing_and_is_told_until_it_can(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    write(file, "k,name\n1,one\n")

    async def error(client: AsyncClient) -> bool:
        return (await shown(client))["poll_error"] is not None

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(TABLE.format(file))
        write(file, "k,name\n2,two\nx,half a r")
        await comes(harness, client, True, error)
        assert "1 of 2 rows refused" in (await shown(client))["poll_error"]
        assert await held(client) == [(1, "one")]
        file.unlink()
        async with asyncio.timeout(30):
            while "No such file" not in (await shown(client))["poll_error"]:
                await asyncio.sleep(0.02)
        assert await held(client) == [(1, "one")]
        write(file, "k,name\n2,two\n")
        await comes(harness, client, [(2, "two")])
        await comes(harness, client, False, error)

    run(test)


def test_a_file_that_is_as_it_was_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "names.csv"
    write(file, "k,name\n1,one\n")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(TABLE.format(file))
        from millstream.server.watch import refreshing

        reads: list[str] = []
        right = refreshing.read_table_file
        monkeypatch.setattr(refreshing, "read_table_file", lambda *given: reads.append("read") or right(*given))

        async def polled(client: AsyncClient) -> bool:
            return bool((await shown(client))["polls"] >= 3)

        await comes(harness, client, True, polled)
        assert len(reads) <= 1
        assert (await shown(client))["changes"] == 0

    run(test)


def test_a_read_that_hangs_is_left_behind_and_others_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = tmp_path / "names.csv", tmp_path / "others.csv"
    write(file, "k,name\n1,one\n")
    write(other, "k,name\n1,one\n")

    async def test(harness: Harness) -> None:
        import threading

        from millstream.server import aside
        from millstream.server.watch import refreshing

        released = threading.Event()
        right = refreshing.read_table_file

        def hang(host: Any, definition: Any, given_up: Any) -> Any:
            if definition.name == "names":
                released.wait(60)
            return right(host, definition, given_up)

        monkeypatch.setattr(aside, "POLL_S_MAX", 0.05)
        monkeypatch.setattr(refreshing, "read_table_file", hang)
        client = await harness.client()
        await client.execute(TABLE.format(file))
        await client.execute(TABLE.format(other).replace("names", "others"))
        refresh = harness.server.application.host.refresh
        assert refresh is not None
        try:
            await until(
                lambda: (found := refresh.standing("names")) is not None and found.error is not None and found.polls >= 3, "failures"
            )
            assert sum(thread.name == "poll" for thread in threading.enumerate()) == 1
            await until(lambda: (found := refresh.standing("others")) is not None and found.polls >= 1, "a poll of the other table")
        finally:
            released.set()
        await until(lambda: (found := refresh.standing("names")) is not None and found.error is None, "the end of the failures")

    run(test)


def test_polls_end_with_the_table_and_go_on_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    write(file, "k,name\n1,one\n")

    async def first() -> None:
        async with running(data_dir=str(tmp_path / "data")) as harness:
            client = await harness.client()
            await client.execute(TABLE.format(file) + " DURABILITY journal")

    async def again() -> None:
        write(file, "k,name\n1,uno\n")
        async with running(data_dir=str(tmp_path / "data")) as harness:
            client = await harness.client()
            await comes(harness, client, [(1, "uno")])
            await client.execute("DROP TABLE names")
            refresh = harness.server.application.host.refresh
            assert refresh is not None
            assert refresh.wake_ns() is None
            await client.execute("CREATE TABLE names (k BIGINT, name TEXT, PRIMARY KEY (k))")
            assert (await shown(client))["freshness"] is None

    async def whole() -> None:
        await asyncio.wait_for(first(), 60)
        await asyncio.wait_for(again(), 60)

    asyncio.run(whole())


def test_what_is_fetched_is_polled_more(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.csv", "k,name\n1,one\n")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for name in ("a", "b"):
            await client.execute(f"CREATE TABLE {name} (k BIGINT, name TEXT, PRIMARY KEY (k)) FROM '{tmp_path / name}.csv' REFRESH")
        await client.execute(STREAM)
        await client.submit("SELECT s.k AS k, n.name AS name FROM s JOIN b n ON s.k = n.k", name="joined")
        subscription = await client.subscribe("joined")
        await client.publish("s", [{"ts": 1, "k": 1}] * 50)
        await rows_of(subscription, 50)
        await client.execute("FETCH SELECT * FROM a")
        host = harness.server.application.host
        refresh = host.refresh
        assert refresh is not None
        poller = refresh._poller  # type: ignore[attr-defined]
        await until(lambda: poller.copies["b"].access > 40.0, "the rows that the join took")
        assert 0.9 < poller.copies["a"].access <= 1.0

    run(test)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) REFRESH", "REFRESH needs a file"),
        ("CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) FROM '{}' REFRESH MIN FRESHNESS 1", "above 0 and below 1, not 1 "),
        ("CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) FROM '{}' REFRESH MIN 3", "FRESHNESS"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "t.csv"
    write(file, "k\n1\n")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        with pytest.raises(MillstreamError, match=message):
            await client.execute(text.format(file))

    run(test)


def test_a_policy_that_is_not_there_ends_the_start() -> None:
    with pytest.raises(ConfigError, match="unknown refresh policy 'fresher'"):
        run(lambda _: asyncio.sleep(0), refresh="fresher")


def test_the_folder_that_files_may_lie_in_holds_for_polls_too(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "secret.csv"
    inside.mkdir()
    write(inside / "names.csv", "k,name\n1,one\n")
    write(outside, "k,name\n1,secret\n")

    async def error(client: AsyncClient) -> bool:
        return "does not lie in" in ((await shown(client))["poll_error"] or "")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(TABLE.format(inside / "names.csv"))
        os.symlink(outside, inside / "link")
        (inside / "link").replace(inside / "names.csv")
        await comes(harness, client, True, error)
        assert await held(client) == [(1, "one")]

    run(test, files_dir=str(inside))
