"""The catalogue and the desired state of queries, kept in SQLite over restarts (case C37).

Definitions are kept as the statements that made them, in the order they were made; running them again in that order rebuilds the
catalogue, whatever this version's objects look like inside. A query is kept with how it was given (text or plan object), its options,
and the state its user wants. WAL with full synchronisation: when a call returns, the change survives SIGKILL and power loss.

All calls come from one thread, the one that executes statements. What one of them writes is one transaction (`change`).
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO, Any

from millstream.engine.data.records import dataclass
from millstream.server.errors import StorageError, StoreError
from millstream.server.journal.changes import Change
from millstream.server.journal.directory_lock import lock
from millstream.server.journal.disk import Disk, SystemDisk

FORMAT_VERSION = 1
FILE_NAME = "catalogue.sqlite"
POLICY_NOTE = "policy"  # the note that remembers the policy that was set

_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS definitions (
    position INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL, statement TEXT NOT NULL,
    UNIQUE (kind, name)) STRICT;
CREATE TABLE IF NOT EXISTS queries (
    position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, text TEXT, plan TEXT, options TEXT NOT NULL,
    desired TEXT NOT NULL, start_at_us INTEGER, lifetime_us INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, began_at INTEGER NOT NULL, identity TEXT NOT NULL, earlier TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS sources (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
"""


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """One CREATE statement that is in force; `kind` is stream, table, class or function. `position` orders it among all that is stored."""

    position: int
    kind: str
    name: str
    statement: str


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A durable query: `text` or `plan` (one of the two), options, the state its user wants. Times in microseconds."""

    name: str
    text: str | None = None
    plan: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    desired: str = "running"
    start_at_us: int | None = None
    lifetime_us: int | None = None


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A query's run over journaled streams: where in arrival order it began, the identity of its results, those it had before restarts.

    `earlier` has for each former identity how many rows of its results the present ones agree with.
    """

    began_at: int
    identity: str
    earlier: dict[str, int] = field(default_factory=dict)


