"""A data directory of version 0.1.0 opens: what its journal, tables and catalogue held is there, also after a crash in the middle."""

from __future__ import annotations

import asyncio
import shutil
import tarfile
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from millstream.engine.state.encoding import encode
from millstream.server.durability import checkpoints
from millstream.server.durability.first_checkpoints import take_over
from millstream.server.errors import StoreError
from millstream.server.journal import first_format
from millstream.server.journal.checkpoint_files import checkpoint_path, forget_others, write_body
from millstream.server.journal.conversion import convert
from millstream.server.journal.disk import SystemDisk
from millstream.server.journal.known import FOLDER
from millstream.server.journal.opening import open_journal
from millstream.server.journal.records import DEFINITION
from millstream.server.journal.salvage import salvage
from millstream.server.journal.store import Store

from tests.support.live_server import Harness, running

KEPT = Path(__file__).parent / "kept" / "data_directory_0_1_0.tar.xz"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Streams by journal and sync, a table, two durable queries, seven segments with checkpoints, two segments let go of before them."""
    with tarfile.open(KEPT) as kept:
        kept.extractall(tmp_path / "data", filter="data")
    return tmp_path / "data"


async def held(harness: Harness) -> dict[str, Any]:
    client = await harness.client()
    readings = await client.query_once("SELECT COUNT(*) AS n, MIN(ts) AS least, MAX(ts) AS greatest FROM readings")
    orders = await client.query_once("SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders")
    names = await client.query_once("SELECT k, name FROM names ORDER BY k")
    shown = {row["name"]: row["state"] for row in await client.execute("SHOW QUERIES")}
    return {"readings": readings.to_pylist(), "orders": orders.to_pylist(), "names": names.to_pylist(), "queries": shown}


EXPECTED = {
    "readings": [{"n": 50_000, "least": 6, "greatest": 25}],
    "orders": [{"n": 40, "total": Decimal("75.00")}],
    "names": [{"k": "a", "name": "renamed"}, {"k": "b", "name": "second"}],
    "queries": {"windows": "running", "named": "running"},
}


def test_rows_tables_and_queries_of_version_0_1_0_are_there_and_go_on_over_restarts(directory: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(directory)) as harness:
            assert await held(harness) == EXPECTED
            client = await harness.client()
            windows = await client.subscribe("windows", from_start=True)
            await client.publish("orders", [{"ts": 26, "amount": "1.00"}])
            first = (await asyncio.wait_for(windows.next_item(), 10)).to_pylist()[0]
            assert (first["n"], first["total"]) == (8, Decimal("15.00"))  # of seconds 6 to 9: older rows were let go of before
        async with running(data_dir=str(directory)) as harness:
            client = await harness.client()
            assert (await client.query_once("SELECT COUNT(*) AS n FROM orders")).to_pylist() == [{"n": 41}]
            windows = await client.subscribe("windows", from_start=True)
            await client.finish("orders")
            found = (await windows.to_arrow()).to_pylist()
            assert [(row["n"], row["total"]) for row in found] == [(8, 15), (20, Decimal("37.50")), (13, Decimal("23.50"))]

    asyncio.run(test())


class Crash(Exception):
    """The machine fails."""


class QuickDisk(SystemDisk):
    """A disk that is not waited for."""

    def sync(self, handle: int) -> None:
        """Nothing fails here that fsync would save from."""

    def sync_directory(self, directory: Path) -> None:
        """See above."""


class CrashingDisk(QuickDisk):
    """A disk that fails for good at its nth operation that changes something, before doing it."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def create(self, path: Path) -> int:
        self._count()
        return super().create(path)

    def write(self, handle: int, parts: Sequence[Any]) -> int:
        self._count()
        return super().write(handle, parts)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)

    def remove_directory(self, directory: Path) -> None:
        self._count()
        super().remove_directory(directory)

    def make_directory(self, directory: Path) -> None:
        self._count()
        super().make_directory(directory)

    def sync_directory(self, directory: Path) -> None:
        self._count()
        super().sync_directory(directory)


def converted(directory: Path, disk: SystemDisk, said: list[tuple[str, str]] | None = None, *, every: bool = True) -> list[tuple[Any, ...]]:
    """Convert a directory and return the journal's rows. Crash when the disk fails before that is done."""
    store = Store(directory, disk)
    try:
        convert(
            disk,
            directory,
            store,
            {d.position: d.content for d in store.definitions()},
            take_over,
            lambda *what: (said if said is not None else []).append(what),
        )
        opened = open_journal(disk, directory / FOLDER, store, lambda *_: None)
        disk.close(opened.file)
        opened.durable.close()
        found = [r for s in opened.segments for r in s.records(disk)]
        first = opened.segments[0]
        assert not every or checkpoints.read(disk, directory / FOLDER, store.identity, first.base) is not None
        return [(r.kind, r.stream, r.lo, r.hi, r.now_us, r.meta, bytes(r.data)) for r in found if r.kind != DEFINITION]
    finally:
        store.close()


def test_a_crash_at_any_step_of_the_conversion_leaves_a_directory_that_opens_with_all_rows(directory: Path, tmp_path: Path) -> None:
    bodies = [first_format.records(path.read_bytes()) for path in sorted((directory / FOLDER).glob("*.journal"))]
    old = [f.record for body in bodies for f in body]
    expected = [(r.kind, r.stream, r.lo, r.hi, r.now_us, r.meta, bytes(r.data)) for r in old]
    assert len(expected) > 60
    whole = CrashingDisk(1_000_000)
    shutil.copytree(directory, tmp_path / "whole")
    assert converted(tmp_path / "whole", whole) == expected
    operations = 1_000_000 - whole.left
    assert operations > 80
    for point in [*range(8), *range(8, operations - 12, 11), *range(operations - 12, operations)]:
        tried = tmp_path / f"tried-{point}"
        shutil.copytree(directory, tried)
        with pytest.raises(Crash):
            converted(tried, CrashingDisk(point))
        assert converted(tried, QuickDisk()) == expected
        assert sorted(p.name for p in tried.iterdir()) == ["catalogue.sqlite", "journal", "lock"]
        shutil.rmtree(tried)


