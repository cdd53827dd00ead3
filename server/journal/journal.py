"""When the journal is written and forced to disk.

Rows of a `journal` stream are written, in the order of their arrival numbers, before they enter the engine; what has been written
survives the death of the process, and a thread forces it to disk within `fsync_s`, so that it survives the death of the machine. Rows
of a `sync` stream are written with their numbers reserved, and enter the engine once the disk has them: all that was written meanwhile
is forced in one go (group commit). Whoever waits for that is called back from the journal's thread.

Callers of `append` hold the ingress lock, so the file has the one arrival order (K11).

A file that the disk could not be made to take is never trusted again: nothing is accepted until its segment has been written anew, of
what is known to be on disk and what was written since and is still in memory. That is tried every second, so the journal goes on by itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.server.errors import StorageError
from millstream.server.journal.disk import PART_SUFFIX, Disk, read, write_all
from millstream.server.journal.known import FOLDER, CatalogueView, Known
from millstream.server.journal.opening import Report, open_journal
from millstream.server.journal.records import DEFINITION, Corrupt, Record, Torn, encode
from millstream.server.journal.segments import Ending, Segment, create_segment, records_of, segment_path

RETRY_S = 1.0
BEHIND_BYTES_MAX = 32 * 2**20  # of what the disk has not taken yet, which is kept in memory
Call = Callable[[], object]
Lost = Callable[[StorageError], object]
Waits = tuple[Call, Lost]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Who is called once the disk has all before `place`, or never will."""

    place: int
    safe: Call
    lost: Lost


@dataclass(frozen=True, slots=True)
class _Unsynced:
    """A record that ends at `place`; `waits`: it counts only once it is safe."""

    place: int
    record: Record
    waits: bool