class Store:
    """The open catalogue file of a data directory, or one in memory when `directory` is None."""

    def __init__(self, directory: Path | None, disk: Disk | None = None) -> None:
        self.disk: Disk = disk or SystemDisk()
        self.path = None if directory is None else directory / FILE_NAME
        self._lock: IO[str] | None = None
        self._change: Change | None = None
        self._is_doubtful = False  # a write has failed: the log may hold what is not in force
        try:
            if directory is not None:
                self.disk.make_directory(directory)
                self._lock = lock(directory)
            self._connection = _in_memory() if self.path is None else self.disk.connect(self.path)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot use the data directory {directory}: {error}", hint="choose another with --data-dir") from error
        self._check_version()

    def close(self) -> None:
        """Close the file, and leave the directory to others."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()

    @property
    def server_id(self) -> str:
        """An id that is this data directory's own."""
        found = self.note("server_id")
        if found is None:
            found = secrets.token_hex(8)
            self.set_note("server_id", found)
        return found

    def note(self, key: str) -> str | None:
        """Return a remembered word, such as the policy that was set."""
        row = self._connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_note(self, key: str, value: str) -> None:
        """Remember a word."""
        self._write("INSERT INTO about VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)

    def definitions(self) -> list[StoredDefinition]:
        """Return the definitions in the order they were made."""
        rows = self._connection.execute("SELECT position, kind, name, statement FROM definitions ORDER BY position")
        return [StoredDefinition(*row) for row in rows]

    def reserve_number(self) -> int:
        """Return a number for a definition, never given before or again, also if nothing comes of it: the journal may name it at once.

        That is on disk when this returns, whatever becomes of the present change, of which nothing may be written yet.
        """
        assert not self._connection.in_transaction
        if self._execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'definitions'").rowcount == 0:
            self._execute("INSERT INTO sqlite_sequence VALUES ('definitions', 1)")
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'definitions'").fetchone()
        return int(row[0])

    def add_definition(self, kind: str, name: str, statement: str, number: int | None = None) -> int:
        """Keep a definition; returns its number, which no other one ever has: the one reserved for it, or the next."""
        cursor = self._write("INSERT INTO definitions VALUES (?, ?, ?, ?)", number, kind, name, statement)
        return int(cursor.lastrowid or 0)

    def add_function(self, name: str, statement: str, source: str) -> None:
        """Keep the definition of a function and the text of its file, both or neither."""
        with self.change():
            self.add_definition("function", name, statement)
            self._write("INSERT INTO sources VALUES (?, ?)", name, source)

    def source(self, function: str) -> str | None:
        """Return the text of a function's file."""
        row = self._connection.execute("SELECT text FROM sources WHERE name = ?", (function,)).fetchone()
        return None if row is None else str(row[0])

    def queries(self) -> list[StoredQuery]:
        """Return the durable queries in the order they were made."""
        rows = self._connection.execute(
            "SELECT name, text, plan, options, desired, start_at_us, lifetime_us FROM queries ORDER BY position"
        )
        return [StoredQuery(r[0], r[1], None if r[2] is None else json.loads(r[2]), json.loads(r[3]), *r[4:]) for r in rows]

    def add_query(self, query: StoredQuery) -> None:
        """Keep a query."""
        plan = None if query.plan is None else json.dumps(query.plan)
        self._write(
            "INSERT INTO queries (name, text, plan, options, desired, start_at_us, lifetime_us) VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(query.name, query.text, plan, json.dumps(query.options), query.desired, query.start_at_us, query.lifetime_us),
        )

    def runs(self) -> dict[str, StoredRun]:
        """Return the runs that can be rebuilt, by key."""
        rows = self._connection.execute("SELECT key, began_at, identity, earlier FROM runs")
        return {r[0]: StoredRun(r[1], r[2], json.loads(r[3])) for r in rows}

    def set_run(self, key: str, run: StoredRun) -> None:
        """Remember a run in the place of the one before."""
        self._write("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", key, run.began_at, run.identity, json.dumps(run.earlier))

    def forget_run(self, key: str) -> None:
        """Forget a run: what it gave cannot be rebuilt."""
        self._write("DELETE FROM runs WHERE key = ?", key)

    def set_desired(self, name: str, desired: str) -> None:
        """Keep the state that the user wants a query in."""
        self._write("UPDATE queries SET desired = ? WHERE name = ?", desired, name)

    def forget(self, definitions: list[tuple[str, str]], queries: list[str]) -> None:
        """Drop definitions (kind, name) and queries, all or none of them: a CASCADE is one change."""
        with self.change():
            for kind, name in definitions:
                self._write("DELETE FROM definitions WHERE kind = ? AND name = ?", kind, name)
                self._write("DELETE FROM sources WHERE ? = 'function' AND name = ?", kind, name)
            for name in queries:
                self._write("DELETE FROM queries WHERE name = ?", name)

    # --- changes ---

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Make what is written meanwhile one change, within another one a part of that.

        StorageError when the disk does not take it: nothing of it is in force then, on disk or, as far as `Change` was told, in memory.
        """
        if self._change is not None:
            yield self._change
            return
        change = self._change = Change()
        try:
            yield change
            if self._connection.in_transaction:
                self._execute("COMMIT")
        except BaseException:
            self._change = None
            self._roll_back()
            change.take_back()
            raise
        self._change = None
        change.finish()

    def _write(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement that changes something, within the present change if there is one. StorageError when the disk refuses."""
        if not self._connection.in_transaction:
            if self._is_doubtful:
                self._begin_files_anew()
            if self._change is not None:
                self._execute("BEGIN IMMEDIATE")
        return self._execute(statement, *values)

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            self._is_doubtful = True
            raise StorageError("the catalogue cannot be written", error) from error

    def _roll_back(self) -> None:
        """Give up what was not committed. SQLite may have done so by itself; it needs nothing of the disk."""
        if self._connection.in_transaction:
            self._connection.rollback()

    def _begin_files_anew(self) -> None:
        """Have SQLite move all that is in force into the database and cut its log.

        A write has failed: what it left in the log, perhaps not known to the disk, must not come back at the next start.
        """
        busy, *_ = self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StorageError("the catalogue cannot be written", sqlite3.OperationalError("its log is in use"))
        self._is_doubtful = False

    def _check_version(self) -> None:
        found = self.note("format")
        if found is None:
            self.set_note("format", str(FORMAT_VERSION))
        elif found != str(FORMAT_VERSION):
            self.close()
            raise StoreError(
                f"{self.path} has format {found} and this server writes format {FORMAT_VERSION}",
                hint="start it with the release that wrote the directory, or choose another --data-dir",
            )


def _in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
