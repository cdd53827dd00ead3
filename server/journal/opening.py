"""How a server takes a journal up: judge its files, refuse what is damaged, cut off what a crash tore, say what that cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millstream.engine.data.records import dataclass
from millstream.server.errors import StoreError
from millstream.server.journal.disk import Disk, write_whole
from millstream.server.journal.durable_end import DurableEnd
from millstream.server.journal.known import CatalogueView, Known, way_out
from millstream.server.journal.segments import NO_SEGMENT, Segment, create_segment, header_bytes
from millstream.server.journal.survey import Survey, Verdict, survey

Report = Callable[[str, str], None]  # the kind of an event, and a sentence


@dataclass(slots=True)
class OpenJournal:
    """The segments of a journal, all on disk; the last one's open file; the note of how far it is on disk."""

    segments: list[Segment]
    file: int
    durable: DurableEnd


def open_journal(disk: Disk, directory: Path, ledger: CatalogueView, report: Report) -> OpenJournal:
    """Take a journal up, or begin one. StoreError when it is damaged or the disk refuses."""
    try:
        disk.make_directory(directory)
        found = survey(disk, directory, ledger.identity, ledger.known(), ledger.number_max)
        _refuse(found, directory)
        _tell(found, report)
        _mend(disk, found, ledger)
        return _open(disk, directory, found.segments, ledger)
    except OSError as error:
        raise StoreError(f"cannot use the journal in {directory}: {error}", hint="check the data directory") from error


def _refuse(found: Survey, directory: Path) -> None:
    refusals = found.refusals
    if refusals:
        more = f" (and {len(refusals) - 1} more: millstream journal check {directory.parent})" if len(refusals) > 1 else ""
        hint = "start the release that wrote it" if "start the release" in refusals[0].text else way_out(directory)
        raise StoreError(f"the journal is damaged: {refusals[0]}{more}", hint=hint)


def _tell(found: Survey, report: Report) -> None:
    for problem in found.problems:
        report("journal_cut" if problem.verdict is Verdict.CUT else "journal_noted", str(problem))


def _mend(disk: Disk, found: Survey, ledger: CatalogueView) -> None:
    """Do what was told: remove leftovers, cut the torn end off, begin an empty file anew."""
    for path in found.leftovers:
        disk.unlink(path)
    for problem in found.problems:
        if problem.verdict is Verdict.CUT and problem.at is not None:
            handle = disk.open_append(problem.path)
            try:
                disk.truncate(handle, problem.at)
            finally:
                disk.close(handle)
    if found.empty is not None:
        segment = found.empty
        header, segment.check = header_bytes(ledger.identity, segment.base, segment.previous)
        segment.size = len(header)
        write_whole(disk, segment.path, [header])


def _open(disk: Disk, directory: Path, segments: list[Segment], ledger: CatalogueView) -> OpenJournal:
    if segments:
        file = disk.open_append(segments[-1].path)
    else:
        segment, file = create_segment(disk, directory, ledger.identity, 0, NO_SEGMENT)
        segments = [segment]
    try:
        disk.sync(file)  # what the process before wrote and did not wait for
        last = segments[-1]
        ledger.note_known(Known(segments[0].base, last.base, last.size))
        return OpenJournal(segments, file, DurableEnd(disk, directory, ledger.identity, last.ending))
    except BaseException:
        disk.close(file)
        raise
