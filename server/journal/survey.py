"""What a journal's files hold, judged before anything is done: whole, torn by a crash, or damaged.

A crash can only tear what was never known to be on disk: the end of the last segment. So the end of that segment may be cut off, and it
is said what that may cost. Whatever else is not as it was written (a damaged record with sound ones behind it, a segment that is missing,
shorter than its successor says, or another directory's) has been damaged later. Nothing is guessed then: the start is refused.

`survey` changes nothing. The server acts on what it finds (`journal.py`), `millstream journal check` prints it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path

from millstream.engine.data.records import dataclass
from millstream.server.journal import durable_end
from millstream.server.journal.checkpoint_files import checkpoint_bases, checkpoint_path
from millstream.server.journal.disk import PART_SUFFIX, Disk, read
from millstream.server.journal.known import Known
from millstream.server.journal.records import HEAD_BYTES, Corrupt, Torn, find, find_behind, seed_of
from millstream.server.journal.segments import (
    FORMAT_VERSION,
    HEADER_BYTES,
    NO_SEGMENT,
    Ending,
    Header,
    NoHeader,
    OtherVersion,
    Segment,
    base_of,
    read_header,
    segment_path,
)

SECTOR_BYTES = 512  # what a disk writes whole or not at all


class Verdict(Enum):
    """What follows from a problem: the start is refused, an end is cut off, or it is only said."""

    REFUSED = "refused"
    CUT = "cut"
    NOTED = "noted"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be. `at` is the byte in the file; `rows_lost_max` None where it cannot be known or none are."""

    verdict: Verdict
    path: Path
    text: str
    at: int | None = None
    rows_lost_max: int | None = None

    def __str__(self) -> str:
        """Return it as a sentence with the file, and the byte where there is one."""
        return f"{self.path}{'' if self.at is None else f', byte {self.at}'}: {self.text}"


@dataclass(slots=True)
class SegmentScan:
    """What one segment's records come to, up to the first that is not whole."""

    path: Path
    bytes: int
    header: Header | None = None
    size: int = 0
    check: int = 0
    end: int = 0
    last_us: int = 0
    number_max: int = 0
    damage: Corrupt | Torn | None = None
    has_data: bool = False


@dataclass(slots=True)
class Survey:
    """The segments in their order, as far as they are good, and all that is wrong. `leftovers` are to be removed."""

    segments: list[Segment] = field(default_factory=list)
    scans: list[SegmentScan] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    empty: Segment | None = None  # the last file when it is to be begun anew

    @property
    def refusals(self) -> list[Problem]:
        """The problems for which a server does not start."""
        return [p for p in self.problems if p.verdict is Verdict.REFUSED]


def survey(disk: Disk, directory: Path, identity: bytes, known: Known | None, number_max: int) -> Survey:
    """Return a judgement of a journal's files by what the catalogue knows.

    That is its identity, `known`, and the greatest number it ever gave a stream.
    """
    return _Surveyor(disk, directory, identity, known, number_max).run()


def scan(path: Path, content: bytes, seed: int, base: int) -> SegmentScan:
    """Read a segment's records up to the first that is not whole. NoHeader and OtherVersion when it does not begin as one."""
    header = read_header(content)
    view = memoryview(content)
    made = SegmentScan(path, len(content), header, HEADER_BYTES, header.check, base)
    at = HEADER_BYTES
    while at < len(content):
        try:
            found = find(view, at, seed)
            head = found.head
            if head.previous != made.check:
                raise Corrupt  # noqa: TRY301 - one place says what follows from it
        except (Torn, Corrupt) as problem:
            made.damage = problem
            break
        at = made.size = found.stop
        made.check, made.end, made.last_us = head.check, max(made.end, head.hi), head.now_us
        made.number_max = max(made.number_max, head.stream)
        made.has_data = made.has_data or head.is_data
    return made


