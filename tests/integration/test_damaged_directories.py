"""What a server makes of a data directory that was damaged while it did not run, and what can be got back of it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from millstream.client.errors import MillstreamError
from millstream.server.errors import ServerError, StoreError
from millstream.server.journal.records import MAGIC
from millstream.server.run.journal_command import command

from tests.server.test_serve_process import serving
from tests.support.live_server import Harness, running

BLOCKS, BLOCK_ROWS = 6, 50
TOTAL = BLOCKS * BLOCK_ROWS
Spoil = Callable[[Path], object]


async def fill(directory: Path) -> None:
    """Write six segments of a `sync` stream and a table, with checkpoints, and three rows more; two durable queries read them."""
    async with running(data_dir=str(directory)) as harness:
        client = await harness.client()
        await client.execute("CREATE STREAM gone (v BIGINT) DURABILITY journal")
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s DURABILITY sync")
        await client.execute("CREATE TABLE names (k BIGINT, name TEXT, PRIMARY KEY (k)) DURABILITY journal")
        await client.execute("CREATE QUERY sums AS SELECT COUNT(*) AS n, SUM(v) AS total FROM s EMIT FINAL")
        await client.execute("CREATE QUERY named AS SELECT s.v, n.name FROM s JOIN names n ON s.v = n.k")
        await client.publish("gone", [{"v": 1}])
        await client.execute("DROP STREAM gone")
        journaling = harness.server.application.journaling
        assert journaling is not None
        for block in range(BLOCKS):
            await client.publish("names", [{"k": block, "name": f"name {block}"}])
            await client.publish("s", [{"ts": block, "v": block * BLOCK_ROWS + n} for n in range(BLOCK_ROWS)])
            await harness.server.application.call(journaling.checkpoint)
        await client.publish("s", [{"ts": 9, "v": -1}])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("original") / "data"
    asyncio.run(fill(directory))
    return directory


@pytest.fixture
def directory(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


async def answers(harness: Harness) -> tuple[int, int | None, int]:
    """Return the rows held of the stream, those that its query has counted at the end (None without it), and those of the table."""
    client = await harness.client()
    held = (await client.query_once("SELECT COUNT(*) AS n FROM s")).to_pylist()
    names = (await client.query_once("SELECT name FROM names")).to_pylist()
    counted = None
    if len(await client.execute("SHOW QUERIES")):
        sums = await client.subscribe("sums", from_start=True)
        await client.finish("s")
        found = (await sums.to_arrow()).to_pylist()
        counted = found[0]["n"] if found else 0
        assert counted not in (TOTAL, TOTAL + 1) or found[0]["total"] == TOTAL * (TOTAL - 1) // 2 - (counted - TOTAL)
    return (held[0]["n"] if held else 0, counted, len(names))


def start(directory: Path) -> tuple[int, int | None, int]:
    async def test() -> tuple[int, int | None, int]:
        async with running(data_dir=str(directory)) as harness:
            return await answers(harness)

    return asyncio.run(test())


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(command, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "journal").glob("*.journal"))


def without_catalogue(directory: Path) -> None:
    for path in directory.glob("catalogue.sqlite*"):
        path.unlink()


def older_catalogue(directory: Path) -> None:
    """As a copy from before streams and the journal's last segments were made."""
    with closing(sqlite3.connect(directory / "catalogue.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM definitions")
        connection.execute("UPDATE sqlite_sequence SET seq = 1")
        connection.execute("UPDATE journal SET last = first, end = 56")


def foreign_catalogue(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "catalogue.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE about SET value = '0f0e0d0c-0b0a-4908-8706-050403020100' WHERE key = 'identity'")


def altered_definition(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "catalogue.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE definitions SET statement = replace(statement, 'v BIGINT', 'w BIGINT') WHERE name = 's'")


def flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)


def last_record(path: Path) -> int:
    return path.read_bytes().rfind(MAGIC)


