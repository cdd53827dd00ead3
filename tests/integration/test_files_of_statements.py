"""Files that statements name: regular ones within a bound, read aside, so that nobody else's statement waits for them."""

from __future__ import annotations

import asyncio
import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from millstream.client.errors import MillstreamError
from millstream.server.errors import BadInput, GivenUp
from millstream.server.host import server_files
from millstream.server.host.server_files import FileRules, open_bounded, open_regular

from tests.support.live_server import Harness, run, until

TABLE = "CREATE TABLE t (k BIGINT, v TEXT, PRIMARY KEY (k)) FROM '{file}'"
FUNCTION = "CREATE FUNCTION f(x BIGINT) RETURNS BIGINT FROM '{file}'"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("k,v\n1,a\n2,b\n", "utf-8")
    (tmp_path / "f.py").write_text("def f(x):\n    return x\n", "utf-8")
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    (tmp_path / "large.csv").write_text("k,v\n" + "".join(f"{i},x\n" for i in range(200_000)), "utf-8")
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"k,v\n" + b"1,x\n" * 1_000_000))
    pq.write_table(pa.table({"k": list(range(100_000)), "v": ["x" * 100] * 100_000}), tmp_path / "dense.parquet", compression="zstd")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fifo.csv", "is a FIFO, not a regular file"),
        ("folder.csv", "is a directory"),
        ("zero.csv", "is a device"),
        ("missing.csv", "cannot read"),
        ("rows.xlsx", "cannot tell the format"),
        ("large.csv", "holds more than 1000000 bytes"),
        ("bomb.csv.gz", "holds more than 1000000 bytes"),
        ("dense.parquet", "hold more than 1000000 bytes"),
    ],
)
def test_a_table_is_filled_from_a_regular_file_within_the_bound_alone(files: Path, name: str, words: str) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        with pytest.raises(MillstreamError, match=words):
            await client.execute(TABLE.format(file=files / name))
        assert list(await client.execute("SHOW STREAMS")) == []
        answer = await client.execute(TABLE.format(file=files / "rows.csv"))
        assert "2 rows loaded from rows.csv" in answer.notices
        with pytest.raises(MillstreamError, match=r"already|exists|taken"):
            await client.execute(TABLE.format(file=files / name))

    run(test, file_bytes_max=1_000_000)


@pytest.mark.parametrize("name", ["fifo.csv", "folder.csv", "zero.csv", "large.csv"])
def test_a_function_is_read_from_a_regular_file_within_the_bound_alone(files: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.server.statements.functions.SOURCE_BYTES_MAX", 100_000)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        with pytest.raises(MillstreamError, match=r"not a regular file|larger than"):
            await client.execute(FUNCTION.format(file=files / name))
        await client.execute(FUNCTION.format(file=files / "f.py"))

    run(test)


def test_files_lie_in_the_folder_that_is_allowed_wherever_links_lead(files: Path, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "rows.csv").write_text("k,v\n1,a\n", "utf-8")
    (inside / "link.csv").symlink_to(files / "rows.csv")
    (inside / "f.py").symlink_to(files / "f.py")
    (tmp_path / "inside2").mkdir()
    (tmp_path / "inside2" / "rows.csv").write_text("k,v\n1,a\n", "utf-8")
    outside = [inside / "link.csv", files / "rows.csv", inside / ".." / "rows.csv", tmp_path / "inside2" / "rows.csv"]

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for path in outside:
            with pytest.raises(MillstreamError, match="does not lie in"):
                await client.execute(TABLE.format(file=path))
        with pytest.raises(MillstreamError, match="does not lie in"):
            await client.execute(FUNCTION.format(file=inside / "f.py"))
        await client.execute(TABLE.format(file=inside / "rows.csv"))

    run(test, files_dir=str(inside))


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make every file go on for ever, slowly enough to be caught at it; counts the pieces that were read."""
    read: list[int] = []

    class Endless(server_files.BoundedFile):
        def readinto(self, buffer: Any) -> int:
            if self._given_up():
                raise GivenUp("the statement was cancelled while its file was read")
            read.append(1)
            line = b"1,x\n" if len(read) > 1 else b"k,v\n"
            memoryview(buffer)[: len(line)] = line
            return len(line)

    monkeypatch.setattr(server_files, "BoundedFile", Endless)
    return read


@pytest.mark.parametrize("way", ["cancel", "disconnect", "stop"])
def test_others_statements_go_on_while_a_file_is_read_which_ends_when_it_is_given_up(files: Path, endless: list[int], way: str) -> None:
    async def test(harness: Harness) -> None:
        client, other = await harness.client(), await harness.client()
        reading = asyncio.ensure_future(client.execute(TABLE.format(file=files / "rows.csv")))
        await until(lambda: bool(endless), "the file is read")
        for _ in range(3):
            assert list(await other.execute("SHOW STREAMS")) == []
        session = next(s for s in harness.server.application.sessions.values() if s.running is not None)
        running = session.running
        assert running is not None
        if way == "cancel":
            reading.cancel()
        elif way == "disconnect":
            client._wire.abort()
        else:
            return
        await until(running.is_given_up, "it is given up")
        await until(lambda: session.running is None, "nobody waits for it")
        if way == "cancel":
            assert list(await client.execute("SHOW STREAMS")) == []
        assert list(await other.execute("SHOW STREAMS")) == []
        await asyncio.gather(reading, return_exceptions=True)

    run(test, drain_s=1.0)


def test_a_module_that_never_ends_loading_keeps_nobody_else_waiting(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.server.functions.process.START_S", 8.0)
    (files / "endless.py").write_text("while True:\n    pass\n", "utf-8")

    async def test(harness: Harness) -> None:
        client, other = await harness.client(), await harness.client()
        loading = asyncio.ensure_future(client.execute(FUNCTION.format(file=files / "endless.py")))
        await until(lambda: any(s.running for s in harness.server.application.sessions.values()), "its module is loaded")
        assert list(await other.execute("SHOW FUNCTIONS")) == []
        assert not loading.done()
        with pytest.raises(MillstreamError, match="longer than 8 seconds"):
            await loading

    run(test, within_s=60)


def test_a_bounded_file_tells_where_it_stops(files: Path) -> None:
    rules = FileRules(bytes_max=500_000)
    with open_bounded(files / "rows.csv", rules, server_files.nobody_gave_up) as file:
        assert file.read() == b"k,v\n1,a\n2,b\n"
    with open_bounded(files / "large.csv", rules, server_files.nobody_gave_up) as file, pytest.raises(BadInput, match="file_bytes_max"):
        file.read()
    with open_bounded(files / "large.csv", rules, lambda: True) as file, pytest.raises(GivenUp):
        file.read(1)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BadInput):
        open_regular(files / "folder.csv")
    assert len(os.listdir("/proc/self/fd")) == before, "what is refused is closed"
