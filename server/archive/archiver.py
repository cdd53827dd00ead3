"""What is done for the archives, and when: rows written, small files merged, old ones removed, one step after the other.

`next_step` does the work that takes long, on a thread of its own that gives way to others: it reads the journal at its own cursor, and
takes no lock that ingest waits for. What it returns is committed by `commit`, on the thread that executes statements: one transaction of
the catalogue. Only what stands there counts, so a crash between the two leaves files that are removed at the next start. A cursor moves
when its rows are committed, and the journal keeps what no cursor has passed (`is_committed`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.server.archive.manifest import ArchiveFile, ArchiveState, Manifest
from millstream.server.archive.pieces import archive_schema, check, collect, file_name, files_of, merged
from millstream.server.archive.places import Place, check_place, open_place
from millstream.server.journal.disk import PART_SUFFIX, Disk
from millstream.server.journal.following import JournalPlace, Parts, end_of, follow
from millstream.server.journal.known import ARCHIVE_FOLDER, ARCHIVE_SUFFIX
from millstream.server.journal.segments import Segment
from millstream.server.journal.store import Store

US_PER_S = 1_000_000
US_PER_DAY = 86_400 * US_PER_S
MERGED_MIN = 8  # files in a row that are worth merging
TIERS = 8  # a row is rewritten about as often as files of MERGED_MIN times the size fit under the bound
RETRY_S_MIN, RETRY_S_MAX = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class ArchiveBounds:
    """`file_bytes`: of the journal's that become one file, and of a file that merging makes. `wait_s`: how long a row waits at most."""

    file_bytes: int = 32 * 2**20
    wait_s: float = 60.0


class FollowedJournal(Protocol):
    """What archives need of the journal."""

    def safe_parts(self) -> list[tuple[Segment, int]]:
        """Return the segments with how many bytes of each the disk is known to have."""
        ...


@dataclass(slots=True)
class StreamArchive:
    """One stream's archive. `place` is the journal's place up to which nothing is missing here.

    `pending_since_us` is when the first row behind that came, None while none is known; `retry_at_us` when to try again after
    `failures` in a row; `readers` how many read its files, which are not removed meanwhile; `garbage` files that do not count any more.
    """

    number: int
    definition: StreamDefinition
    where: Place
    state: ArchiveState
    tag: str
    place: JournalPlace = JournalPlace()
    pending_since_us: int | None = None
    is_swept: bool = False
    failures: int = 0
    retry_at_us: int = 0
    last_error: str | None = None
    readers: int = 0
    garbage: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows in committed files."""
        return sum(file.rows for file in self.state.files)

    @property
    def bytes(self) -> int:
        """Bytes of committed files."""
        return sum(file.bytes for file in self.state.files)


@dataclass(slots=True)
class Step:
    """What was done aside and is to be committed: the archive's state after it, files that come and go."""

    archive: StreamArchive
    state: ArchiveState
    place: JournalPlace
    added: list[ArchiveFile] = field(default_factory=list)
    dropped: list[ArchiveFile] = field(default_factory=list)