class Journal:
    """The open journal of a data directory. `report(kind, message)` is told what whoever runs the server must know."""

    def __init__(self, directory: Path, disk: Disk, ledger: CatalogueView, *, fsync_s: float, report: Report) -> None:
        self.disk = disk
        self.directory = directory / FOLDER
        self._ledger = ledger
        self._fsync_s = fsync_s
        self._report = report
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[_Waiting] = deque()
        self._unsynced: deque[_Unsynced] = deque()
        self._written = self._synced = 0
        self._stopping = False
        self._idle = False  # the thread sleeps until something is written
        self._noting_failed = False
        self.failures = 0
        """How often a file was given up."""
        self.retry_s = RETRY_S
        self._trouble: OSError | None = None  # the present file is not trusted
        self._last_trouble: OSError | None = None
        self._lost = 0, 0  # what waited between these places was written off by the last failure
        self._told_failing = False
        self._bytes_refused = 0  # of the first record that the disk did not take, until it takes as much again
        found = open_journal(disk, self.directory, ledger, report)
        self.segments: list[Segment] = found.segments
        self._file = found.file
        self._durable = found.durable
        self._safe = found.segments[-1].ending  # up to which the present file is known to be on disk
        self._thread = threading.Thread(target=self._force, name="journal", daemon=True)

    def start(self) -> None:
        """Begin to force to disk."""
        self._thread.start()

    @property
    def end(self) -> int:
        """The arrival number after the last record's."""
        return max((s.end for s in self.segments), default=0)

    @property
    def bytes(self) -> int:
        """Bytes of all segments."""
        return sum(s.size for s in self.segments)

    def safe_parts(self) -> list[tuple[Segment, int]]:
        """Return the segments with how many bytes of each the disk is known to have.

        What is behind that may be gone after a failure of the machine, and its arrival numbers given to other rows.
        """
        with self._changed:
            sizes = [segment.size for segment in self.segments]
            sizes[-1] = self._safe.size
            return list(zip(self.segments, sizes, strict=True))

    # --- writing ---

    def append(self, record: Record, waits: Waits | None = None) -> int:
        """Write a record; returns the place after it, for `when_safe`. StorageError when the disk does not take it.

        With `waits` it is one that counts only once it is safe: should the disk not keep it, it is written off.
        """
        with self._changed:
            if self._trouble is not None:
                raise self._refusal()
            segment = self.segments[-1]
            parts, check = encode(record, segment.seed, segment.check, self._written - self._synced)
            try:
                write_all(self.disk, self._file, parts)
            except OSError as error:
                self._cut_off(segment.size)
                if not self._bytes_refused:
                    self._bytes_refused = sum(map(len, parts))
                    self._report(
                        "journal_refuses", f"the disk does not take what is written, so rows that are to be kept are refused: {error}"
                    )
                raise StorageError("the journal cannot be written", error) from error
            size = sum(map(len, parts))
            if 0 < self._bytes_refused <= size:
                self._bytes_refused = 0
                self._report("journal_goes_on", "the disk takes what is written again, and rows are accepted")
            segment.size += size
            segment.last_us, segment.end, segment.check = record.now_us, max(segment.end, record.hi), check
            segment.has_data = segment.has_data or record.kind != DEFINITION
            self._written += size
            self._unsynced.append(_Unsynced(self._written, record, waits is not None))
            if waits is not None:
                self._waiting.append(_Waiting(self._written, *waits))
            if self._idle:
                self._changed.notify_all()
            return self._written

    def _cut_off(self, size: int) -> None:
        """Cut what was half written off; where that fails too the file is given up."""
        try:
            self.disk.truncate(self._file, size)
        except OSError as error:
            self._give_up(error)

    def _refusal(self) -> StorageError:
        assert self._last_trouble is not None
        return StorageError(
            "the journal cannot be forced to disk, so the server accepts nothing that it would have to store", self._last_trouble
        )

    @property
    def is_failing(self) -> bool:
        """Whether nothing can be written until the present segment has been written anew."""
        return self._trouble is not None

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that writers should wait too."""
        return self._written - self._synced > BEHIND_BYTES_MAX

    def when_safe(self, place: int, safe: Call, lost: Lost) -> None:
        """Have `safe` called, from the journal's thread, once the disk has all before `place`, or `lost` if it was written off.

        What waits is called in the order in which it came, what is lost the other way round.
        """
        with self._changed:
            if not self._is_lost(place):
                self._waiting.append(_Waiting(place, safe, lost))
                self._changed.notify_all()
                return
        lost(self._refusal())

    def _is_lost(self, place: int) -> bool:
        return self._lost[0] < place <= self._lost[1]

    def wait_safe(self, place: int | None = None) -> None:
        """Return once all that was written before (`place`, by default now) is on disk. StorageError when the disk does not take it."""
        done = threading.Event()
        refused: list[StorageError] = []

        def lost(error: StorageError) -> None:
            refused.append(error)
            done.set()

        self.when_safe(self._written if place is None else place, done.set, lost)
        done.wait()
        if refused:
            raise refused[0]

    def roll(self, base: int, records: Sequence[Record] = ()) -> None:
        """Begin a new segment at an arrival number, with some records; the old one is forced to disk. StorageError when that fails."""
        with self._changed:
            last = self.segments[-1]
            if last.base == base:
                return  # nothing has come since it began
            if self._trouble is not None:
                raise self._refusal()
            try:
                self.disk.sync(self._file)
            except OSError as error:
                self._give_up(error)
                raise self._refusal() from error
            self._note_synced(self._written, last.ending)
            try:
                segment, file = create_segment(self.disk, self.directory, self._ledger.identity, base, last.ending, records)
            except OSError as error:
                with suppress(OSError):  # its name may be there, though the disk may not know it
                    self.disk.unlink(segment_path(self.directory, base))
                raise StorageError("no segment of the journal can be begun", error) from error
            self.disk.close(self._file)
            self._file = file
            self.segments = [*self.segments, segment]
            self._safe = segment.ending
            self._note_durable(segment.ending)

    def note_segments(self) -> None:
        """Let the catalogue know of the segments. To be called on the thread that executes statements."""
        with self._changed:
            first, last = self.segments[0], self.segments[-1]
            known = Known(first.base, last.base, max(last.size - (self._written - self._synced), 0))
        self._ledger.note_known(known)

    def drop_before(self, base: int) -> None:
        """Let go of the segments before the one that begins at `base`. StorageError or OSError when the disk does not let them go."""
        with self._changed:
            before = self.segments
            gone = [s for s in before[:-1] if s.base < base]
            self.segments = [s for s in before if s not in gone]
        if not gone:
            return
        try:
            self.note_segments()  # first, so that a crash in between is not taken for a loss
        except StorageError:
            with self._changed:
                self.segments = [*gone, *self.segments]
            raise
        for segment in gone:
            self.disk.unlink(segment.path)
        self.disk.sync_directory(self.directory)

    # --- forcing ---

    def _force(self) -> None:
        """The journal's thread: sooner for those who wait, else every `fsync_s`."""
        while True:
            with self._changed:
                if not self._waiting and not self._stopping and self._written == self._synced and self._trouble is None:
                    self._idle = True
                    self._changed.wait()
                    self._idle = False
                if not self._waiting and not self._stopping and self._trouble is None:
                    self._changed.wait(self._fsync_s)
                stopping = self._stopping and not self._waiting
                trouble = self._trouble
            if trouble is None:
                self._force_once()
            elif not self._begin_anew() and not self._wait_for_disk():
                return
            if stopping and self._trouble is None:
                return

    def _force_once(self) -> None:
        """Have the disk take what was written, and call who waited for that."""
        with self._changed:
            target, file, ending = self._written, self.disk.duplicate(self._file), self.segments[-1].ending
            dirty = target > self._synced
        try:
            if dirty:
                self.disk.sync(file)
                self._note_durable(ending)
        except OSError as error:
            with self._changed:
                if self._synced < target:  # else a roll has forced it meanwhile
                    self._give_up(error)
            return
        finally:
            self.disk.close(file)
        with self._changed:
            self._note_synced(target, ending)
            due = [w for w in self._waiting if w.place <= target]
            self._waiting = deque(w for w in self._waiting if w.place > target)
        self._call([w.safe for w in due])

    def _note_synced(self, target: int, ending: Ending) -> None:
        """The disk has all up to a place: that need not be kept in memory any more."""
        if target > self._synced:
            self._synced, self._safe = target, ending
            while self._unsynced and self._unsynced[0].place <= target:
                self._unsynced.popleft()

    # --- when the disk fails ---

    def _give_up(self, error: OSError) -> None:
        """Trust the present file no more: what the disk did not have of it may be gone, whatever a later call says.

        Until the segment has been written anew nothing is accepted. Rows that were to count only once they are safe are written off.
        """
        self._trouble = self._last_trouble = error
        self.failures += 1
        self._lost = self._synced, self._written
        self._unsynced = deque(one for one in self._unsynced if not one.waits)
        self._changed.notify_all()

    def _begin_anew(self) -> bool:
        """Write the present segment anew, in the place of the file that is not trusted; False when that cannot be either."""
        self._write_off()
        with self._changed:
            segment, kept, safe = self.segments[-1], list(self._unsynced), self._safe
        try:
            content = read(self.disk, segment.path, safe.size)
            for _ in records_of(content, segment.seed):
                pass  # each is compared with its check
            parts: list[Any] = [content]
            check = safe.check
            for one in kept:
                made, check = encode(one.record, segment.seed, check)
                parts += made
            self._put_in_place(segment, b"".join(parts), check)
            self.disk.sync_directory(self.directory)
        except (OSError, Torn, Corrupt) as error:
            self._tell_failing(error)
            return False
        with self._changed:
            self._synced, trouble, self._trouble = self._written, self._trouble, None
        self._note_durable(segment.ending)
        self._told_failing = False
        self._report("journal_goes_on", f"the journal's last segment was written anew, and rows are accepted again; before that: {trouble}")
        return True

    def _put_in_place(self, segment: Segment, content: Any, check: int) -> None:
        """Write a segment's content aside, have the disk take it, and give it the segment's name."""
        part = segment.path.with_name(segment.path.name + PART_SUFFIX)
        file = self.disk.create(part)
        try:
            write_all(self.disk, file, [content])
            self.disk.sync(file)
            with self._changed:  # whoever opens the segment finds a size that fits the file
                self.disk.rename(part, segment.path)
                self.disk.close(self._file)
                self._file = file
                segment.size, segment.check = len(content), check
                self._unsynced, self._safe = deque(), segment.ending
        except OSError:
            self.disk.close(file)
            raise

    def _write_off(self) -> None:
        """Tell those who waited for what the disk did not take."""
        with self._changed:
            waiting, self._waiting, refusal = self._waiting, deque(), self._refusal()
            self._forget_lost()
        self._call([w.safe for w in waiting if not self._is_lost(w.place)])
        self._call([partial(w.lost, refusal) for w in reversed(waiting) if self._is_lost(w.place)])

    def _forget_lost(self) -> None:
        """Cut what was written off out of the file, so that no kill brings it back; not where that would cost what was acked."""
        segment, safe = self.segments[-1], self._safe
        if not self._unsynced:
            with suppress(OSError):
                self.disk.truncate(self._file, safe.size)
                segment.size, segment.check = safe.size, safe.check

    def _tell_failing(self, error: Exception) -> None:
        if not self._told_failing:
            self._told_failing = True
            self._report("journal_failed", f"{self._refusal()} (writing its last segment anew: {error})")

    def _wait_for_disk(self) -> bool:
        """Wait until it is time to try again; False when the journal is to stop."""
        with self._changed:
            if not self._stopping:
                self._changed.wait(self.retry_s)
            return not self._stopping

    def _call(self, calls: Sequence[Call]) -> None:
        for call in calls:
            try:
                call()
            except Exception as error:  # the others have their turn too
                self._report("journal_call_failed", f"what waited for the disk failed: {type(error).__name__}: {error}")

    def _note_durable(self, ending: Ending) -> None:
        """Note how far the disk has the journal. That only helps to tell damage later: a failure is told and hinders nobody."""
        try:
            self._durable.note(ending)
        except OSError as error:
            known, self._noting_failed = self._noting_failed, True
            if not known:
                self._report("journal_note_failed", f"how far the journal is on disk cannot be noted: {error.strerror or error}")

    def stop(self) -> None:
        """Force what was written, end the thread, and let the catalogue know where the journal ends."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self.disk.close(self._file)
        self._durable.close()
        if self._trouble is None:
            self._note_end()

    def _note_end(self) -> None:
        last = self.segments[-1]
        try:
            self._ledger.note_known(Known(self.segments[0].base, last.base, last.size, is_empty=not last.has_data))
        except StorageError as error:  # that only helps to tell damage later
            self._report("journal_note_failed", f"where the journal ends cannot be noted: {error}")
