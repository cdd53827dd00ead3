"""A data directory whose checkpoint an earlier build wrote: its queries go on with what they held, or it is not used and said so."""

from __future__ import annotations

import asyncio
import sqlite3
import tarfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.runtime import fork
from millstream.server.app import Application
from millstream.server.errors import StoreError
from millstream.server.journal.checkpoint_files import forget_before

from tests.support.kept_directory import ARCHIVE, QUERIES, begin, end, go_on, rows
from tests.support.live_server import running


def test_queries_go_on_from_a_kept_checkpoint_whose_journal_is_gone(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as kept:
        kept.extractall(tmp_path / "data", filter="data")
    found: dict[str, list[dict[str, Any]]] = {}
    expected: dict[str, list[dict[str, Any]]] = {}

    async def restored() -> None:
        async with running(data_dir=str(tmp_path / "data")) as harness:
            journaling = harness.server.application.host.journaling
            assert journaling is not None
            assert journaling.journal.segments[0].base > 40, "the rows before the checkpoint are in no segment"
            found.update(await end(await harness.client()))

    async def uninterrupted() -> None:
        async with running(data_dir=str(tmp_path / "other")) as harness:
            client = await begin(harness)
            await go_on(client)
            expected.update(await end(client))

    asyncio.run(restored())
    asyncio.run(uninterrupted())
    assert all(expected[name] for name in QUERIES)
    assert found == expected


def test_a_checkpoint_of_another_format_is_removed_where_the_journal_has_all_rows_and_refused_where_it_has_not(tmp_path: Path) -> None:
    directory, journal = tmp_path / "data", tmp_path / "data" / "journal"
    said: list[tuple[str, str]] = []

    async def filled() -> None:
        async with running(data_dir=str(directory)) as harness:
            client = await begin(harness)
            journaling = harness.server.application.host.journaling
            assert journaling is not None
            await harness.server.application.call(journaling.checkpoint)
            await go_on(client)

    async def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
        monkeypatch.setattr(Application, "reported", lambda _, kind, message: said.append((kind, message)))
        async with running(data_dir=str(directory)) as harness:
            return await end(await harness.client())

    asyncio.run(filled())
    (checkpoint,) = journal.glob("*.checkpoint")
    in_another_format(checkpoint)
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = asyncio.run(started(monkeypatch))
    assert [kind for kind, message in said if str(checkpoint) in message] == ["checkpoint_ignored"]
    assert not checkpoint.exists()
    assert {name: found[name] for name in ("sums", "kinds")} == {"sums": [{"n": 80, **found["sums"][0]}], "kinds": [{"n": 3}]}

    with tarfile.open(ARCHIVE) as kept:
        kept.extractall(tmp_path / "kept", filter="data")
    (needed,) = (tmp_path / "kept" / "journal").glob("*.checkpoint")
    in_another_format(needed)
    before = {path: path.read_bytes() for path in (tmp_path / "kept" / "journal").iterdir() if path.name != "durable-end"}

    async def refused() -> None:
        async with running(data_dir=str(tmp_path / "kept")):
            pass

    with pytest.raises(
        StoreError, match=r"has format 2 and this server reads format 3; .* only it knows of; start the release that wrote it"
    ):
        asyncio.run(refused())
    assert {path: path.read_bytes() for path in before} == before


def in_another_format(checkpoint: Path) -> None:
    """Let a file have the head of format 2."""
    content = checkpoint.read_bytes()
    head = content[:4] + (2).to_bytes(4, "little") + content[8:44]
    checkpoint.write_bytes(head + zlib.crc32(head).to_bytes(4, "little") + content[48:])


def test_tokens_of_a_query_that_began_anew_are_refused_after_the_next_restart_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "data"
    with tarfile.open(ARCHIVE) as kept:
        kept.extractall(directory, filter="data")
    with closing(sqlite3.connect(directory / "catalogue.sqlite")) as catalogue:
        ((former,),) = catalogue.execute("SELECT identity FROM runs WHERE key LIKE '%windows'")
    tokens: list[str] = []

    def other_plan(*_: Any) -> None:
        raise InvalidDefinition("the plan has other operators than the one whose state was kept")

    async def anew() -> None:
        async with running(data_dir=str(directory)) as harness:
            client = await harness.client()
            subscription = await client.subscribe("windows", from_start=True)
            await client.publish("s", rows(60, 80))
            await client.publish("s", [{"ts": 2 * 86_400, "k": "a", "v": 1, "x": 1.0}])
            assert await anext(subscription)
            tokens.append(subscription.resume_token or "")
            journaling = harness.server.application.host.journaling
            assert journaling is not None
            await harness.server.application.call(journaling.checkpoint)
            base = journaling.journal.segments[-1].base
            journaling.journal.drop_before(base)
            forget_before(journaling.disk, journaling.directory, base)

    async def again() -> None:
        async with running(data_dir=str(directory)) as harness:
            client = await harness.client()
            with pytest.raises(MillstreamError, match="not of this run"):
                await client.subscribe("windows", resume_token=f"m1.{former}.1.1")
            await client.subscribe("windows", resume_token=tokens[0])

    with monkeypatch.context() as patch:
        patch.setattr(fork, "restore", other_plan)
        asyncio.run(anew())
    asyncio.run(again())