# What was done; what the start says; then, of what was salvaged: rows held, rows that the query counts, rows of the table. A query that
# stood at a checkpoint behind the damage counts rows right that are gone themselves.
ALL, ONE_LESS, A_BLOCK_LESS = TOTAL + 1, TOTAL, TOTAL + 1 - BLOCK_ROWS
SPOILS: dict[str, tuple[Spoil, str, tuple[int, int | None, int]]] = {
    "a segment in the middle is deleted": (
        lambda d: segments(d)[2].unlink(),
        "the file is missing, the checkpoint .* knows of it",
        (A_BLOCK_LESS, ALL, BLOCKS),
    ),
    "a segment in the middle is cut to its head": (
        lambda d: cut(segments(d)[2], 56),
        "byte 56: the file ends here, and .* says that it had",
        (A_BLOCK_LESS, ALL, BLOCKS),
    ),
    "the first segment is deleted": (
        lambda d: segments(d)[0].unlink(),
        "the file is missing, the catalogue knows of it",
        (A_BLOCK_LESS, ALL, BLOCKS),
    ),
    "the last segment is deleted": (
        lambda d: segments(d)[-1].unlink(),
        "the file is missing, the catalogue knows of it",
        (ONE_LESS, ONE_LESS, BLOCKS),
    ),
    "all segments are deleted": (
        lambda d: [p.unlink() for p in segments(d)],
        "the file is missing, the catalogue knows of it",
        (0, ONE_LESS, BLOCKS),
    ),
    "the journal is deleted": (lambda d: shutil.rmtree(d / "journal"), "the file is missing, the catalogue knows of it", (0, 0, 0)),
    "a segment is empty": (lambda d: cut(segments(d)[-1], 0), "byte 0: the file is empty", (ONE_LESS, ONE_LESS, BLOCKS)),
    "a segment has 8 bytes": (lambda d: cut(segments(d)[-1], 8), "byte 0: the file's head is cut", (ONE_LESS, ONE_LESS, BLOCKS)),
    "a segment's head is damaged": (lambda d: flipped(segments(d)[3], 30), "byte 0: the file's head is damaged", (ALL, ALL, BLOCKS)),
    "a length is damaged": (
        lambda d: flipped(segments(d)[1], last_record(segments(d)[1]) + 8),
        r"byte \d+: a record is damaged",
        (A_BLOCK_LESS, ALL, BLOCKS),
    ),
    "the last record is damaged": (
        lambda d: flipped(segments(d)[-1], -3),
        r"byte \d+: a record is damaged that the disk had",
        (ONE_LESS, ONE_LESS, BLOCKS),
    ),
    "the last record is cut": (
        lambda d: cut(segments(d)[-1], -3),
        r"byte \d+: a record is damaged that the disk had",
        (ONE_LESS, ONE_LESS, BLOCKS),
    ),
    "the catalogue is lost": (without_catalogue, "catalogue.sqlite is missing, and .* has 7 segments", (ALL, None, BLOCKS)),
    "the catalogue is empty": (
        lambda d: cut(d / "catalogue.sqlite", 0),
        "catalogue.sqlite is empty, and .* has 7 segments",
        (ALL, None, BLOCKS),
    ),
    "the catalogue is no database": (
        lambda d: (d / "catalogue.sqlite").write_bytes(b"x" * 9000),
        "catalogue.sqlite is damaged",
        (ALL, None, BLOCKS),
    ),
    "the catalogue is an older copy": (older_catalogue, "the catalogue is older", (ALL, ALL, BLOCKS)),
    "the catalogue is another directory's": (
        foreign_catalogue,
        "belongs to another data directory than the catalogue",
        (ALL, None, BLOCKS),
    ),
    "a definition was altered": (altered_definition, "catalogue and journal do not agree on stream s", (ALL, ALL, BLOCKS)),
}


def files_in(directory: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file() and "sqlite" not in p.name and p.name != "lock"}


