"""Reading what is readable of a journal, whatever happened to it: the records that are whole, and the holes between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from millstream.engine.data.records import dataclass
from millstream.server.journal import durable_end, first_format
from millstream.server.journal.catalogue_copy import CatalogueCopy
from millstream.server.journal.disk import Disk, read
from millstream.server.journal.known import FOLDER
from millstream.server.journal.records import (
    HEAD_BYTES,
    ROWS,
    Corrupt,
    Head,
    Record,
    Torn,
    find,
    find_behind,
    record_of,
    seed_of,
)
from millstream.server.journal.segments import (
    HEADER_BYTES,
    NO_SEGMENT,
    Header,
    NoHeader,
    OtherVersion,
    base_of,
    read_header,
    segment_path,
)


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes, or a whole file, that are no records any more. Arrival numbers from `lo` to before `hi` may be gone; None: no one knows.

    `rows` are those of damaged records whose heads are whole, by the numbers of their streams.
    """

    path: Path
    at: int
    lo: int
    hi: int | None
    rows: dict[int, int] = field(default_factory=dict)
    text: str = ""

    def __str__(self) -> str:
        """Return it as a sentence."""
        most = "how many rows it had cannot be read any more" if self.hi is None else f"rows lost: {self.hi - self.lo} at most"
        return f"{self.path}, byte {self.at}: {self.text}; {most}"


@dataclass(slots=True)
class Reading:
    """One file's whole records and holes, in order."""

    path: Path
    base: int
    bytes: int
    records: list[Record] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    header: Header | None = None
    is_missing: bool = False

    @property
    def end(self) -> int:
        """The arrival number after the last record's."""
        return max([self.base, *(r.hi for r in self.records)])

    @property
    def rows(self) -> Counter[int]:
        """The rows of each stream, by number."""
        found: Counter[int] = Counter()
        for record in self.records:
            if record.kind == ROWS:
                found[record.stream] += record.hi - record.lo
        return found


@dataclass(frozen=True, slots=True)
class JournalFiles:
    """Where the files of a journal are, and the identity that they share as far as it can be told. A base may have no file any more."""

    disk: Disk
    directory: Path
    bases: Sequence[int]
    identity: bytes | None

    def readings(self) -> Iterator[Reading]:
        """Read the files one after the other; what is missing between two of them is a hole of the later one."""
        before: Reading | None = None
        end = 0
        for base in self.bases:
            reading = self._read(base)
            if before is not None:
                reading.holes[:0] = self._between(before, end, reading)
            before, end = reading, reading.end  # whoever reads along may let go of the records
            yield reading

    def _between(self, before: Reading, end: int, reading: Reading) -> list[Hole]:
        """Return what is missing before a file, by what its head says of the one before it, whose records ended at `end`."""
        if before.is_missing:
            return [Hole(before.path, 0, before.base, reading.base, text="the file is missing")]
        if reading.header is None:
            return []
        named = reading.header.previous
        if named.base >= 0 and named.base not in self.bases:
            return [Hole(segment_path(self.directory, named.base), 0, end, reading.base, text="the file is missing")]
        if named.base == before.base and named.size > before.bytes:
            text = f"the file ends here, and {reading.path.name} says that it had {named.size} bytes"
            return [Hole(before.path, before.bytes, end, reading.base, text=text)]
        return []

    def _read(self, base: int) -> Reading:
        path = segment_path(self.directory, base)
        if not self.disk.exists(path):
            return Reading(path, base, 0, is_missing=True)
        content = read(self.disk, path)
        reading = Reading(path, base, len(content))
        if first_format.is_first_format(content):
            _read_first_format(reading, content)
            return reading
        try:
            reading.header = read_header(content)
            identity, at = reading.header.identity, HEADER_BYTES
        except (NoHeader, OtherVersion):
            identity, at = self.identity or b"", 0
        if self.identity is not None and identity != self.identity:
            reading.holes.append(Hole(path, 0, base, base, text="the file belongs to another data directory and is left out"))
            return reading
        _read_records(reading, content, at, seed_of(identity))
        return reading


