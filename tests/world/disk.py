"""A disk that remembers what is known to be on it, and what is only in the system's cache: what a crash leaves is drawn by seed.

A file has the content that programs see, and the writes that no sync has forced yet. When the machine fails, each of those is kept, torn
at a sector, or lost, whatever their order. Names are forced by `sync_directory`, and those that were not survive up to some point.
SQLite is behind the same door: its files are these, through a virtual file system of apsw.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any
from weakref import WeakValueDictionary

import apsw

from tests.world.hub import Hub, Killed, Process

SECTOR_BYTES = 512


@dataclass
class Mood:
    """How the disk behaves now. `slow_ns`: what an operation takes. `sync`: ok, fails or lies. `full`: takes no more bytes."""

    slow_ns: tuple[int, int] = (0, 0)
    sync: str = "ok"
    full: bool = False
    fails: bool = False

    @property
    def is_bad(self) -> bool:
        return self.sync != "ok" or self.full or self.fails


@dataclass(eq=False)
class Inode:
    """A file: what programs see, what the disk has, and the writes in between (place, bytes; or a size to cut to)."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    lost: bool = False  # a sync has failed: writes may never reach the disk, whatever a later sync says

    def write_at(self, place: int, data: bytes) -> None:
        if place > len(self.content):
            self.content += bytes(place - len(self.content))
        self.content[place : place + len(data)] = data
        self.pending.append((place, data))

    def cut(self, size: int) -> None:
        if size > len(self.content):
            self.content += bytes(size - len(self.content))
        del self.content[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        if self.lost:
            for place, data in self.pending:
                _apply(self.durable, place, data)
        else:
            self.durable = bytearray(self.content)
        self.pending.clear()


def _apply(content: bytearray, place: int, data: bytes | None) -> None:
    if place > len(content):
        content += bytes(place - len(content))
    if data is None:
        del content[place:]
    else:
        content[place : place + len(data)] = data


class Platter:
    """What outlives processes: files by name, and the changes of names that no sync has forced yet."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.mood = Mood()
        self.names: dict[str, Inode | None] = {"/": None}  # None: a directory
        self.durable_names: dict[str, Inode | None] = dict(self.names)
        self.pending_names: list[
            tuple[str, dict[str, Inode | None], list[str]]
        ] = []  # directory, names that are there now, names that went
        self.locks: dict[str, object] = {}
        self.crash_at: int | None = None  # the operation before which the process dies
        self.operations = 0
        self.lied = False  # a sync said that something was on disk which was not
        self.lost_by_lie = False  # and then the power failed
        self.has_failed = False  # an operation has been refused since the server began to serve
        self.bytes_written = 0
        self.gone: dict[str, bytes] = {}
        """What files of the journal held when the server let them go."""

    def change_names(self, directory: str, there: dict[str, Inode | None], gone: Sequence[str] = ()) -> None:
        for name in gone:
            self.names.pop(name, None)
        self.names.update(there)
        self.pending_names.append((directory, there, list(gone)))

    def sync_directory(self, directory: str) -> None:
        """Force names: all changes before the last of this directory, as a journaling file system does."""
        last = max((i for i, change in enumerate(self.pending_names) if change[0] == directory), default=-1)
        self._settle_names(last + 1)

    def _settle_names(self, count: int) -> None:
        for _, there, gone in self.pending_names[:count]:
            for name in gone:
                self.durable_names.pop(name, None)
            self.durable_names.update(there)
        del self.pending_names[:count]

    def lose_power(self) -> None:
        """The machine fails: the cache is gone, save for what the disk happened to write."""
        draw = self.hub.draw
        self.lost_by_lie = self.lost_by_lie or self.lied
        self._settle_names(draw.randint(0, len(self.pending_names)))
        self.pending_names.clear()
        self.names = dict(self.durable_names)
        for name in sorted(self.names):
            inode = self.names[name]
            if inode is None:
                continue
            mood = draw.choice(("none", "all", "some", "prefix"))
            kept = draw.randint(0, len(inode.pending)) if mood == "prefix" else len(inode.pending)
            for place, data in inode.pending[:kept]:
                what = {"none": "lost", "all": "kept", "prefix": "kept"}.get(mood) or draw.choice(("kept", "lost", "torn"))
                if what == "lost":
                    continue
                if what == "torn" and data is not None:
                    sectors = range(0, len(data), SECTOR_BYTES)
                    for start in sectors:
                        if draw.random() < 0.5:
                            _apply(inode.durable, place + start, data[start : start + SECTOR_BYTES])
                    continue
                _apply(inode.durable, place, data)
            inode.pending.clear()
            inode.lost = False
            inode.content = bytearray(inode.durable)
        self.locks.clear()

    def fail_sync(self, inode: Inode) -> None:
        """A sync fails: of what it was to force some is on the disk, and the rest is forgotten, though programs still see it."""
        for place, data in inode.pending:
            if self.hub.draw.random() < 0.5:
                _apply(inode.durable, place, data)
        inode.pending.clear()
        inode.lost = True


class SimDisk:
    """The disk as one process sees it (`server/journal/disk.py`)."""

    def __init__(self, platter: Platter, process: Process) -> None:
        self.platter = platter
        self.process = process
        self.handles: dict[int, tuple[Inode, str]] = {}
        self._next = 2
        self.owed_ns = 0  # what operations of SQLite took, which wait at the end

    # --- each operation ---

    def step(self, operation: str, name: str, *, writes: bool = True, may_wait: bool = True) -> None:
        """Pass an operation: the process may die before it, the disk may refuse it or take its time."""
        platter, hub = self.platter, self.platter.hub
        if not self.process.alive:
            raise Killed
        platter.operations += 1
        if platter.crash_at is not None and platter.operations >= platter.crash_at:
            platter.crash_at = None
            hub.note("dies at", operation, name)
            self.process.kill()
            raise Killed
        low, high = platter.mood.slow_ns
        if high:
            took = hub.draw.randint(low, high)
            if may_wait:
                hub.sleep(took)
            else:
                self.owed_ns += took
        elif may_wait:
            hub.pause()
        if platter.mood.is_bad and writes:
            platter.has_failed = True
        if writes and platter.mood.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if platter.mood.full and operation in ("create", "write", "write_at", "make_directory"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def synced(self, inode: Inode, name: str) -> None:
        """Force a file, as the disk's mood is."""
        mood = self.platter.mood.sync
        if mood == "fails":
            self.platter.hub.note("sync fails", name)
            self.platter.fail_sync(inode)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if mood == "lies":
            self.platter.lied = True
            return
        inode.sync()

    # --- Disk ---

    def lock(self, directory: Path) -> Any:
        name = str(directory)
        held = self.platter.locks.get(name)
        if held is not None and held is not self.process and held.alive:  # type: ignore[attr-defined]
            raise OSError(errno.EAGAIN, "locked")
        self.platter.locks[name] = self.process
        return _Held(self.platter, name, self.process)

    def names(self, directory: Path) -> list[str]:
        self.step("names", directory.name, writes=False)
        return sorted(PurePosixPath(name).name for name in self.platter.names if name != "/" and PurePosixPath(name).parent == directory)

    def exists(self, path: Path) -> bool:
        self.step("exists", path.name, writes=False)
        return str(path) in self.platter.names

    def make_directory(self, directory: Path) -> None:
        self.step("make_directory", directory.name)
        for one in (*reversed(directory.parents), directory):
            if str(one) not in self.platter.names:
                self.platter.change_names(str(one.parent), {str(one): None})

    def _inode(self, path: Path) -> Inode:
        inode = self.platter.names.get(str(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return inode

    def open_read(self, path: Path) -> IO[bytes]:
        self.step("open_read", path.name, writes=False)
        return io.BytesIO(bytes(self._inode(path).content))

    def _handle(self, inode: Inode, name: str) -> int:
        self._next += 1
        self.handles[self._next] = inode, name
        return self._next

    def create(self, path: Path) -> int:
        self.step("create", path.name)
        if str(path.parent) not in self.platter.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        inode = self.platter.names.get(str(path))
        if inode is None:
            inode = Inode()
            self.platter.change_names(str(path.parent), {str(path): inode})
        else:
            inode.cut(0)
        return self._handle(inode, path.name)

    def open_append(self, path: Path) -> int:
        self.step("open_append", path.name, writes=False)
        return self._handle(self._inode(path), path.name)

    def open_update(self, path: Path) -> int:
        return self.open_append(path)

    def duplicate(self, handle: int) -> int:
        return self._handle(*self.handles[handle])

    def write(self, handle: int, parts: Sequence[Any]) -> int:
        inode, name = self.handles[handle]
        data = b"".join(parts)
        if self.platter.mood.full and data:
            inode.write_at(len(inode.content), data[: len(data) // 2])
        self.step("write", name)
        if len(data) > 1 and self.platter.hub.draw.random() < 0.05:
            data = data[: self.platter.hub.draw.randint(1, len(data))]
        inode.write_at(len(inode.content), data)
        self.platter.bytes_written += len(data)
        return len(data)

    def write_at(self, handle: int, data: bytes, place: int) -> int:
        inode, name = self.handles[handle]
        self.step("write_at", name)
        inode.write_at(place, bytes(data))
        return len(data)

    def truncate(self, handle: int, size: int) -> None:
        inode, name = self.handles[handle]
        self.step("truncate", name)
        inode.cut(size)

    def sync(self, handle: int) -> None:
        inode, name = self.handles[handle]
        self.step("sync", name)
        self.synced(inode, name)

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def rename(self, old: Path, new: Path) -> None:
        self.step("rename", new.name)
        names = self.platter.names
        if str(old) not in names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(old))
        below = str(old) + "/"
        moved = {str(new) + name[len(str(old)) :]: inode for name, inode in names.items() if name == str(old) or name.startswith(below)}
        gone = [name for name in names if name == str(old) or name.startswith(below)]
        self.platter.change_names(str(new.parent), moved, gone)

    def unlink(self, path: Path) -> None:
        self.step("unlink", path.name)
        inode = self._inode(path)
        if path.suffix == ".journal":
            self.platter.gone[str(path)] = bytes(inode.content)
        self.platter.change_names(str(path.parent), {}, [str(path)])

    def remove_directory(self, directory: Path) -> None:
        self.step("remove_directory", directory.name)
        if str(directory) not in self.platter.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        self.platter.change_names(str(directory.parent), {}, [str(directory)])

    def sync_directory(self, directory: Path) -> None:
        self.step("sync_directory", directory.name)
        if self.platter.mood.sync == "fails":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.platter.mood.sync == "ok":
            self.platter.sync_directory(str(directory))
        else:
            self.platter.lied = True

    def map_new(self, path: Path, size: int) -> mmap.mmap:
        self.close(self.create(path))
        return mmap.mmap(-1, size)  # what it holds outlives no process, so it need not be on the platter

    def flush(self, mapped: mmap.mmap, place: int, size: int) -> None:
        self.step("flush", "mapped")

    def connect(self, path: Path) -> sqlite3.Connection:
        self.step("connect", path.name, writes=False)
        return _Connection(self, path)  # type: ignore[return-value]


class _Held:
    def __init__(self, platter: Platter, name: str, process: Process) -> None:
        self._platter, self._name, self._process = platter, name, process

    def close(self) -> None:
        if self._platter.locks.get(self._name) is self._process:
            del self._platter.locks[self._name]


# --- SQLite ---


class SimVFS(apsw.VFS):
    """SQLite's files on simulated disks. SQLite knows one file system for all of them, so a file's name begins with the disk's number."""

    NAME = "world"

    def __init__(self) -> None:
        super().__init__(self.NAME, base="")
        self.disks: WeakValueDictionary[int, SimDisk] = WeakValueDictionary()
        self._made = 0

    def mount(self, disk: SimDisk) -> str:
        """Return what names of a disk's files begin with."""
        self._made += 1
        self.disks[self._made] = disk
        return f"/{self._made}:"

    def _found(self, name: str) -> tuple[SimDisk, str]:
        number, _, path = name[1:].partition(":")
        return self.disks[int(number)], path

    def xOpen(self, name: Any, flags: list[int]) -> SimFile:  # noqa: N802
        disk, path = self._found(name.filename() if hasattr(name, "filename") else name)
        return SimFile(disk, path, flags)

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        disk, path = self._found(pathname)
        return disk.platter.names.get(path) is not None

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        disk, path = self._found(filename)
        if not disk.process.alive:
            return
        disk.step("unlink", path.rpartition("/")[2], may_wait=False)
        directory = path.rpartition("/")[0]
        disk.platter.change_names(directory, {}, [path])
        if syncdir and disk.platter.mood.sync == "ok":
            disk.platter.sync_directory(directory)

    def xRandomness(self, numbytes: int) -> bytes:  # noqa: N802
        return bytes(numbytes)  # salts of logs and names of files that are not used: none of it need differ

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        return microseconds

    def xCurrentTimeInt64(self) -> int:  # noqa: N802
        return 210866760000000


class SimFile:
    """One file of SQLite's."""

    def __init__(self, disk: SimDisk, name: str, flags: list[int]) -> None:
        self.disk = disk
        self.name = name
        self.short = self.name.rpartition("/")[2]
        self.directory = self.name.rpartition("/")[0]
        self.syncs_names = False
        platter = disk.platter
        found = platter.names.get(name)
        if found is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(f"no file {name}")
            try:
                disk.step("create", self.short, may_wait=False)
            except OSError as error:
                raise apsw.CantOpenError(str(error)) from error
            found = Inode()
            platter.change_names(self.directory, {name: found})
            self.syncs_names = bool(flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL))
        self.inode: Inode = found
        flags[1] = flags[0]

    def _step(self, operation: str) -> bool:
        """Pass an operation. False when the process is no more: SQLite tidies up behind it, and nothing of that may reach the disk."""
        if not self.disk.process.alive:
            return False
        try:
            self.disk.step(operation, self.short, may_wait=False)
        except OSError as error:
            raise (apsw.FullError if error.errno == errno.ENOSPC else apsw.IOError)(str(error)) from error
        return True

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self.inode.content[offset : offset + amount])

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        if self._step("write"):
            self.inode.write_at(offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        if self._step("truncate"):
            self.inode.cut(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if not self._step("sync"):
            return
        try:
            self.disk.synced(self.inode, self.short)
        except OSError as error:
            raise apsw.IOError(str(error)) from error
        if self.syncs_names and self.disk.platter.mood.sync == "ok":
            self.syncs_names = False
            self.disk.platter.sync_directory(self.directory)

    def xFileSize(self) -> int:  # noqa: N802
        return len(self.inode.content)

    def xLock(self, level: int) -> None:  # noqa: N802
        """The directory's lock keeps others out."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """See xLock."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xClose(self) -> None:  # noqa: N802
        """Nothing is held."""


_OPERATIONAL = (apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError, apsw.SQLError)


_VFS = SimVFS()


class _Connection:
    """An apsw connection that looks like one of the standard library's."""

    def __init__(self, disk: SimDisk, path: Path) -> None:
        self._disk = disk
        name = _VFS.mount(disk) + str(path)
        self._connection: apsw.Connection = self._done(lambda: apsw.Connection(name, vfs=SimVFS.NAME))
        disk.process.at_burial.append(partial(self._connection.close, True))  # SQLite holds its files, and they their disk
        self._done(lambda: self._connection.execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY").fetchall())

    def _done(self, call: Callable[[], Any]) -> Any:
        if not self._disk.process.alive:
            raise Killed
        try:
            return call()
        except _OPERATIONAL as error:
            self._raise_killed()
            raise sqlite3.OperationalError(str(error)) from error
        except apsw.ConstraintError as error:
            raise sqlite3.IntegrityError(str(error)) from error
        except apsw.Error as error:
            self._raise_killed()
            raise sqlite3.DatabaseError(str(error)) from error
        finally:
            owed, self._disk.owed_ns = self._disk.owed_ns, 0
            if owed and self._disk.process.alive:
                self._disk.platter.hub.sleep(owed)

    def _raise_killed(self) -> None:
        if not self._disk.process.alive:
            raise Killed from None

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> _Rows:
        return self._done(lambda: _Rows(self._connection, statement, tuple(values)))  # type: ignore[no-any-return]

    def executescript(self, script: str) -> None:
        self._done(lambda: self._connection.execute(script).fetchall())

    def rollback(self) -> None:
        self._done(lambda: self._connection.execute("ROLLBACK").fetchall() if self._connection.in_transaction else None)

    def close(self) -> None:
        with suppress(sqlite3.Error):  # as the standard library's: what SQLite then leaves to do is done at the next opening
            self._done(lambda: self._connection.close(True))


class _Rows:
    """All rows of a statement, and what a cursor says of it."""

    def __init__(self, connection: apsw.Connection, statement: str, values: tuple[Any, ...]) -> None:
        before = connection.total_changes()
        self._rows = connection.execute(statement, values).fetchall()
        self.rowcount = connection.total_changes() - before
        self.lastrowid = connection.last_insert_rowid()

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def __iter__(self) -> Any:
        return iter(self.fetchall())
