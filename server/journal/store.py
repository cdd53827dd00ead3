"""The catalogue and the desired state of queries, kept in SQLite over restarts (case C37).

Definitions are kept as the statements that made them, in the order they were made; running them again in that order rebuilds the
catalogue, whatever this version's objects look like inside. A query is kept with how it was given (text or plan object), its options,
and the state its user wants. WAL with full synchronisation: when a call returns, the change survives SIGKILL and power loss.

All calls come from one thread, the one that executes statements.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from dataclasses import field
from pathlib import Path
from typing import IO, Any

from millstream.engine.data.records import dataclass
from millstream.server.errors import StoreError
from millstream.server.journal.directory_lock import lock

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

    def __init__(self, directory: Path | None) -> None:
        self.path = None if directory is None else directory / FILE_NAME
        self._lock: IO[str] | None = None
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
                self._lock = lock(directory)
            target = ":memory:" if self.path is None else str(self.path)
            self._connection = sqlite3.connect(target, isolation_level=None, check_same_thread=False)
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
        self._connection.execute("INSERT INTO about VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value))

    def definitions(self) -> list[StoredDefinition]:
        """Return the definitions in the order they were made."""
        rows = self._connection.execute("SELECT position, kind, name, statement FROM definitions ORDER BY position")
        return [StoredDefinition(*row) for row in rows]

    def add_definition(self, kind: str, name: str, statement: str) -> int:
        """Keep a definition; returns its number, which no other one ever has."""
        cursor = self._connection.execute("INSERT INTO definitions (kind, name, statement) VALUES (?, ?, ?)", (kind, name, statement))
        return int(cursor.lastrowid or 0)

    def add_function(self, name: str, statement: str, source: str) -> None:
        """Keep the definition of a function and the text of its file, both or neither."""
        with self._transaction():
            self.add_definition("function", name, statement)
            self._connection.execute("INSERT INTO sources VALUES (?, ?)", (name, source))

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
        self._connection.execute(
            "INSERT INTO queries (name, text, plan, options, desired, start_at_us, lifetime_us) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (query.name, query.text, plan, json.dumps(query.options), query.desired, query.start_at_us, query.lifetime_us),
        )

    def runs(self) -> dict[str, StoredRun]:
        """Return the runs that can be rebuilt, by key."""
        rows = self._connection.execute("SELECT key, began_at, identity, earlier FROM runs")
        return {r[0]: StoredRun(r[1], r[2], json.loads(r[3])) for r in rows}

    def set_run(self, key: str, run: StoredRun) -> None:
        """Remember a run in the place of the one before."""
        self._connection.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", (key, run.began_at, run.identity, json.dumps(run.earlier))
        )

    def forget_run(self, key: str) -> None:
        """Forget a run: what it gave cannot be rebuilt."""
        self._connection.execute("DELETE FROM runs WHERE key = ?", (key,))

    def set_desired(self, name: str, desired: str) -> None:
        """Keep the state that the user wants a query in."""
        self._connection.execute("UPDATE queries SET desired = ? WHERE name = ?", (desired, name))

    def forget(self, definitions: list[tuple[str, str]], queries: list[str]) -> None:
        """Drop definitions (kind, name) and queries, all or none of them: a CASCADE is one change."""
        with self._transaction():
            self._connection.executemany("DELETE FROM definitions WHERE kind = ? AND name = ?", definitions)
            self._connection.executemany("DELETE FROM sources WHERE ? = 'function' AND name = ?", definitions)
            self._connection.executemany("DELETE FROM queries WHERE name = ?", [(name,) for name in queries])

    def _transaction(self) -> sqlite3.Connection:
        """Begin; the connection as a context manager commits, or rolls back on an error."""
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

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