def files_of(disk: Disk, directory: Path, catalogue: CatalogueCopy) -> JournalFiles:
    """Return the files of a data directory's journal. A catalogue that none of them belongs to is emptied, and says so."""
    folder = directory / FOLDER
    bases = sorted(base for name in disk.names(folder) if (base := base_of(name)) is not None)
    found: Counter[bytes] = Counter()
    for base in bases:
        try:
            found[read_header(read(disk, segment_path(folder, base), HEADER_BYTES)).identity] += 1
        except (NoHeader, OtherVersion):
            continue
    identity = catalogue.identity
    if found and identity not in found:
        if identity is not None:
            catalogue.disown(f"the catalogue in {directory} belongs to another data directory than the journal")
        identity = found.most_common(1)[0][0]
    return JournalFiles(disk, folder, bases, identity or durable_end.identity_in(disk, folder))


def missing_at_the_ends(files: JournalFiles, catalogue: CatalogueCopy, first: Reading | None, end: int) -> list[Hole]:
    """Return the holes before the first file and behind the last one, as far as the catalogue and the journal's note know of more."""
    holes = []
    known = catalogue.known
    if first is not None and known is not None and known.first < first.base:
        path = segment_path(files.directory, known.first)
        holes.append(Hole(path, 0, known.first, first.base, text="the file is missing"))
    elif first is not None and known is None and first.header is not None and first.header.previous != NO_SEGMENT:
        holes.append(Hole(first.path, 0, 0, first.base, text="the files before it are missing, or were let go of"))
    noted = durable_end.read(files.disk, files.directory, files.identity or b"")[0]
    ends = [(k.last, k.end) for k in [known] if k is not None] + [(n.base, n.size) for n in [noted] if n is not None]
    last, size = max(ends, default=(-1, 0))
    path = segment_path(files.directory, last)
    if last >= 0 and not files.disk.exists(path):
        holes.append(Hole(path, 0, end, None, text="the file is missing"))
    elif last >= 0 and (found := len(read(files.disk, path))) < size:
        holes.append(Hole(path, found, end, None, text=f"the file ends here, and the disk had it up to byte {size}"))
    return holes


def _read_records(reading: Reading, content: bytes, at: int, seed: int) -> None:
    """Read the records from a place on; behind damage at the next that is whole."""
    view = memoryview(content)
    if at == 0:
        text = "the file is empty" if not content else "the file's head is damaged"
        first = next(find_behind(content, 0, seed), None)
        at = len(content) if first is None else first.at
        reading.holes.append(Hole(reading.path, 0, reading.base, reading.base if first else None, text=text))
    previous = None if reading.header is None else reading.header.check
    while at < len(content):
        try:
            found = find(view, at, seed)
        except (Torn, Corrupt) as problem:
            at = _skip(reading, content, at, seed, problem.head, isinstance(problem, Torn))
            previous = None
            continue
        if previous is not None and found.head.previous != previous:
            reading.holes.append(Hole(reading.path, at, reading.end, found.head.lo, text="records are missing before this one"))
        previous = found.head.check
        reading.records.append(record_of(view, found))
        at = found.stop


def _skip(reading: Reading, content: bytes, at: int, seed: int, head: Head | None, is_torn: bool) -> int:
    """Note a hole and return the place of the next whole record."""
    behind = next(find_behind(content, at + 1, seed), None)
    lo = reading.end
    rows = {head.stream: head.rows} if head is not None and head.rows else {}
    stop = len(content) if behind is None else behind.at
    is_last = head is not None and at + HEAD_BYTES + head.length >= stop  # else the bytes behind it do not say what they were
    hi = behind.head.lo if behind is not None else head.hi if head is not None and is_last else None
    what = "a record is cut off" if is_torn and behind is None else f"{stop - at} bytes are damaged"
    reading.holes.append(Hole(reading.path, at, lo, None if hi is None else max(hi, lo), rows, what))
    return stop


def _read_first_format(reading: Reading, content: bytes) -> None:
    at = len(first_format.HEADER)
    view = memoryview(content)
    while at < len(content):
        found = first_format.record_at(view, at)
        if found is None:
            found = next(first_format.records_behind(content, at + 1), None)
            stop = len(content) if found is None else found.at
            hi = None if found is None else max(found.record.lo, reading.end)
            reading.holes.append(Hole(reading.path, at, reading.end, hi, text=f"{stop - at} bytes are damaged or cut off"))
            if found is None:
                return
        reading.records.append(found.record)
        at = found.stop
