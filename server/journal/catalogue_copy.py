"""A catalogue read without changing anything, as far as it can be read: what `millstream journal` knows of a directory."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import field
from pathlib import Path
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.server.journal.disk import Disk, read
from millstream.server.journal.known import Known
from millstream.server.journal.store import FILE_NAME, FORMATS_READ, POLICY_NOTE, StoredDefinition

_PARTS = ("", "-wal")  # of SQLite's file; the third one, -shm, is made anew


@dataclass(slots=True)
class CatalogueCopy:
    """What was read. `problems` says what could not be; `identity` is None when that is so, and for the format of version 0.1.0."""

    problems: list[str] = field(default_factory=list)
    format: int | None = None
    identity: bytes | None = None
    number_max: int = 0
    known: Known | None = None
    definitions: list[StoredDefinition] = field(default_factory=list)
    queries: list[tuple[Any, ...]] = field(default_factory=list)
    runs: list[tuple[str, int]] = field(default_factory=list)
    functions: list[tuple[str, str]] = field(default_factory=list)
    policy: str | None = None
    archives: list[tuple[Any, ...]] = field(default_factory=list)
    archive_files: list[tuple[Any, ...]] = field(default_factory=list)
    comments: list[tuple[Any, ...]] = field(default_factory=list)
    widths: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all of it was read."""
        return not self.problems

    def disown(self, problem: str) -> None:
        """Forget what was read: it is not this directory's."""
        self.problems.append(problem)
        self.identity, self.known, self.policy, self.number_max = None, None, None, 0
        self.definitions, self.queries, self.runs, self.functions = [], [], [], []
        self.archives, self.archive_files, self.comments, self.widths = [], [], [], []


def read_catalogue(disk: Disk, directory: Path) -> CatalogueCopy:
    """Return the catalogue of a directory, read; what is wrong with it is in `problems`."""
    made = CatalogueCopy()
    path = directory / FILE_NAME
    if not disk.exists(path) or not read(disk, path, 1):
        made.problems.append(f"{path} is {'empty' if disk.exists(path) else 'missing'}")
        return made
    with tempfile.TemporaryDirectory() as folder:
        for part in _PARTS:
            if disk.exists(path.with_name(path.name + part)):
                (Path(folder) / (path.name + part)).write_bytes(read(disk, path.with_name(path.name + part)))
        with closing(sqlite3.connect(Path(folder) / path.name)) as connection:
            _Reader(connection, made, path).run()
    return made


class _Reader:
    def __init__(self, connection: sqlite3.Connection, made: CatalogueCopy, path: Path) -> None:
        self.connection = connection
        self.made = made
        self.path = path

    def run(self) -> None:
        self._try("its pages", self._check)
        self._try("its identity", self._about)
        self._try("the definitions", self._definitions)
        self._try("the queries", self._queries)
        self._try("the functions", self._functions)
        self._try("the archives", self._archives)
        self._try("the comments", self._notes)
        if self.made.format != 1:
            self._try("what it knows of the journal", self._known)

    def _try(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except (sqlite3.Error, ValueError, TypeError) as error:
            self.made.problems.append(f"{self.path} is damaged: {what} cannot be read ({error})")

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement).fetchall()

    def _check(self) -> None:
        ((found,),) = self._rows("PRAGMA quick_check(1)")
        if found != "ok":
            raise ValueError(found)

    def _about(self) -> None:
        about = dict(self._rows("SELECT key, value FROM about"))
        self.made.policy = about.get(POLICY_NOTE)
        self.made.format = int(about["format"]) if "format" in about else None
        if self.made.format not in FORMATS_READ:
            raise ValueError(f"format {self.made.format}")
        if self.made.format != 1:
            self.made.identity = uuid.UUID(str(about.get("identity"))).bytes

    def _definitions(self) -> None:
        rows = self._rows("SELECT position, kind, name, statement FROM definitions ORDER BY position")
        self.made.definitions = [StoredDefinition(*row) for row in rows]
        highest = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'definitions'")
        self.made.number_max = max([d.position for d in self.made.definitions] + [int(row[0]) for row in highest], default=0)

    def _queries(self) -> None:
        rows = self._rows("SELECT position, name, text, plan, options, desired, start_at_us, lifetime_us FROM queries ORDER BY position")
        for row in rows:
            json.loads(row[4])
        self.made.queries = rows
        self.made.runs = [(str(key), int(began_at)) for key, began_at in self._rows("SELECT key, began_at FROM runs")]

    def _functions(self) -> None:
        self.made.functions = [(str(name), str(text)) for name, text in self._rows("SELECT name, text FROM sources")]

    def _archives(self) -> None:
        if self._rows("SELECT 1 FROM sqlite_master WHERE name = 'archive_files'"):  # else an earlier release made the file
            self.made.archives = self._rows("SELECT * FROM archives")
            self.made.archive_files = self._rows("SELECT * FROM archive_files")

    def _notes(self) -> None:
        if self._rows("SELECT 1 FROM sqlite_master WHERE name = 'widths'"):  # else an earlier release made the file
            self.made.comments = self._rows("SELECT kind, name, text FROM comments")
            self.made.widths = self._rows("SELECT query, stream, columns FROM widths")

    def _known(self) -> None:
        rows = self._rows("SELECT first, last, end, is_empty FROM journal")
        self.made.known = Known(rows[0][0], rows[0][1], rows[0][2], bool(rows[0][3])) if rows else None