class _Surveyor:
    def __init__(self, disk: Disk, directory: Path, identity: bytes, known: Known | None, number_max: int) -> None:
        self.disk = disk
        self.directory = directory
        self.identity = identity
        self.seed = seed_of(identity)
        self.known = known
        self.number_max = number_max
        self.made = Survey()

    def run(self) -> Survey:
        bases = self._bases()
        durable = self._durable_end()
        self._check_missing(bases, durable)
        before: Segment | None = None
        for place, base in enumerate(bases):
            found = self._segment(base, is_last=place == len(bases) - 1, durable=durable)
            if found is not None:
                self._check_chain(before, found)
                self.made.segments.append(found)
            before = found
        if not self.made.refusals:
            self._check_state()
        return self.made

    def _say(self, verdict: Verdict, path: Path, text: str, at: int | None = None, rows_lost_max: int | None = None) -> None:
        self.made.problems.append(Problem(verdict, path, text, at, rows_lost_max))

    def _bases(self) -> list[int]:
        """Return the segments' bases; what a crash left of writing and of letting go is set aside."""
        bases = []
        for name in self.disk.names(self.directory):
            path, base = self.directory / name, base_of(name)
            if name.endswith(PART_SUFFIX):
                self.made.leftovers.append(path)
                self._say(Verdict.NOTED, path, "a crash left it half written, under a name that nothing reads; it is removed")
            elif base is not None and self.known is not None and base < self.known.first:
                self.made.leftovers.append(path)
                self._say(Verdict.NOTED, path, "it was let go of as too old, and a crash came before it was removed; it is removed")
            elif base is not None:
                bases.append(base)
        return sorted(bases)

    def _durable_end(self) -> Ending | None:
        """Return the furthest place that is known to be on disk, by the catalogue and by the journal's own note."""
        noted, trouble = durable_end.read(self.disk, self.directory, self.identity)
        if trouble and self.known is not None:
            self._say(Verdict.NOTED, self.directory / durable_end.FILE_NAME, trouble)
        ends = [] if noted is None else [noted]
        if self.known is not None:
            ends.append(Ending(self.known.last, self.known.end, 0))
        return max(ends, key=lambda e: (e.base, e.size), default=None)

    def _check_missing(self, bases: Sequence[int], durable: Ending | None) -> None:
        """Refuse when a segment is gone that the catalogue, the journal's note or a checkpoint knows of."""
        wanted: dict[int, str] = {}
        if self.known is not None:
            wanted[self.known.first] = wanted[self.known.last] = "the catalogue"
        if durable is not None:
            wanted.setdefault(durable.base, "the journal's note of what is on disk")
        first = min(bases, default=0) if self.known is None else self.known.first
        for at in checkpoint_bases(self.disk, self.directory):
            if at >= first:
                wanted.setdefault(at, f"the checkpoint {checkpoint_path(self.directory, at).name}")
        for base, witness in sorted(wanted.items()):
            if base not in bases:
                self._say(Verdict.REFUSED, segment_path(self.directory, base), f"the file is missing, {witness} knows of it")

    def _segment(self, base: int, *, is_last: bool, durable: Ending | None) -> Segment | None:
        path = segment_path(self.directory, base)
        content = read(self.disk, path)
        try:
            found = scan(path, content, self.seed, base)
        except OtherVersion as problem:
            text = f"it has format {problem.version} and this server reads format {FORMAT_VERSION}: start the release that wrote it"
            self._say(Verdict.REFUSED, path, text, 4)
            return None
        except NoHeader:
            return self._headless(path, base, content, is_last=is_last)
        assert found.header is not None
        if found.header.identity != self.identity:
            self._say(Verdict.REFUSED, path, "it belongs to another data directory than the catalogue", 8)
            return None
        if found.header.base != base:
            self._say(Verdict.REFUSED, path, f"it has another file's content: its head says that it begins at {found.header.base}", 24)
            return None
        self.made.scans.append(found)
        if found.damage is not None:
            self._judge(found, content, is_last=is_last, durable=durable)
        elif durable is not None and durable.base == base and found.size < durable.size:
            self._say(Verdict.REFUSED, path, f"the file ends here, and the disk had it up to byte {durable.size}", found.size)
        previous = found.header.previous
        return Segment(path, base, found.size, found.last_us, found.end, found.check, previous, self.seed, found.has_data)

    def _headless(self, path: Path, base: int, content: bytes, *, is_last: bool) -> Segment | None:
        """A file without a head: begun anew when it is empty and the catalogue knows that nothing was in it."""
        known = self.known
        if is_last and not content and known is not None and known.last == base and known.is_empty:
            self._say(Verdict.NOTED, path, "it is empty, and the catalogue knows that it held nothing; it is begun anew")
            previous = self.made.segments[-1].ending if self.made.segments else NO_SEGMENT
            self.made.empty = Segment(path, base, 0, end=base, previous=previous, seed=self.seed)
            return self.made.empty
        text = "the file is empty" if not content else f"the file's head is {'cut' if len(content) < HEADER_BYTES else 'damaged'}"
        self._say(Verdict.REFUSED, path, text, 0)
        return None

    def _check_chain(self, before: Segment | None, found: Segment) -> None:
        if not self.made.segments:
            if found.previous != NO_SEGMENT and self.known is None:
                text = f"it follows the segment {found.previous.base}, which is missing, and the catalogue knows of no journal"
                self._say(Verdict.REFUSED, found.path, text, 28)
            return
        if before is None:
            return  # its own problem is told already
        if found.previous.base != before.base:
            missing = segment_path(self.directory, found.previous.base)
            text = f"the file is missing: {found.path.name} follows it" if found.previous.base > before.base else "it is out of its place"
            self._say(Verdict.REFUSED, missing if found.previous.base > before.base else found.path, text)
        elif found.previous.size > before.size:
            text = f"the file ends here, and {found.path.name} says that it had {found.previous.size} bytes"
            if not any(p.path == before.path and p.verdict is Verdict.REFUSED for p in self.made.problems):
                self._say(Verdict.REFUSED, before.path, text, before.size)
        elif found.previous != before.ending:
            text = f"its content is not what {found.path.name} says that it was when it ended at byte {found.previous.size}"
            self._say(Verdict.REFUSED, before.path, text, found.previous.size)

    def _judge(self, found: SegmentScan, content: bytes, *, is_last: bool, durable: Ending | None) -> None:
        """Say whether a record that is not whole is a tear, which may be cut off, or damage."""
        assert found.damage is not None
        assert found.header is not None
        at = found.size
        behind = _behind(content, found, self.seed)
        lost = _rows_lost_max(found, behind)
        durable_upto = behind.durable_upto
        if durable is not None and durable.base == found.header.base:
            durable_upto = max(durable_upto, durable.size)
        damaged = behind.lo - found.end if behind.records else lost
        rows = "" if damaged is None else f"; what is damaged has {damaged} row{'' if damaged == 1 else 's'} at most"
        if not is_last:
            self._say(Verdict.REFUSED, found.path, f"a record is damaged{rows}", at, damaged)
        elif at < durable_upto:
            self._say(Verdict.REFUSED, found.path, f"a record is damaged that the disk had (up to byte {durable_upto}){rows}", at, damaged)
        elif (isinstance(found.damage, Torn) and not behind.records) or _is_unwritten(content, at, behind.at):
            self._say(Verdict.CUT, found.path, _told_of_cut(found, lost), at, lost)
        else:
            self._say(Verdict.REFUSED, found.path, f"a record is damaged, it is not torn by a crash{rows}", at, damaged)

    def _check_state(self) -> None:
        """Compare with the catalogue: numbers of streams, and the checkpoint from which a restart begins."""
        made = self.made
        numbers = [s for s in made.scans if s.number_max > self.number_max]
        if numbers:
            number = max(s.number_max for s in numbers)
            text = (
                f"it has rows of stream number {number}, and the catalogue has given no more than {self.number_max}: the catalogue is older"
            )
            self._say(Verdict.REFUSED, numbers[0].path, text)
        if made.segments and made.segments[0].previous != NO_SEGMENT:
            path = checkpoint_path(self.directory, made.segments[0].stands_at)
            if not self.disk.exists(path):
                self._say(
                    Verdict.REFUSED, path, "the file is missing; it holds tables and what queries made of rows that are kept no longer"
                )