def test_a_damaged_journal_of_version_0_1_0_is_refused_and_not_changed(directory: Path) -> None:
    file = sorted((directory / FOLDER).glob("*.journal"))[2]
    content = bytearray(file.read_bytes())
    content[5000] ^= 4
    file.write_bytes(content)
    before = {p: p.read_bytes() for p in sorted((directory / FOLDER).iterdir())}
    with pytest.raises(StoreError, match=rf"{file}, byte 8: a record is damaged.*journal salvage"):
        converted(directory, SystemDisk())
    assert {p: p.read_bytes() for p in sorted((directory / FOLDER).iterdir())} == before


def test_a_damaged_checkpoint_of_version_0_1_0_is_refused_where_tables_need_it_and_ignored_elsewhere(directory: Path) -> None:
    first, second, *_ = sorted((directory / FOLDER).glob("*.checkpoint"))
    content = second.read_bytes()
    second.write_bytes(content[:-1])
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    with pytest.raises(StoreError, match=rf"{first}: the checkpoint is damaged.*journal salvage"):
        converted(directory, SystemDisk())
    first.write_bytes(whole)
    said: list[tuple[str, str]] = []
    assert len(converted(directory, QuickDisk(), said)) > 60
    assert [kind for kind, _ in said] == ["checkpoint_ignored", "journal_converted"]
    assert str(second) in said[0][1]


def test_an_empty_segment_that_a_full_disk_left_with_version_0_1_0_is_named_and_hinders_nothing(directory: Path) -> None:
    files = sorted((directory / FOLDER).glob("*.journal"))
    between, behind = files[3].with_name(f"{37_600:020d}.journal"), files[-1].with_name(f"{70_000:020d}.journal")
    between.touch()
    behind.write_bytes(b"MSTJ")
    said: list[tuple[str, str]] = []
    assert len(converted(directory, QuickDisk(), said)) > 60
    assert [(kind, message.split(" ")[0]) for kind, message in said[:-1]] == [
        ("journal_noted", str(between)),
        ("journal_noted", str(behind)),
    ]


def test_salvage_of_a_damaged_directory_of_version_0_1_0_recovers_all_but_the_damaged_record(directory: Path, tmp_path: Path) -> None:
    expected = sum(len(list(first_format.records(path.read_bytes()))) for path in (directory / FOLDER).glob("*.journal"))
    file = sorted((directory / FOLDER).glob("*.journal"))[2]
    content = bytearray(file.read_bytes())
    content[5000] ^= 4
    file.write_bytes(content)
    saved = salvage(SystemDisk(), directory, tmp_path / "saved", take_over)
    (hole,) = saved.holes
    assert (hole.path, hole.at) == (file, 8)
    assert saved.rows == {"readings": 49_000, "orders": 40, "names": 1}
    assert len(converted(tmp_path / "saved", QuickDisk(), every=False)) == expected - 1

    async def test() -> None:
        async with running(data_dir=str(tmp_path / "saved")) as harness:
            assert (await held(harness))["names"] == EXPECTED["names"]

    asyncio.run(test())


def test_a_checkpoint_of_a_build_in_between_is_refused_where_it_is_needed_and_removed_elsewhere(tmp_path: Path) -> None:
    identity = bytes(16)
    state = {"watermark_us": 5, "last_arrival_us": 7, "idle": False, "ended": False, "future_skew": 0}
    made = checkpoints.Checkpoint(3, {1: state}, {}, {"query q": checkpoints.QueryCheckpoint(2, [])})
    checkpoints.write(SystemDisk(), tmp_path, identity, made)
    assert checkpoints.read(SystemDisk(), tmp_path, identity, 3) == made
    whole = checkpoint_path(tmp_path, 3).read_bytes()
    head = bytearray(whole[:44])
    head[4] = 2
    pickled = bytes(head) + zlib.crc32(head).to_bytes(4, "little") + whole[48:]
    checkpoint_path(tmp_path, 3).write_bytes(pickled)
    with pytest.raises(StoreError, match=r"has format 2 and this server reads format 3; the journal has let go of rows.*start the release"):
        checkpoints.read(SystemDisk(), tmp_path, identity, 3)
    checkpoint_path(tmp_path, 9).write_bytes(pickled)
    checkpoint_path(tmp_path, 11).write_bytes(whole)
    assert forget_others(SystemDisk(), tmp_path, 3) == [checkpoint_path(tmp_path, 9)]
    assert [path.name[:20].lstrip("0") for path in sorted(tmp_path.iterdir())] == ["3", "11"]


def test_a_whole_checkpoint_that_says_something_else_is_refused(tmp_path: Path) -> None:
    no_state = b"no state at all, but long enough for one"
    for body, told in ((no_state, "cannot be read: these bytes are no state"), (encode(7, check=False), "of something else")):
        write_body(SystemDisk(), tmp_path, bytes(16), 3, body)
        with pytest.raises(StoreError, match=told):
            checkpoints.read(SystemDisk(), tmp_path, bytes(16), 3)
