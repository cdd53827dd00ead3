"""Journals in memory, what was acked of them, and damage done to them; everything follows from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from millstream.server.errors import StoreError
from millstream.server.journal import durable_end
from millstream.server.journal.checkpoint_files import read_body, write_body
from millstream.server.journal.disk import read
from millstream.server.journal.journal import Journal
from millstream.server.journal.known import FOLDER, Known
from millstream.server.journal.opening import open_journal
from millstream.server.journal.records import CONTROL, DEFINITION, ROWS, Record, find
from millstream.server.journal.segments import HEADER_BYTES, NO_SEGMENT

from tests.support.memory_disk import MemoryDisk

ROOT = Path("/data")
JOURNAL = ROOT / FOLDER
Written = tuple[int, int, int, int, bytes]  # kind, stream, lo, hi, data


@dataclass
class KeptLedger:
    """The catalogue's side, in memory."""

    identity: bytes = bytes(range(16))
    number_max: int = 9
    noted: Known | None = None

    def known(self) -> Known | None:
        return self.noted

    def note_known(self, known: Known) -> None:
        self.noted = known


@dataclass
class Spot:
    """A record in a file: what was written there, and whether it was acked."""

    path: Path
    start: int
    stop: int
    written: Written


@dataclass
class World:
    """A journal as a stop or a kill left it. `spots` has every record of every file in order."""

    disk: MemoryDisk
    ledger: KeptLedger
    spots: list[Spot] = field(default_factory=list)
    durable: tuple[Path, int] = (ROOT, 0)
    stopped: bool = True

    @property
    def acked(self) -> list[Written]:
        return [s.written for s in self.spots]

    @property
    def paths(self) -> list[Path]:
        return sorted({p for p in self.disk.files if p.suffix == ".journal"})


def written_of(record: Record) -> Written:
    return (record.kind, record.stream, record.lo, record.hi, bytes(record.data))


def make_world(seed: int) -> World:
    """Write a journal of one to five segments and up to four streams; stop it, or kill it with or without rows not yet on disk."""
    chance = random.Random(seed)
    world = World(MemoryDisk(), KeptLedger())
    journal = Journal(ROOT, world.disk, world.ledger, fsync_s=3600.0, report=_unexpected)
    journal.start()
    streams = chance.randint(1, 4)
    seq = 0
    for number in range(1, streams + 1):
        journal.append(Record(DEFINITION, number, seq, seq, 0, {"kind": "stream", "name": f"s{number}", "statement": f"CREATE s{number}"}))
    segments = chance.randint(1, 5)
    for segment in range(segments):
        for _ in range(chance.randint(0 if segment else 1, 8)):
            seq = _append(chance, journal, streams, seq)
        if segment < segments - 1 and journal.segments[-1].base < seq:
            journal.roll(seq, [Record(DEFINITION, 1, seq, seq, 0, {"kind": "stream", "name": "s1", "statement": "CREATE s1"})])
            journal.note_segments()
            write_body(world.disk, JOURNAL, world.ledger.identity, seq, chance.randbytes(chance.randint(1, 400)))
    if len(journal.segments) > 2 and chance.random() < 0.5:
        journal.drop_before(journal.segments[1].base)
    early = journal.segments[-1]
    noted = durable_end.read(world.disk, JOURNAL, world.ledger.identity)[0]
    assert noted is not None
    early_place, early_note = (early.path, noted.size), bytes(world.disk.files[JOURNAL / durable_end.FILE_NAME])
    for _ in range(chance.choice((0, 0, 5))):
        seq = _append(chance, journal, streams, seq)
    world.stopped = chance.random() < 0.4
    if not world.stopped:
        journal.wait_safe()
    durable = journal.segments[-1]
    world.durable = (durable.path, durable.size)
    for _ in range(0 if world.stopped else chance.randint(0, 4)):
        seq = _append(chance, journal, streams, seq)
    killed, ledger = world.disk.copy(), replace(world.ledger)
    journal.stop()
    assert not world.disk.open_handles
    if not world.stopped:
        world.disk, world.ledger = killed, ledger
        if chance.random() < 0.3:  # the machine failed, and the note on its disk is some seconds old
            killed.files[JOURNAL / durable_end.FILE_NAME][:] = early_note
            world.durable = early_place
    for segment in journal.segments:
        world.spots += _spots(world, segment.path, segment.seed)
    return world


def _unexpected(kind: str, message: str) -> None:
    raise AssertionError(f"{kind}: {message}")


def _append(chance: random.Random, journal: Journal, streams: int, seq: int) -> int:
    """Write rows or a control item; those of even streams are waited for, as a `sync` stream's are. Returns the next arrival number."""
    seq += chance.choice((0, 0, 3))  # rows of streams that are not journaled
    stream = chance.randint(1, streams)
    if chance.random() < 0.1:
        journal.append(Record(CONTROL, stream, seq, seq, seq, {"idle": True}))
        return seq
    rows = chance.choice((1, 1, 2, 7, 40))
    zeros = bytes(chance.choice((0, 0, 1500)))
    data = chance.randbytes(rows * 8) + zeros
    journal.append(Record(ROWS, stream, seq, seq + rows, seq, {"fed": ["q", seq]} if chance.random() < 0.1 else {}, data))
    if stream % 2 == 0:
        journal.wait_safe()
    return seq + rows


