"""`millstream journal salvage`: what is readable of a damaged data directory becomes a new one that a server opens.

The new directory has an identity of its own. Streams keep their numbers, rows their arrival numbers, segments their bases. A restart
begins at the first checkpoint behind the damage where there is one: then what tables and queries hold is right again. Results before and
after are not the same rows, so no token of the damaged directory is good for the new one.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.server.errors import StoreError
from millstream.server.journal import first_format
from millstream.server.journal.catalogue_copy import CatalogueCopy, read_catalogue
from millstream.server.journal.checkpoint_files import checked_body, checkpoint_bases, checkpoint_path, write_body
from millstream.server.journal.disk import Disk, read, write_whole
from millstream.server.journal.durable_end import DurableEnd
from millstream.server.journal.known import ARCHIVE_FOLDER, ARCHIVE_SUFFIX, FOLDER, Known
from millstream.server.journal.reading import Hole, JournalFiles, Reading, files_of, missing_at_the_ends
from millstream.server.journal.records import CONTROL, DEFINITION, ROWS
from millstream.server.journal.segments import LET_GO, NO_SEGMENT, Ending, salvaged
from millstream.server.journal.store import POLICY_NOTE, Store, StoredQuery, StoredRun
from millstream.server.journal.writing import SegmentWriter

TakeOver = Callable[[bytes], bytes | None]  # the body of a checkpoint of version 0.1.0, and that of the present format


@dataclass(slots=True)
class Salvaged:
    """What was got back, and what was not. Rows by the names of streams; of dropped streams under their numbers."""

    rows: Counter[str] = field(default_factory=Counter)
    rows_lost: Counter[str] = field(default_factory=Counter)
    holes: list[Hole] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.holes and not self.notes


def salvage(disk: Disk, source: Path, target: Path, take_over: TakeOver) -> Salvaged:
    """Copy what is readable of `source` into the new directory `target`; returns what was.

    StoreError when there is nothing, or the target is not empty.
    """
    if disk.names(target):
        raise StoreError(f"{target} is not empty", hint="name a directory that does not exist yet")
    catalogue = read_catalogue(disk, source)
    files = files_of(disk, source, catalogue)
    if not files.bases and not catalogue.definitions:
        raise StoreError(f"there is nothing to salvage in {source}", hint="name a data directory, which has catalogue.sqlite and journal/")
    try:
        return _Salvage(disk, source, target, take_over, catalogue, files).run()
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror or error}", hint="make room on the disk, and start again") from error


class _Salvage:
    def __init__(self, disk: Disk, source: Path, target: Path, take_over: TakeOver, catalogue: CatalogueCopy, files: JournalFiles) -> None:
        self.disk = disk
        self.source = source
        self.target = target
        self.take_over = take_over
        self.catalogue = catalogue
        self.files = files
        self.made = Salvaged(notes=list(catalogue.problems))
        self.definitions: dict[int, dict[str, str]] = {d.position: d.content for d in catalogue.definitions}
        self.number_max = catalogue.number_max
        self.rows: Counter[int] = Counter()
        self.rows_lost: Counter[int] = Counter()

    def run(self) -> Salvaged:
        good = self._good_checkpoints()
        self.files = replace(self.files, bases=sorted({*self.files.bases, *good}))  # a checkpoint is good without its segment
        first = self._look()
        stands_at = self._stands_at(first, sorted(good))
        store = Store(self.target, self.disk)
        try:
            names = self._write_catalogue(store)
            if self.files.bases:
                kept = {at: body for at, body in good.items() if stands_at is None or at >= stands_at}
                store.note_known(self._write_journal(store.identity, stands_at, kept))
            self._copy_archive(self.source / ARCHIVE_FOLDER)
        finally:
            store.close()
        self._count(names)
        return self.made

    # --- what there is ---

    def _look(self) -> Reading | None:
        """Go through all files once: count, note holes, learn definitions. Returns the first file, without its records."""
        first: Reading | None = None
        end = 0
        own: dict[int, dict[str, str]] = {}
        for reading in self.files.readings():
            first, end = first or reading, max(end, reading.end)
            self.made.holes += reading.holes
            self.rows += reading.rows
            for hole in reading.holes:
                self.rows_lost.update(hole.rows)
            for record in reading.records:
                self.number_max = max(self.number_max, record.stream)
                if record.kind == DEFINITION:
                    own[record.stream] = dict(record.meta)
            reading.records = []
        self.made.holes += missing_at_the_ends(self.files, self.catalogue, first, end)
        self._learn(own)
        return first

    def _learn(self, own: Mapping[int, dict[str, str]]) -> None:
        """Take definitions from the journal where the catalogue lacks them or has others; of two of one name the later one stands."""
        known = self.definitions
        for number in sorted(own.keys() & known.keys()):
            if known[number] != own[number]:
                self.made.notes.append(f"the catalogue's definition of {own[number]['name']} is not the journal's, which is taken")
                known[number] = own[number]
        names = {d["name"] for d in known.values() if d["kind"] in ("stream", "table")}
        lacking = [n for n in own if n not in known and (n > self.catalogue.number_max or not self.catalogue.is_whole)]
        for number in sorted(lacking, reverse=True):
            if own[number]["name"] not in names:
                known[number] = own[number]
                names.add(own[number]["name"])
        if lacking and self.catalogue.is_whole:
            self.made.notes.append("the catalogue is older than the journal: streams and tables that it lacks are taken from the journal")
        if not self.catalogue.is_whole and not self.catalogue.queries:
            self.made.notes.append("durable queries, classes and functions stand in the catalogue alone: make them anew")

    # --- where a restart begins ---

    def _good_checkpoints(self) -> dict[int, bytes]:
        found = {at: self._checkpoint(at) for at in checkpoint_bases(self.disk, self.files.directory)}
        return {at: body for at, body in found.items() if body is not None}

    def _stands_at(self, first: Reading | None, good: list[int]) -> int | None:
        """Return at which checkpoint a restart begins: behind the last damage that has one behind it. None: at the first record."""
        if first is None:
            return None
        before = None if first.header is None else first.header.previous
        begins_whole = first.base == 0 if before is None else before == NO_SEGMENT
        stands: int | None = first.base if not begins_whole and first.base in good else None
        for at in good:
            since = -1 if stands is None else stands
            lost = any(since <= hole.lo < at or since < (hole.hi or 0) <= at for hole in self.made.holes)
            if lost or (stands is None and not begins_whole):
                stands = at
        if stands is None and not begins_whole:
            self.made.notes.append("no checkpoint can be read: what tables and queries held of rows that the journal let go of is gone")
        return stands

    def _checkpoint(self, at: int) -> bytes | None:
        path = checkpoint_path(self.files.directory, at)
        content = read(self.disk, path)
        old = first_format.checkpoint_body(content)
        if old is not None:
            return self.take_over(old)
        try:
            return checked_body(content, self.files.identity or b"", at)
        except ValueError as problem:
            self.made.notes.append(f"{path}: {problem}")
            return None

    # --- the new directory ---

    def _write_catalogue(self, store: Store) -> dict[int, str]:
        """Write what is to stand in the catalogue; returns the names of streams and tables by number."""
        old = self.catalogue
        for number, found in sorted(self.definitions.items()):
            store.put_definition(number, found["kind"], found["name"], found["statement"])
        store.number_max_at_least(self.number_max)
        for name, text in old.functions:
            store.put_source(name, text)
        for _, name, text, plan, options, *rest in old.queries:
            store.add_query(StoredQuery(name, text, store.read_json(plan), store.read_json(options) or {}, *rest))
        for key, began_at in old.runs:
            store.set_run(key, StoredRun(began_at, secrets.token_hex(6)))  # an identity that no token has
        store.put_archives(old.archives, old.archive_files)
        store.put_notes(old.comments, old.widths)
        if old.policy is not None:
            store.set_note(POLICY_NOTE, old.policy)
        return {number: found["name"] for number, found in self.definitions.items() if found["kind"] in ("stream", "table")}

    def _write_journal(self, identity: bytes, stands_at: int | None, checkpoints: Mapping[int, bytes]) -> Known:
        folder = self.target / FOLDER
        self.disk.make_directory(folder)
        first = NO_SEGMENT if stands_at is None else LET_GO if stands_at == self.files.bases[0] else salvaged(stands_at)
        endings: list[Ending] = []
        for reading in self.files.readings():
            endings.append(self._write_segment(folder, identity, endings[-1] if endings else first, reading))
        for at, body in checkpoints.items():
            write_body(self.disk, folder, identity, at, body)
        DurableEnd(self.disk, folder, identity, endings[-1]).close()
        self.disk.sync_directory(self.target)
        return Known(endings[0].base, endings[-1].base, endings[-1].size)

    def _write_segment(self, folder: Path, identity: bytes, previous: Ending, reading: Reading) -> Ending:
        defined = {r.stream for r in reading.records if r.kind == DEFINITION}
        missing = sorted({r.stream for r in reading.records if r.kind in (ROWS, CONTROL)} - defined)
        known: list[tuple[int, Mapping[str, Any]]] = [(n, self.definitions[n]) for n in missing if n in self.definitions]
        writer = SegmentWriter(self.disk, folder, identity, reading.base, previous, known)
        try:
            for record in reading.records:
                writer.append(record)
            return writer.finish()
        finally:
            writer.close()

    def _copy_archive(self, folder: Path) -> None:
        """Copy the files of archives that lie in the data directory; those elsewhere stay where they are."""
        for name in self.disk.names(folder):
            path = folder / name
            if path.suffix == ARCHIVE_SUFFIX:
                target = self.target / path.relative_to(self.source)
                self.disk.make_directory(target.parent)
                write_whole(self.disk, target, [read(self.disk, path)])
            elif not path.suffix:  # the folder of an archive, or of a day
                self._copy_archive(path)

    def _count(self, names: Mapping[int, str]) -> None:
        for counts, into in ((self.rows, self.made.rows), (self.rows_lost, self.made.rows_lost)):
            for number, rows in sorted(counts.items()):
                into[names.get(number, f"a dropped stream (number {number})")] += rows