@pytest.mark.parametrize("what", SPOILS)
def test_a_damaged_directory_is_refused_by_name_and_what_is_readable_of_it_is_got_back(directory: Path, tmp_path: Path, what: str) -> None:
    spoil, told, expected = SPOILS[what]
    spoil(directory)
    before, threads = files_in(directory), threading.active_count()
    with pytest.raises(StoreError, match=told) as caught:
        start(directory)
    assert str(caught.value).endswith(f"millstream journal salvage {directory} NEW_DIRECTORY")
    assert threading.active_count() == threads
    assert run("check", directory).exit_code == 1
    saved = tmp_path / "saved"
    salvaged = run("salvage", directory, saved)
    assert salvaged.exit_code == 1
    if "segment in the middle" in what:
        assert f"rows lost: {BLOCK_ROWS + 1} at most" in salvaged.stderr, "the block and the table's row"
    if what != "a definition was altered":  # that is noticed when all has been taken up
        assert files_in(directory) == before, "a start that is refused, check and salvage change nothing"
    counts = [int(line.split()[1]) for line in salvaged.stdout.splitlines() if line.startswith("s ")]
    assert sum(counts) == expected[0]
    assert run("check", saved).exit_code == 0
    assert start(saved) == expected
    assert run("check", saved).exit_code == 0


def test_a_directory_that_is_whole_is_checked_shown_and_salvaged_whole(directory: Path, tmp_path: Path) -> None:
    checked = run("check", directory)
    assert checked.exit_code == 0
    assert checked.stdout.endswith("whole\n")
    assert checked.stdout.count(".journal: ") == BLOCKS + 1
    shown = run("show", directory, "s", "--format", "csv", "--limit", "2", "--arrival")
    header, *rows = shown.stdout.splitlines()
    assert header == "arrival,arrived_at,ts,v"
    assert [row.split(",")[2:] for row in rows] == [["0", "0"], ["0", "1"]]
    every = [json.loads(line)["v"] for line in run("show", directory, "s", "--format", "json").stdout.splitlines()]
    assert every == [*range(TOTAL), -1]
    assert "-- names" in run("show", directory).stdout
    assert "no stream or table t; it keeps s, names" in run("show", directory, "t").output
    salvaged = run("salvage", directory, tmp_path / "saved")
    assert salvaged.exit_code == 0
    assert start(tmp_path / "saved") == (ALL, ALL, BLOCKS)
    again = run("salvage", directory, tmp_path / "saved")
    assert again.exit_code == 1
    assert "is not empty" in again.output


def test_a_damaged_record_is_left_out_of_what_is_shown_and_told_with_its_byte(directory: Path) -> None:
    file = segments(directory)[1]
    flipped(file, -1)
    shown = run("show", directory, "s", "--format", "json")
    assert shown.exit_code == 1
    assert len(shown.stdout.splitlines()) == A_BLOCK_LESS
    assert f"{file}, byte {last_record(file)}: " in shown.stderr
    assert f"rows lost: {BLOCK_ROWS} at most" in shown.stderr


@pytest.mark.process
def test_a_directory_that_a_server_holds_is_refused(directory: Path, tmp_path: Path) -> None:
    with serving("--data-dir", str(directory)) as (process, _):
        for arguments in (("check", directory), ("show", directory), ("salvage", directory, tmp_path / "saved")):
            refused = run(*arguments)
            assert refused.exit_code == 1
            assert f"a server holds the data directory {directory} (process {process.pid}); stop it first" in refused.output
    assert not (tmp_path / "saved").exists()


def test_no_damage_to_any_file_of_a_directory_makes_a_start_end_in_a_fault(original: Path, tmp_path: Path) -> None:
    """A start succeeds or is refused in words; salvage and check do not fall over either."""
    chance = random.Random(5)
    outcomes = set()
    for number in range(25):
        tried = Path(shutil.copytree(original, tmp_path / f"tried-{number}"))
        path = chance.choice([p for p in sorted(tried.rglob("*")) if p.is_file() and p.name != "lock"] + 5 * [tried / "catalogue.sqlite"])
        content = bytearray(path.read_bytes())
        at = chance.randrange(len(content))
        if chance.random() < 0.3:
            path.write_bytes(content[:at])
        else:
            for place in range(at, min(at + chance.choice((1, 30)), len(content))):
                content[place] = chance.randrange(256)
            path.write_bytes(content)
        try:
            start(tried)
            outcomes.add("started")
        except (ServerError, MillstreamError):
            outcomes.add("refused")
        run("check", tried)
        run("salvage", tried, tmp_path / f"saved-{number}")
        shutil.rmtree(tried)
    assert outcomes == {"started", "refused"}