@dataclass(frozen=True, slots=True)
class _Behind:
    """The whole records behind a damaged place: the first stands at `at` and begins with `lo`, the last one's rows end at `hi`."""

    records: int
    at: int
    stop: int
    lo: int
    hi: int
    durable_upto: int


def _rows_lost_max(found: SegmentScan, behind: _Behind) -> int | None:
    """Return how many rows the bytes from the damage on can have had; None when some of these bytes do not say."""
    assert found.damage is not None
    head = found.damage.head
    if behind.records:
        return behind.hi - found.end if behind.stop == found.bytes else None
    if head is None or found.size + HEAD_BYTES + head.length < found.bytes:
        return None
    return max(head.hi - found.end, 0)


def _behind(content: bytes, found: SegmentScan, seed: int) -> _Behind:
    assert found.damage is not None
    records, first, stop, durable_upto = 0, len(content), found.size, 0
    lo = hi = found.end
    for record in find_behind(content, found.size + 1, seed):
        if not records:
            first, lo = record.at, max(record.head.lo, lo)
        records, stop, hi = records + 1, record.stop, max(hi, record.head.hi)
        durable_upto = max(durable_upto, record.at - record.head.unsynced)
    return _Behind(records, first, stop, lo, hi, durable_upto)


def _is_unwritten(content: bytes, start: int, stop: int) -> bool:
    """Whether the bytes of a record have a sector of zeros, or the part of one at its ends: space that a failing machine never filled."""
    while start < stop:
        end = min(stop, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if not any(content[start:end]):
            return True
        start = end
    return False


def _told_of_cut(found: SegmentScan, lost: int | None) -> str:
    what = f"{found.bytes - found.size} bytes that a crash left unfinished are cut off, none of them was known to be on disk; "
    if lost is None:
        return what + "how many rows they had cannot be read any more"
    return what + f"rows lost: {lost} at most"
