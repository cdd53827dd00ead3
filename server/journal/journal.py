"""When the journal is written and forced to disk.

Rows of a `journal` stream are written, in the order of their arrival numbers, before they enter the engine; what has been written
survives the death of the process, and a thread forces it to disk within `fsync_s`, so that it survives the death of the machine. Rows
of a `sync` stream are written with their numbers reserved, and enter the engine once the disk has them: all that was written meanwhile
is forced in one go (group commit). Whoever waits for that is called back from the journal's thread.

Callers of `append` hold the ingress lock, so the file has the one arrival order (K11).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from millstream.server.errors import ServerError, StoreError
from millstream.server.journal.disk import Disk, write_all
from millstream.server.journal.known import FOLDER, Known, Ledger
from millstream.server.journal.opening import Report, open_journal
from millstream.server.journal.records import DEFINITION, Record, encode
from millstream.server.journal.segments import Ending, Segment, create_segment

RETRY_S = 1.0


class Journal:
    """The open journal of a data directory. `report(kind, message)` is told what whoever runs the server must know."""

    def __init__(self, directory: Path, disk: Disk, ledger: Ledger, *, fsync_s: float, report: Report) -> None:
        self.disk = disk
        self.directory = directory / FOLDER
        self._ledger = ledger
        self._fsync_s = fsync_s
        self._report = report
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._written = self._synced = 0
        self._stopping = False
        self._idle = False  # the thread sleeps until something is written
        self._failed = False
        self._noting_failed = False
        found = open_journal(disk, self.directory, ledger, report)
        self.segments: list[Segment] = found.segments
        self._file = found.file
        self._durable = found.durable
        self._thread = threading.Thread(target=self._force, name="journal", daemon=True)

    def start(self) -> None:
        """Begin to force to disk."""
        self._thread.start()

    @property
    def written(self) -> int:
        """The place after all that has been written."""
        return self._written

    @property
    def end(self) -> int:
        """The arrival number after the last record's."""
        return max((s.end for s in self.segments), default=0)

    @property
    def bytes(self) -> int:
        """Bytes of all segments."""
        return sum(s.size for s in self.segments)

    # --- writing ---

    def append(self, record: Record) -> int:
        """Write a record; returns the place after it, for `when_safe`. StoreError when the disk does not take it."""
        with self._changed:
            segment = self.segments[-1]
            if self._failed:
                raise StoreError(
                    "the journal could not be forced to disk, so nothing more is accepted", hint="see the server's log; restart it"
                )
            parts, check = encode(record, segment.seed, segment.check, self._written - self._synced)
            try:
                write_all(self.disk, self._file, parts)
            except OSError as error:
                self.disk.truncate(self._file, segment.size)
                raise StoreError(f"the journal cannot be written: {error.strerror or error}", hint="make room on the disk") from error
            size = sum(map(len, parts))
            segment.size += size
            segment.last_us, segment.end, segment.check = record.now_us, max(segment.end, record.hi), check
            segment.has_data = segment.has_data or record.kind != DEFINITION
            self._written += size
            if self._idle:
                self._changed.notify_all()
            return self._written

    def when_safe(self, place: int, call: Callable[[], None]) -> None:
        """Have `call` called, from the journal's thread and in the order of places, once the disk has all before `place`."""
        with self._changed:
            self._waiting.append((place, call))
            self._changed.notify_all()

    def wait_safe(self) -> None:
        """Return once all that was written before is on disk and its callers have been called."""
        done = threading.Event()
        with self._changed:
            place = self._written
        self.when_safe(place, done.set)
        done.wait()

    def roll(self, base: int, records: Sequence[Record] = ()) -> None:
        """Begin a new segment at an arrival number, with some records; the old one is forced to disk."""
        with self._changed:
            last = self.segments[-1]
            if last.base == base:
                return  # nothing has come since it began
            self.disk.sync(self._file)
            self._synced = self._written
            segment, file = create_segment(self.disk, self.directory, self._ledger.identity, base, last.ending, records)
            self.disk.close(self._file)
            self._file = file
            self.segments = [*self.segments, segment]
            self._note_durable(segment.ending)

    def note_segments(self) -> None:
        """Let the catalogue know of the segments. To be called on the thread that executes statements."""
        with self._changed:
            first, last = self.segments[0], self.segments[-1]
            known = Known(first.base, last.base, max(last.size - (self._written - self._synced), 0))
        self._ledger.note_known(known)

    def drop_before(self, base: int) -> None:
        """Let go of the segments before the one that begins at `base`."""
        with self._changed:
            gone = [s for s in self.segments[:-1] if s.base < base]
            self.segments = [s for s in self.segments if s not in gone]
        if gone:
            self.note_segments()  # first, so that a crash in between is not taken for a loss
        for segment in gone:
            self.disk.unlink(segment.path)
        if gone:
            self.disk.sync_directory(self.directory)

    # --- forcing ---

    def _force(self) -> None:
        """The journal's thread: sooner for those who wait, else every `fsync_s`."""
        while True:
            with self._changed:
                if not self._waiting and not self._stopping and self._written == self._synced:
                    self._idle = True
                    self._changed.wait()
                    self._idle = False
                if not self._waiting and not self._stopping:
                    self._changed.wait(self._fsync_s)
                target, file, ending = self._written, self.disk.duplicate(self._file), self.segments[-1].ending
                stopping, dirty = self._stopping and not self._waiting, target > self._synced
            try:
                if dirty:
                    self.disk.sync(file)
                    self._note_durable(ending)
            except OSError as error:
                self._fail(error)
                if self._stopping:
                    return
                time.sleep(RETRY_S)
                continue
            finally:
                self.disk.close(file)
            self._call_safe(target)
            if stopping:
                return

    def _note_durable(self, ending: Ending) -> None:
        """Note how far the disk has the journal. That only helps to tell damage later: a failure is told and hinders nobody."""
        try:
            self._durable.note(ending)
        except OSError as error:
            known, self._noting_failed = self._noting_failed, True
            if not known:
                self._report("journal_note_failed", f"how far the journal is on disk cannot be noted: {error.strerror or error}")

    def _fail(self, error: OSError) -> None:
        with self._changed:
            known, self._failed = self._failed, True
        if not known:
            self._report("journal_failed", f"the journal cannot be forced to disk: {error.strerror or error}; nothing more is accepted")

    def _call_safe(self, target: int) -> None:
        with self._changed:
            self._synced = max(self._synced, target)
            due: list[Callable[[], None]] = []
            while self._waiting and self._waiting[0][0] <= target:
                due.append(self._waiting.popleft()[1])
        for call in due:
            try:
                call()
            except Exception as error:  # the rows of the others are on disk too
                self._report("journal_call_failed", f"what waited for the disk failed: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """Force what was written, end the thread, and let the catalogue know where the journal ends."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self.disk.close(self._file)
        self._durable.close()
        if not self._failed:
            self._note_end()

    def _note_end(self) -> None:
        last = self.segments[-1]
        try:
            self._ledger.note_known(Known(self.segments[0].base, last.base, last.size, is_empty=not last.has_data))
        except ServerError as error:  # that only helps to tell damage later
            self._report("journal_note_failed", f"where the journal ends cannot be noted: {error}")
