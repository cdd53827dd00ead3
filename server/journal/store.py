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
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.server.errors import StorageError, StoreError
from millstream.server.journal.changes import Change
from millstream.server.journal.disk import Disk, Held, SystemDisk, read
from millstream.server.journal.known import FOLDER, Known, way_out
from millstream.server.journal.segments import base_of

FORMAT_VERSION = 2
FORMATS_READ = (1, 2)  # 1 is converted (conversion.py)
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
CREATE TABLE IF NOT EXISTS journal (
    id INTEGER PRIMARY KEY CHECK (id = 1), first INTEGER NOT NULL, last INTEGER NOT NULL, end INTEGER NOT NULL,
    is_empty INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS archives (
    stream INTEGER PRIMARY KEY, upto INTEGER NOT NULL, watermark_us INTEGER NOT NULL, complete_from_us INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS archive_files (
    stream INTEGER NOT NULL, path TEXT NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL, controls INTEGER NOT NULL, time_min_us INTEGER, time_max_us INTEGER, PRIMARY KEY (stream, path)) STRICT;
CREATE TABLE IF NOT EXISTS sources (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS comments (kind TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, name)) STRICT;
CREATE TABLE IF NOT EXISTS widths (
    query TEXT NOT NULL, stream TEXT NOT NULL, columns INTEGER NOT NULL, PRIMARY KEY (query, stream)) STRICT;
"""


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """One CREATE statement that is in force; `kind` is stream, table, class or function. `position` orders it among all that is stored.

    `column` is the kind of ALTER STREAM … ADD COLUMN, one a column; its name is `stream/column`, as no name has a slash.
    """

    position: int
    kind: str
    name: str
    statement: str

    @property
    def content(self) -> dict[str, str]:
        """What the journal keeps of it."""
        return {"kind": self.kind, "name": self.name, "statement": self.statement}


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A durable query: `text` or `plan` (one of the two), options, the state its user wants. Times in microseconds.

    `widths` says how many columns streams had when it was planned, of those that have more since.
    """

    name: str
    text: str | None = None
    plan: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    desired: str = "running"
    start_at_us: int | None = None
    lifetime_us: int | None = None
    widths: dict[str, int] = field(default_factory=dict)


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
        self._lock: Held | None = None
        self._change: Change | None = None
        self._is_doubtful = False  # whether the log may hold what is not in force, as after a write that failed
        try:
            if directory is not None:
                self.disk.make_directory(directory)
                self._lock = self.disk.lock(directory)
                self._refuse_lost(directory)
                self._force_log(directory)
            self._connection = _in_memory() if self.path is None else self.disk.connect(self.path)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot use the data directory {directory}: {error}", hint="choose another with --data-dir") from error
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_TABLES)
            self._check()
        except (StoreError, StorageError, sqlite3.Error) as error:
            self.close()
            raise self._unusable(error) if isinstance(error, sqlite3.Error) else error from error

    def _refuse_lost(self, directory: Path) -> None:
        """Refuse to begin an empty catalogue over a journal: its streams would get the numbers of those that are lost."""
        assert self.path is not None
        is_there = self.disk.exists(self.path) and bool(read(self.disk, self.path, 1))
        held = [name for name in self.disk.names(directory / FOLDER) if base_of(name) is not None]
        if held and not is_there:
            assert self._lock is not None
            self._lock.close()
            what = "is empty" if self.disk.exists(self.path) else "is missing"
            raise StoreError(
                f"{self.path} {what}, and {directory / FOLDER} has {len(held)} segments of rows", hint=way_out(directory / FOLDER)
            )

    def _force_log(self, directory: Path) -> None:
        """Write the log that the process before left once more, as it is read.

        Where a sync of that process failed, the disk may lack parts of it for good, whatever a later sync says. Moved into the database,
        they would be mixed, when the power fails, with the older pages that the log has on the disk.
        """
        assert self.path is not None
        log = self.path.with_name(f"{self.path.name}-wal")
        content = read(self.disk, log) if self.disk.exists(log) else b""
        if not content:
            return
        handle = self.disk.open_update(log)
        try:
            place = 0
            while place < len(content):
                place += self.disk.write_at(handle, content[place:], place)
            self.disk.sync(handle)
        finally:
            self.disk.close(handle)
        self.disk.sync_directory(directory)

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        """Return what to say of a file that SQLite cannot read or write."""
        if isinstance(error, sqlite3.OperationalError) or self.path is None:
            return StoreError(f"cannot use the catalogue {self.path}: {error}", hint="check the data directory")
        return StoreError(f"{self.path} is damaged: {error}", hint=way_out(self.path.parent / FOLDER))

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a SELECT. StoreError when the file is damaged."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

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
        rows = self.rows("SELECT value FROM about WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    def set_note(self, key: str, value: str) -> None:
        """Remember a word."""
        self.write("INSERT INTO about VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)

    def definitions(self) -> list[StoredDefinition]:
        """Return the definitions in the order they were made."""
        rows = self.rows("SELECT position, kind, name, statement FROM definitions ORDER BY position")
        return [StoredDefinition(*row) for row in rows]

    def definition(self, number: int) -> StoredDefinition:
        """Return the definition with a number; KeyError when there is none."""
        rows = self.rows("SELECT position, kind, name, statement FROM definitions WHERE position = ?", number)
        if not rows:
            raise KeyError(number)
        return StoredDefinition(*rows[0])

    def columns_of(self, stream: str) -> list[StoredDefinition]:
        """Return the columns that were added to a stream, in order."""
        rows = self.rows("SELECT position, kind, name, statement FROM definitions WHERE kind = 'column' ORDER BY position")
        return [StoredDefinition(*row) for row in rows if row[2].rpartition("/")[0] == stream]

    def reserve_number(self) -> int:
        """Return a number for a definition, never given before or again, also if nothing comes of it: the journal may name it at once.

        That is on disk when this returns, whatever becomes of the present change, of which nothing may be written yet.
        """
        assert not self._connection.in_transaction
        if self._execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'definitions'").rowcount == 0:
            self._execute("INSERT INTO sqlite_sequence VALUES ('definitions', 1)")
        return self.number_max

    def add_definition(self, kind: str, name: str, statement: str, number: int | None = None) -> int:
        """Keep a definition; returns its number, which no other one ever has: the one reserved for it, or the next."""
        cursor = self.write("INSERT INTO definitions VALUES (?, ?, ?, ?)", number, kind, name, statement)
        return int(cursor.lastrowid or 0)

    def set_definition(self, kind: str, name: str, statement: str) -> None:
        """Keep another statement in the place of that which made a thing; it keeps its number, and its place before all that uses it."""
        self.write("UPDATE definitions SET statement = ? WHERE kind = ? AND name = ?", statement, kind, name)

    def put_definition(self, number: int, kind: str, name: str, statement: str) -> None:
        """Keep a definition under the number that it had elsewhere."""
        self._connection.execute("INSERT INTO definitions VALUES (?, ?, ?, ?)", (number, kind, name, statement))

    def number_max_at_least(self, number: int) -> None:
        """Give numbers up to this one to no definition any more."""
        if number > self.number_max:
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'definitions'")
            self._connection.execute("INSERT INTO sqlite_sequence VALUES ('definitions', ?)", (number,))

    def put_archives(self, archives: Sequence[tuple[Any, ...]], files: Sequence[tuple[Any, ...]]) -> None:
        """Keep what was said of archives elsewhere: rows of both tables."""
        self._connection.executemany("INSERT INTO archives VALUES (?, ?, ?, ?)", archives)
        self._connection.executemany("INSERT INTO archive_files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", files)

    def put_notes(self, comments: Sequence[tuple[Any, ...]], widths: Sequence[tuple[Any, ...]]) -> None:
        """Keep what was said of things, and of the columns of queries, elsewhere: rows of both tables."""
        self._connection.executemany("INSERT INTO comments VALUES (?, ?, ?)", comments)
        self._connection.executemany("INSERT INTO widths VALUES (?, ?, ?)", widths)

    def put_source(self, function: str, text: str) -> None:
        """Keep the text of a function's file."""
        self._connection.execute("INSERT INTO sources VALUES (?, ?)", (function, text))

    def add_function(self, name: str, statement: str, source: str) -> None:
        """Keep the definition of a function and the text of its file, both or neither."""
        with self.change():
            self.add_definition("function", name, statement)
            self.write("INSERT INTO sources VALUES (?, ?)", name, source)

    def set_source(self, function: str, text: str) -> None:
        """Keep another text of a function's file."""
        self.write("INSERT OR REPLACE INTO sources VALUES (?, ?)", function, text)

    def source(self, function: str) -> str | None:
        """Return the text of a function's file."""
        rows = self.rows("SELECT text FROM sources WHERE name = ?", function)
        return str(rows[0][0]) if rows else None

    def queries(self) -> list[StoredQuery]:
        """Return the durable queries in the order they were made."""
        rows = self.rows("SELECT name, text, plan, options, desired, start_at_us, lifetime_us FROM queries ORDER BY position")
        widths: dict[str, dict[str, int]] = {}
        for query, stream, columns in self.rows("SELECT query, stream, columns FROM widths"):
            widths.setdefault(query, {})[stream] = columns
        made = (StoredQuery(r[0], r[1], self.read_json(r[2]), self.read_json(r[3]) or {}, r[4], r[5], r[6]) for r in rows)
        return [replace(one, widths=widths[one.name]) if one.name in widths else one for one in made]

    def read_json(self, text: str | None) -> Any:
        """Return what was kept as JSON. StoreError when it is that no more."""
        try:
            return None if text is None else json.loads(text)
        except ValueError as error:
            raise self._unusable(sqlite3.DatabaseError(f"{error} in {text[:40] if text else text}")) from error

    def add_query(self, query: StoredQuery) -> None:
        """Keep a query."""
        plan = None if query.plan is None else json.dumps(query.plan)
        self.write(
            "INSERT INTO queries (name, text, plan, options, desired, start_at_us, lifetime_us) VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(query.name, query.text, plan, json.dumps(query.options), query.desired, query.start_at_us, query.lifetime_us),
        )

    def runs(self) -> dict[str, StoredRun]:
        """Return the runs that can be rebuilt, by key."""
        rows = self.rows("SELECT key, began_at, identity, earlier FROM runs")
        return {r[0]: StoredRun(r[1], r[2], self.read_json(r[3])) for r in rows}

    def run_of(self, key: str) -> StoredRun | None:
        """Return the run that can be rebuilt under a key, or None."""
        found = self.rows("SELECT began_at, identity, earlier FROM runs WHERE key = ?", key)
        return StoredRun(found[0][0], found[0][1], self.read_json(found[0][2])) if found else None

    def set_run(self, key: str, run: StoredRun) -> None:
        """Remember a run in the place of the one before."""
        self.write("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", key, run.began_at, run.identity, json.dumps(run.earlier))

    def forget_run(self, key: str) -> None:
        """Forget a run: what it gave cannot be rebuilt."""
        self.write("DELETE FROM runs WHERE key = ?", key)

    def set_desired(self, name: str, desired: str) -> None:
        """Keep the state that the user wants a query in."""
        self.write("UPDATE queries SET desired = ? WHERE name = ?", desired, name)

    def set_options(self, name: str, options: dict[str, Any]) -> None:
        """Keep other options of a query."""
        self.write("UPDATE queries SET options = ? WHERE name = ?", json.dumps(options), name)

    def set_width(self, query: str, stream: str, columns: int) -> None:
        """Keep how many columns a stream had when a query was planned, unless that is known from before."""
        self.write("INSERT OR IGNORE INTO widths VALUES (?, ?, ?)", query, stream, columns)

    def forget_widths(self, query: str) -> None:
        """Forget that: the query is planned anew."""
        self.write("DELETE FROM widths WHERE query = ?", query)

    def set_comment(self, kind: str, name: str, text: str | None) -> None:
        """Keep what somebody has to say of a thing, or with None nothing any more."""
        if text is None:
            self.write("DELETE FROM comments WHERE kind = ? AND name = ?", kind, name)
        else:
            self.write("INSERT OR REPLACE INTO comments VALUES (?, ?, ?)", kind, name, text)

    def comments(self, kind: str) -> dict[str, str]:
        """Return what was said of things of a kind, by name."""
        return dict(self.rows("SELECT name, text FROM comments WHERE kind = ?", kind))

    def forget(self, definitions: list[tuple[str, str]], queries: list[str]) -> None:
        """Drop definitions (kind, name) and queries, all or none of them: a CASCADE is one change."""
        with self.change():
            for kind, name in definitions:
                for table in ("archives", "archive_files"):
                    numbers = "SELECT position FROM definitions WHERE kind = ? AND name = ?"
                    self.write(f"DELETE FROM {table} WHERE stream IN ({numbers})", kind, name)
                self.write("DELETE FROM definitions WHERE kind = ? AND name = ?", kind, name)
                self.write("DELETE FROM sources WHERE ? = 'function' AND name = ?", kind, name)
                self.write("DELETE FROM comments WHERE kind = ? AND name = ?", kind, name)
                for column in self.columns_of(name) if kind == "stream" else ():
                    self.write("DELETE FROM definitions WHERE position = ?", column.position)
            for name in queries:
                self.write("DELETE FROM queries WHERE name = ?", name)
                self.write("DELETE FROM comments WHERE kind = 'query' AND name = ?", name)
                self.write("DELETE FROM widths WHERE query = ?", name)

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

    def write(self, statement: str, *values: Any) -> sqlite3.Cursor:
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

        A write has failed: what it left in the log, not known to the disk, must not come back at the next start, and what is written behind
        it would be lost with it when the power fails.
        """
        busy, *_ = self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StorageError("the catalogue cannot be written", sqlite3.OperationalError("its log is in use"))
        self._is_doubtful = False

    # --- the journal ---

    @property
    def format(self) -> int:
        """The format of the file: an older one until `convert` has been called."""
        return int(self.note("format") or FORMAT_VERSION)

    @property
    def identity(self) -> bytes:
        """What catalogue and journal both carry."""
        return uuid.UUID(self.note("identity")).bytes

    @property
    def number_max(self) -> int:
        """The greatest number that a definition ever had."""
        rows = self.rows("SELECT seq FROM sqlite_sequence WHERE name = 'definitions'")
        return int(rows[0][0]) if rows else 0

    def known(self) -> Known | None:
        """Return what was noted of the journal last; None when there was none yet."""
        rows = self.rows("SELECT first, last, end, is_empty FROM journal")
        return Known(rows[0][0], rows[0][1], rows[0][2], bool(rows[0][3])) if rows else None

    def note_known(self, known: Known) -> None:
        """Note which segments the journal has."""
        values = (known.first, known.last, known.end, int(known.is_empty))
        self.write("INSERT OR REPLACE INTO journal VALUES (1, ?, ?, ?, ?)", *values)

    def convert(self, identity: bytes, known: Known) -> None:
        """Make the file one of this format, all at once: from now on it belongs to the journal with this identity."""
        with self.change():
            self.set_note("identity", str(uuid.UUID(bytes=identity)))
            self.note_known(known)
            self.set_note("format", str(FORMAT_VERSION))

    def _check(self) -> None:
        """Refuse a file that is damaged or of another format; make a new one what it is."""
        found = self.note("format")
        if found not in (None, *map(str, FORMATS_READ)):
            raise StoreError(
                f"{self.path} has format {found} and this server writes format {FORMAT_VERSION}",
                hint="start it with the release that wrote the directory, or choose another --data-dir",
            )
        (trouble,) = self.rows("PRAGMA quick_check(1)")[0]
        if trouble != "ok":
            raise self._unusable(sqlite3.DatabaseError(trouble))
        if found is None:
            with self.change():
                self.set_note("identity", str(uuid.uuid4()))
                self.set_note("format", str(FORMAT_VERSION))
        elif found == str(FORMAT_VERSION):
            self._check_identity()

    def _check_identity(self) -> None:
        try:
            uuid.UUID(self.note("identity") or "")
        except ValueError as error:
            raise self._unusable(sqlite3.DatabaseError("its identity cannot be read")) from error


def _in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