def _spots(world: World, path: Path, seed: int) -> list[Spot]:
    content = bytes(world.disk.files[path])
    spots, at = [], HEADER_BYTES
    while at < len(content):
        found = find(memoryview(content), at, seed)
        head = found.head
        data = content[found.stop - (head.length - head.meta_length) : found.stop]
        spots.append(Spot(path, at, found.stop, (head.kind, head.stream, head.lo, head.hi, data)))
        at = found.stop
    return spots


# --- damage ---


@dataclass
class Damage:
    """What was done. `touched` are the records that are no more what they were."""

    kind: str
    path: Path
    touched: list[Spot]
    at: int = 0

    @property
    def rows(self) -> int:
        return sum(s.written[3] - s.written[2] for s in self.touched if s.written[0] == ROWS)


def flip_bit(chance: random.Random, world: World, disk: MemoryDisk) -> Damage:
    """Change one bit of one file, of any kind."""
    path = chance.choice(sorted(disk.files) + 3 * world.paths)
    content = disk.files[path]
    at = chance.randrange(len(content))
    content[at] ^= 1 << chance.randrange(8)
    return Damage("flip", path, [s for s in world.spots if s.path == path and s.start <= at < s.stop], at)


def cut_anywhere(chance: random.Random, world: World, disk: MemoryDisk) -> Damage:
    """Cut a file at any byte."""
    path = chance.choice(sorted(disk.files) + 3 * world.paths)
    return _cut(world, disk, path, chance.randrange(len(disk.files[path])), "cut")


def cut_between_records(chance: random.Random, world: World, disk: MemoryDisk) -> Damage:
    """Cut a segment exactly where a record begins, or behind its head."""
    path = chance.choice(world.paths)
    places = [HEADER_BYTES, 0, 8, *(s.start for s in world.spots if s.path == path)]
    return _cut(world, disk, path, chance.choice([p for p in places if p < len(disk.files[path])]), "border")


def _cut(world: World, disk: MemoryDisk, path: Path, at: int, kind: str) -> Damage:
    del disk.files[path][at:]
    return Damage(kind, path, [s for s in world.spots if s.path == path and s.stop > at], at)


def remove_bytes(chance: random.Random, world: World, disk: MemoryDisk) -> Damage:
    """Take bytes out of the middle of a segment: what is behind them is whole, and out of its place."""
    path = chance.choice(world.paths)
    content = disk.files[path]
    places = [s.start for s in world.spots if s.path == path] + [chance.randrange(HEADER_BYTES, len(content) + 1)]
    start, stop = sorted((chance.choice(places), chance.choice([*places, len(content)])))
    del content[start:stop]
    return Damage("removed", path, [s for s in world.spots if s.path == path and s.start < stop and s.stop > start], start)


def delete_file(chance: random.Random, world: World, disk: MemoryDisk) -> Damage:
    """Remove a file of any kind."""
    path = chance.choice(sorted(disk.files) + 2 * world.paths)
    del disk.files[path]
    return Damage("deleted", path, [s for s in world.spots if s.path == path])


def zero_end(chance: random.Random, world: World, disk: MemoryDisk) -> Damage:
    """Fill the end of the last segment with zeros, as a failing machine leaves space that it never wrote."""
    path = world.paths[-1]
    content = disk.files[path]
    at = chance.randrange(len(content))
    content[at:] = bytes(len(content) - at)
    return Damage("zeros", path, [s for s in world.spots if s.path == path and s.stop > at], at)


DAMAGES: tuple[Callable[[random.Random, World, MemoryDisk], Damage], ...] = (
    flip_bit,
    flip_bit,
    flip_bit,
    cut_anywhere,
    cut_between_records,
    remove_bytes,
    delete_file,
    zero_end,
)


# --- what a start makes of it ---


@dataclass
class Start:
    """How a start went: refused with a message, or what it has read and what it said."""

    refused: str = ""
    found: list[Written] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)


def start_over(disk: MemoryDisk, ledger: KeptLedger) -> Start:
    """Take a journal up as a server does, and read the checkpoint and the records that a replay begins with."""
    start = Start()
    try:
        opened = open_journal(disk, JOURNAL, replace(ledger), lambda kind, message: start.said.append((kind, message)))
        disk.close(opened.file)
        opened.durable.close()
        first = opened.segments[0]
        if first.previous != NO_SEGMENT and read_body(disk, JOURNAL, ledger.identity, first.base) is None:
            raise AssertionError("a checkpoint is missing and nobody said so")
        for segment in opened.segments:
            assert len(read(disk, segment.path)) == segment.size
            start.found += [written_of(r) for r in segment.records(disk)]
    except StoreError as error:
        start.refused = str(error)
    assert not disk.open_handles
    return start