class Archives:
    """The archives of a data directory. `report(kind, message)` is told what whoever runs the server must know."""

    def __init__(
        self,
        store: Store,
        disk: Disk,
        directory: Path,
        bounds: ArchiveBounds,
        journal: FollowedJournal,
        report: Callable[[str, str], object],
        now_us: Callable[[], int],
        *,
        files_dir: str = "",
    ) -> None:
        self.bounds = bounds
        self._store = store
        self._disk = disk
        self._directory = directory
        self._journal = journal
        self._report = report
        self._now_us = now_us
        self._files_dir = files_dir
        self._manifest = Manifest(store)
        self._uncommitted: Step | None = None
        self.by_number: dict[int, StreamArchive] = {}

    # --- which ---

    def place_of(self, definition: StreamDefinition, number: int) -> Place:
        """Return where a stream's files are to lie. InvalidDefinition when that is no place."""
        assert definition.archive is not None
        own = self._directory / ARCHIVE_FOLDER / f"{number}-{_slug(definition.name)}"
        return open_place(definition.archive.into, own, self._disk, self._files_dir)

    def add(self, definition: StreamDefinition, number: int, upto: int) -> None:
        """Keep a stream's archive from now; a new one begins at the arrival number `upto`. StoreError, StorageError, InvalidDefinition."""
        where = self.place_of(definition, number)
        state = self._manifest.read(number)
        if state is None:
            check_place(where)
            state = ArchiveState(upto)
            self._manifest.write(number, state)
        tag = f"{zlib.crc32(number.to_bytes(8, 'little'), zlib.crc32(self._store.identity)):08x}"
        self.by_number[number] = StreamArchive(number, definition, where, state, tag)

    def find(self, stream: str) -> StreamArchive | None:
        """Return the archive of a stream, None when it has none."""
        return next((one for one in tuple(self.by_number.values()) if one.definition.name == stream), None)

    def forget(self, number: int) -> None:
        """Let go of a dropped stream's archive: files in a place of the user's own stay, others go with the stream."""
        archive = self.by_number.pop(number, None)
        if archive is None:
            return
        if archive.definition.archive is not None and archive.definition.archive.into is None:
            self._remove_all(archive)

    def _remove_all(self, archive: StreamArchive) -> None:
        try:
            for path in self._own_names(archive):
                archive.where.remove(path)
        except OSError as error:
            self._report("archive_failed", f"files of the dropped stream {archive.definition.name} stay: {error}")

    def is_committed(self, segment: Segment) -> bool:
        """Whether all rows of a segment of the journal are in files that count, as far as they are to be."""
        return all(archive.place >= (segment.base, segment.size) for archive in tuple(self.by_number.values()))

    @property
    def end(self) -> int:
        """The arrival number before which the archives have rows; no other row may get one of these."""
        return max((archive.state.upto for archive in self.by_number.values()), default=0)

    def behind_bytes(self, archive: StreamArchive) -> int:
        """Return the bytes of the journal, of all streams, that an archive has yet to look through."""
        return _bytes_behind(self._journal.safe_parts(), archive.place)

    # --- aside ---

    def next_step(self) -> Step | None:
        """Do the next thing that is due and return what is to be committed; None when nothing is. One call at a time, from any thread.

        What a store refuses is noted with its archive, told once, and tried again later; the others have their turn.
        """
        if self._uncommitted is not None:
            return self._uncommitted
        for archive in tuple(self.by_number.values()):
            if self._now_us() < archive.retry_at_us:
                continue
            try:
                self._tidy(archive)
                step = self._write(archive) or self._merge(archive) or self._expire(archive)
            except Exception as error:  # whatever a store's library raises: the others have their turn
                self._failed(archive, error)
                continue
            if step is not None:
                self._uncommitted = step
                return step
            self._succeeded(archive)
        return None

    def _failed(self, archive: StreamArchive, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if archive.last_error != text:
            self._report("archive_failed", f"the archive of {archive.definition.name} in {archive.where.text} waits: {text}")
        archive.last_error = text
        archive.retry_at_us = self._now_us() + int(min(RETRY_S_MAX, RETRY_S_MIN * 2**archive.failures) * US_PER_S)
        archive.failures = min(archive.failures + 1, 16)

    def _succeeded(self, archive: StreamArchive) -> None:
        if archive.failures:
            self._report("archive_goes_on", f"the archive of {archive.definition.name} takes files again")
        archive.failures, archive.last_error, archive.retry_at_us = 0, None, 0

    def _own_names(self, archive: StreamArchive) -> list[str]:
        ends = (f"-{archive.tag}{ARCHIVE_SUFFIX}", f"-{archive.tag}{ARCHIVE_SUFFIX}{PART_SUFFIX}")
        return [name for name in archive.where.names() if name.endswith(ends)]

    def _tidy(self, archive: StreamArchive) -> None:
        """Remove files that do not count: once those that a crash left, later those that others took the place of."""
        if not archive.is_swept:
            counted = {file.path for file in archive.state.files}
            archive.garbage += [name for name in self._own_names(archive) if name not in counted]
            archive.is_swept = True
        while archive.garbage and not archive.readers:
            archive.where.remove(archive.garbage[-1])
            archive.garbage.pop()

    def _write(self, archive: StreamArchive) -> Step | None:
        """Put the next rows in place, if enough came or the first has waited long enough."""
        parts = self._journal.safe_parts()
        behind_bytes = _bytes_behind(parts, archive.place)
        if behind_bytes == 0:
            return None
        is_full = behind_bytes >= self.bounds.file_bytes
        if archive.pending_since_us is not None and not is_full and not self._has_waited(archive):
            return None
        records = follow(self._disk, parts, archive.number, archive.place, archive.state.upto)
        first = next(records, None)
        if first is None:
            archive.place, archive.pending_since_us = end_of(parts), None
            return None
        before, _, record = first
        archive.place, archive.pending_since_us = before, record.now_us
        if not self._has_waited(archive) and _bytes_behind(parts, before) < self.bounds.file_bytes:
            return None
        state, definition = archive.state, archive.definition  # ALTER STREAM may change it meanwhile
        piece = collect(definition, chain((first,), records), state.upto, state.watermark_us, archive.place, self.bounds.file_bytes)
        added = []
        for file, content in files_of(piece, definition, archive.tag):
            self._put(archive, file, content)
            added.append(file)
        after = replace(state, upto=piece.hi, watermark_us=piece.watermark_us, files=_ordered((*state.files, *added)))
        return Step(archive, after, piece.place, added)

    def _has_waited(self, archive: StreamArchive) -> bool:
        assert archive.pending_since_us is not None
        return self._now_us() - archive.pending_since_us >= self.bounds.wait_s * US_PER_S

    def _put(self, archive: StreamArchive, file: ArchiveFile, content: object) -> None:
        archive.where.put(file.path, content)
        with archive.where.open(file.path) as opened:
            check(opened, file)

    def _merge(self, archive: StreamArchive) -> Step | None:
        """Put one file in the place of several small ones that follow one another in a partition."""
        run = _run_to_merge(archive.state.files, self.bounds.file_bytes)
        if not run:
            return None
        opened = [archive.where.open(file.path) for file in run]
        try:
            content = merged(opened, archive_schema(archive.definition.schema))
        finally:
            for one in opened:
                one.close()
        times = [t for file in run for t in (file.time_min_us, file.time_max_us) if t is not None]
        lo, hi = run[0].lo, max(file.hi for file in run)
        span = (min(times), max(times)) if times else (None, None)
        rows, controls = sum(file.rows for file in run), sum(file.controls for file in run)
        made = ArchiveFile(file_name(lo, hi, archive.tag, run[0].folder), lo, hi, rows, len(content), controls, *span)
        self._put(archive, made, content)
        return self._exchanged(archive, [made], run)

    def _expire(self, archive: StreamArchive) -> Step | None:
        """Remove files all of whose rows are older than is kept, before W: event time says how old they are, not the clock."""
        rule, state = archive.definition.archive, archive.state
        if rule is None or rule.keep_days is None or state.watermark_us in (TIME_MIN, TIME_MAX):
            return None
        oldest_us = state.watermark_us - rule.keep_days * US_PER_DAY
        old = [file for file in state.files if file.time_max_us is not None and file.time_max_us < oldest_us]
        if not old:
            return None
        kept_lo = min((file.lo for file in state.files if file.rows and file not in old), default=state.upto)
        old += [file for file in state.files if not file.rows and file.hi <= kept_lo]
        complete_us = max(file.time_max_us + 1 for file in old if file.time_max_us is not None)
        step = self._exchanged(archive, [], old)
        step.state = replace(step.state, complete_from_us=max(complete_us, state.complete_from_us or complete_us))
        return step

    def _exchanged(self, archive: StreamArchive, added: list[ArchiveFile], dropped: list[ArchiveFile]) -> Step:
        files = _ordered((*(file for file in archive.state.files if file not in dropped), *added))
        return Step(archive, replace(archive.state, files=files), archive.place, added, dropped)

    # --- committed ---

    def commit(self, step: Step) -> None:
        """Let a step count. On the thread that executes statements; StorageError when the catalogue refuses, and it can be tried again."""
        archive = step.archive
        if self.by_number.get(archive.number) is archive:
            self._manifest.write(archive.number, step.state, step.added, step.dropped)
            archive.state, archive.place, archive.pending_since_us = step.state, step.place, None
            archive.garbage += [file.path for file in step.dropped]
            self._succeeded(archive)
        elif archive.definition.archive is not None and archive.definition.archive.into is None:
            self._remove_all(archive)  # the stream was dropped while this was written
        self._uncommitted = None


def _slug(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:80]


def _ordered(files: Sequence[ArchiveFile]) -> tuple[ArchiveFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.lo, file.hi, file.path)))


def _bytes_behind(parts: Parts, place: JournalPlace) -> int:
    total = 0
    for segment, size in parts:
        if segment.base == place.base:
            total += max(0, size - place.at)
        elif segment.base > place.base:
            total += size - JournalPlace().at
    return total


def _run_to_merge(files: Sequence[ArchiveFile], bytes_max: int) -> list[ArchiveFile]:
    """Return files of one partition that follow one another and are small beside `bytes_max`, the smallest first; perhaps none."""
    folders: dict[str, list[ArchiveFile]] = {}
    for file in files:
        folders.setdefault(file.folder, []).append(file)
    for limit in (bytes_max // TIERS**2, bytes_max // TIERS, bytes_max):
        for members in folders.values():
            run: list[ArchiveFile] = []
            for file in members:
                if file.bytes >= limit or sum(one.bytes for one in run) + file.bytes > bytes_max:
                    if len(run) >= MERGED_MIN:
                        return run
                    run = []
                if file.bytes < limit:
                    run.append(file)
            if len(run) >= MERGED_MIN:
                return run
    return []
