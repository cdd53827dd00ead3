"""A data directory of version 0.1.0 becomes one of this format, whole or not at all.

The new journal is written aside. One change of the catalogue makes it the journal; the renaming that follows is done again by the next
start when a crash came in between. Until then the directory is what it was, for the release that wrote it too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from millstream.server.errors import StoreError
from millstream.server.journal import first_format
from millstream.server.journal.checkpoint_files import checkpoint_bases, checkpoint_path, write_body
from millstream.server.journal.disk import Disk, read
from millstream.server.journal.durable_end import DurableEnd
from millstream.server.journal.known import FOLDER, NEW_FOLDER, OLD_FOLDER, Known, way_out
from millstream.server.journal.opening import Report
from millstream.server.journal.records import Record
from millstream.server.journal.segments import LET_GO, NO_SEGMENT, Ending, base_of, segment_path
from millstream.server.journal.writing import SegmentWriter

TakeOver = Callable[[bytes], bytes | None]  # the body of a checkpoint of the first format, and that of the present one


class OldCatalogue(Protocol):
    """What the conversion needs of the catalogue."""

    @property
    def format(self) -> int:
        """The format of the catalogue's file."""

    def convert(self, identity: bytes, known: Known) -> None:
        """Make it one of the present format."""


def convert(
    disk: Disk, directory: Path, catalogue: OldCatalogue, definitions: dict[int, dict[str, str]], take_over: TakeOver, report: Report
) -> None:
    """Convert a directory if it is of the first format; finish what a crash left of a conversion. StoreError when it cannot be.

    `definitions` has what stands in the journal about each stream and table, by number.
    """
    try:
        if catalogue.format == first_format.FORMAT_VERSION:
            _remove(disk, directory / NEW_FOLDER)
            _Conversion(disk, directory, definitions, take_over, report).run(catalogue)
        _swap(disk, directory)
    except OSError as error:
        message = f"the journal in {directory} cannot be converted to this release's format: {error.strerror or error}"
        hint = "make room for a second copy of the journal; nothing was changed, the release that wrote it still opens the directory"
        raise StoreError(message, hint=hint) from error


def _swap(disk: Disk, directory: Path) -> None:
    """Let the new journal have its name."""
    new, old, folder = directory / NEW_FOLDER, directory / OLD_FOLDER, directory / FOLDER
    if disk.exists(new):
        if disk.exists(folder):
            disk.rename(folder, old)
        disk.rename(new, folder)
        disk.sync_directory(directory)
    _remove(disk, old)


def _remove(disk: Disk, folder: Path) -> None:
    if disk.exists(folder):
        for name in disk.names(folder):
            disk.unlink(folder / name)
        disk.remove_directory(folder)


class _Conversion:
    def __init__(self, disk: Disk, directory: Path, definitions: dict[int, dict[str, str]], take_over: TakeOver, report: Report) -> None:
        self.disk = disk
        self.old = directory / FOLDER
        self.new = directory / NEW_FOLDER
        self.definitions = definitions
        self.take_over = take_over
        self.report = report
        self.identity = uuid.uuid4().bytes

    def run(self, catalogue: OldCatalogue) -> None:
        self.disk.make_directory(self.new)
        bases = [base for name in self.disk.names(self.old) if (base := base_of(name)) is not None]
        checkpoints = self._checkpoints(bases)
        previous = LET_GO if bases and bases[0] in checkpoints else NO_SEGMENT
        endings: list[Ending] = []
        for base in bases:
            ending = self._segment(base, endings[-1] if endings else previous, is_last=base == bases[-1])
            if ending is not None:
                endings.append(ending)
        if not endings:
            endings.append(self._write(0, NO_SEGMENT, []))
        DurableEnd(self.disk, self.new, self.identity, endings[-1]).close()
        self.disk.sync_directory(self.new.parent)
        catalogue.convert(self.identity, Known(endings[0].base, endings[-1].base, endings[-1].size))
        self.report("journal_converted", f"{self.old}: {len(bases)} segments of version 0.1.0 are now of this release's format")

    def _checkpoints(self, bases: Sequence[int]) -> list[int]:
        """Take over the checkpoints that can be read; returns where they stand."""
        taken = []
        for at in checkpoint_bases(self.disk, self.old):
            path = checkpoint_path(self.old, at)
            body = first_format.checkpoint_body(read(self.disk, path))
            if body is None and at == bases[0]:
                raise StoreError(f"{path}: the checkpoint is damaged", hint=way_out(self.old))
            new = None if body is None else self.take_over(body)
            if new is not None and at in bases:
                write_body(self.disk, self.new, self.identity, at, new)
                taken.append(at)
            else:
                gone = "; what tables held of older rows is gone" if at == bases[0] else ""
                self.report("checkpoint_ignored", f"{path} cannot be used; what the journal has is replayed instead{gone}")
        return taken

    def _segment(self, base: int, previous: Ending, *, is_last: bool) -> Ending | None:
        path = segment_path(self.old, base)
        content = read(self.disk, path)
        if len(content) < len(first_format.HEADER) and first_format.HEADER.startswith(content):
            self.report("journal_noted", f"{path} is empty: a full disk or a crash kept it from being begun, or it has been emptied")
            return None
        if not first_format.is_first_format(content):
            raise StoreError(f"{path}, byte 0: it is not a segment of the format that the catalogue has", hint=way_out(self.old))
        found = list(first_format.records(content))
        size = found[-1].stop if found else len(first_format.HEADER)
        if size < len(content):
            self._cut(path, content, size, is_last=is_last)
        return self._write(base, previous, [f.record for f in found])

    def _cut(self, path: Path, content: bytes, size: int, *, is_last: bool) -> None:
        behind = next(first_format.records_behind(content, size), None)
        if not is_last or behind is not None:
            raise StoreError(f"the journal is damaged: {path}, byte {size}: a record is damaged", hint=way_out(self.old))
        text = f"{path}, byte {size}: {len(content) - size} bytes at its end are no whole record, as a crash leaves them; they are left out"
        self.report("journal_cut", f"{text}; that is one record of rows, or one that was damaged later")

    def _write(self, base: int, previous: Ending, records: Sequence[Record]) -> Ending:
        numbers = sorted({r.stream for r in records} & self.definitions.keys())
        writer = SegmentWriter(self.disk, self.new, self.identity, base, previous, [(n, self.definitions[n]) for n in numbers])
        try:
            for record in records:
                writer.append(record)
            return writer.finish()
        finally:
            writer.close()
