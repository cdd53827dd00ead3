"""A private PostgreSQL with an empty table for each stream, table and query: it answers questions about the catalogue.

It listens on a socket in a folder that only the gateway's user may enter, keeps nothing, and ends with the gateway. Peers ask it as a role
that may read and nothing else, for a bounded time. PostgreSQL does not run as root: then it runs as `postgres`, or as `nobody`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.client.errors import MillstreamError
from millstream.client.gateway.postgres import limits, messages
from millstream.client.gateway.postgres.input_values import quoted_text
from millstream.client.gateway.postgres.messages import INT32, Flush, Message, SimpleQuery, Startup, Terminate, written
from millstream.client.gateway.postgres.sqlstates import CONNECTION_FAILURE, UNSUPPORTED, PgError
from millstream.client.gateway.postgres.types import spelling_of
from millstream.client.statements import quoted
from millstream.protocol.types import Column, parse_type
from millstream.protocol.values.names import CHANGE_NOTE

if TYPE_CHECKING:
    from millstream.client.connection import AsyncClient

DATABASE, OWNER, READER = "millstream", "millstream_owner", "millstream"
MEMORY_BYTES_MAX = 1 << 29  # of each of its processes: a peer may ask for more in `work_mem`, and does not get it
OWN_CONNECTIONS = 10  # the gateway's, those that PostgreSQL keeps for its superuser, and those that are being closed
START_S_MAX = 60.0
STOP_S_MAX = 5.0
NAME_BYTES_MAX = 63  # PostgreSQL cuts a longer name
REFRESH_S = 1.0  # how old the mirror may be when another client has changed the catalogue
WHAT_TO_INSTALL = "install PostgreSQL on the gateway's machine (Debian: apt-get install postgresql), or name its programs with --pg-bin"
_SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "wal_level": "minimal", "max_wal_senders": "0",
    "autovacuum": "off", "shared_buffers": "16MB", "listen_addresses": "",
    "client_connection_check_interval": "1s", "temp_file_limit": "64MB", "jit": "off", "max_parallel_workers": "0",
    "logging_collector": "off", "log_min_messages": "panic", "timezone": "UTC",
}  # fmt: skip
_NOT_FOR_PEERS = (  # with these a peer could store something, or end another peer's question
    "lo_create(oid)", "lo_creat(integer)", "lo_from_bytea(oid, bytea)",
    "pg_terminate_backend(integer, bigint)", "pg_cancel_backend(integer)",
)  # fmt: skip
_COLUMN = re.compile(r'\s*("(?:[^"]|"")*"|[^\s"]+)\s+')


def programs_in(folder: Path | None) -> Path | None:
    """Return the folder with `initdb` and `postgres`: the one given, that of the path, or the newest of Debian's. None if there is none."""
    if folder is not None:
        return folder
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    versions = [found for found in Path("/usr/lib/postgresql").glob("*/bin") if (found / "initdb").exists()]
    return max(versions, key=lambda found: float(found.parent.name), default=None)


class Mirror:
    """The private PostgreSQL, for so many peers at a time. `version` is its own, as it says it."""

    def __init__(self, programs: Path, connections_max: int) -> None:
        self.version = ""
        self._programs = programs
        self._settings = {**_SETTINGS, "max_connections": str(connections_max + OWN_CONNECTIONS)}
        self._folder = Path(tempfile.mkdtemp(prefix="millstream-pg-"))
        self._started: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._owner: Relay | None = None
        self._known: dict[str, str] = {}  # relation -> the statements that made it
        self._refreshed_s: float | None = None
        self._refreshing = asyncio.Lock()

    async def begin(self) -> None:
        """Learn its version and start it aside: who asks it before it answers waits. MillstreamError when there is no PostgreSQL."""
        try:
            asked = await asyncio.create_subprocess_exec(str(self._programs / "postgres"), "--version", stdout=subprocess.PIPE)
            told, _ = await asyncio.wait_for(asked.communicate(), START_S_MAX)
        except (OSError, TimeoutError) as error:
            await self.stop()
            raise MillstreamError("invalid", f"there is no PostgreSQL in {self._programs}: {error}", WHAT_TO_INSTALL) from error
        self.version = told.decode().strip().removeprefix("postgres (PostgreSQL) ")
        self._started = asyncio.create_task(self._start_in_time())

    async def _start_in_time(self) -> None:
        """Make the database and wait until it answers. MillstreamError when that fails."""
        try:
            await asyncio.wait_for(self._start(), START_S_MAX)
        except (OSError, TimeoutError, PgError, subprocess.SubprocessError) as error:
            await self._end()
            reason = error.message if isinstance(error, PgError) else str(error) or "it did not answer in time"
            raise MillstreamError("invalid", f"the private PostgreSQL does not start: {reason}", WHAT_TO_INSTALL) from error

    async def _start(self) -> None:
        user = _other_user()
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        data = self._folder / "data"
        making = "-D", str(data), "-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        self._process = await self._run(str(self._programs / "initdb"), *making, user=user)
        if await self._process.wait() != 0:
            raise OSError("initdb failed")
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        bounded = "sh", "-c", f'ulimit -v {MEMORY_BYTES_MAX // 1024}; exec "$0" "$@"', str(self._programs / "postgres")
        self._process = await self._run(*bounded, "-D", str(data), "-k", str(self._folder), *options, user=user)
        while True:
            try:
                first = await self._connected(OWNER, "postgres")
            except (OSError, PgError):
                if self._process.returncode is not None:
                    raise OSError("postgres ended at once") from None
                await asyncio.sleep(0.02)  # it says nowhere that it is ready but by answering
                continue
            break
        await first.run(f"CREATE DATABASE {DATABASE}")
        await first.close()
        self._owner = await self._connected(OWNER, DATABASE)
        for statement in (
            f"CREATE ROLE {READER} LOGIN",
            f"REVOKE ALL ON DATABASE {DATABASE}, postgres, template1 FROM PUBLIC",
            f"GRANT CONNECT ON DATABASE {DATABASE} TO {READER}",
            f"ALTER ROLE {READER} SET default_transaction_read_only = on",
            f"ALTER ROLE {READER} SET statement_timeout = '5s'",
            f"ALTER ROLE {READER} SET work_mem = '4MB'",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {READER}",
            f"REVOKE EXECUTE ON FUNCTION {', '.join(_NOT_FOR_PEERS)} FROM PUBLIC",
        ):
            await self._owner.run(statement)

    async def _run(self, program: str, *arguments: str, user: pwd.struct_passwd | None) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            program,
            *arguments,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
            process_group=0,  # Ctrl-C is the gateway's
        )

    async def connect(self) -> Relay:
        """Return a connection for one peer; after `refresh`."""
        return await self._connected(READER, DATABASE)

    async def _connected(self, user: str, database: str) -> Relay:
        relay = Relay(*await asyncio.open_unix_connection(str(self._folder / ".s.PGSQL.5432")))
        try:
            await relay.greet(user, database)
        except BaseException:
            await relay.close()
            raise
        return relay

    async def stop(self) -> None:
        """End it and remove its files."""
        if self._started is not None:
            self._started.cancel()
            await asyncio.gather(self._started, return_exceptions=True)
        await self._end()

    async def _end(self) -> None:
        if self._owner is not None:
            await self._owner.close()
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGQUIT)  # at once, with all that it started: it keeps nothing
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S_MAX)
            except TimeoutError:
                os.killpg(self._process.pid, signal.SIGKILL)
                await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    # --- what there is ---

    def forget(self) -> None:
        """Look again before the next question: the catalogue has changed."""
        self._refreshed_s = None

    async def refresh(self, client: AsyncClient) -> None:
        """Bring the tables up to date, unless they were a moment ago. MillstreamError and `PgError` when that fails."""
        assert self._started is not None
        await asyncio.shield(self._started)
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if self._refreshed_s is not None and now - self._refreshed_s < REFRESH_S:
                return
            wanted = await _relations(client)
            assert self._owner is not None
            for name in [name for name, made in self._known.items() if wanted.get(name) != made]:
                await self._owner.run(f"DROP TABLE IF EXISTS {quoted(name)}")
                del self._known[name]
            for name, made in wanted.items():
                if name not in self._known:
                    with contextlib.suppress(PgError):  # what PostgreSQL cannot have, such as 2,000 columns, it does not show
                        await self._owner.run(made)
                    self._known[name] = made
            self._refreshed_s = now


async def _relations(client: AsyncClient) -> dict[str, str]:
    """Return the statements that make the mirror of each stream, table and query, by name."""
    found: dict[str, str] = {}
    for row in (await client.execute("SHOW STREAMS")).rows:
        comment = row["comment"] or f"{row['kind']} stream".replace("stream stream", "stream")
        found[row["name"]] = _made(row["name"], _columns_of(row["columns"]), "", comment)
    for row in (await client.execute("SHOW TABLES")).rows:
        found[row["name"]] = _made(row["name"], _columns_of(row["columns"]), row["key"], row["comment"] or "table")
    for row in (await client.execute("SHOW QUERIES")).rows:
        if row["durable"]:
            try:
                described = (await client.execute(f"DESCRIBE {quoted(row['name'])}")).rows
            except MillstreamError as error:
                if error.code != "unknown_name":  # dropped since
                    raise
                continue
            lasting = [one for one in described if one["note"] != CHANGE_NOTE]  # a SELECT gives the rows that stand
            columns = [Column(one["column"], parse_type(one["type"]), bool(one["nullable"])) for one in lasting]
            found[row["name"]] = _made(row["name"], columns, "", row["comment"] or f"query: {row['text']}")
    return {name: made for name, made in found.items() if len(name.encode()) <= NAME_BYTES_MAX}


def _made(name: str, columns: list[Column], key: str, comment: str) -> str:
    lain = [f"{quoted(c.name)} {spelling_of(c.type)}{'' if c.nullable else ' NOT NULL'}" for c in columns]
    if key:
        lain.append(f"PRIMARY KEY ({', '.join(quoted(part) for part in key.split(', '))})")
    return f"CREATE TABLE {quoted(name)} ({', '.join(lain)}); COMMENT ON TABLE {quoted(name)} IS {quoted_text(comment[:1000])}"


def _columns_of(text: str) -> list[Column]:
    """Return the columns that SHOW spells as `name type, name type`; a type may have commas in parentheses."""
    columns: list[Column] = []
    for part in _parts(text):
        match = _COLUMN.match(part)
        if match is not None:
            name = match[1][1:-1].replace('""', '"') if match[1].startswith('"') else match[1]
            columns.append(Column(name, parse_type(part[match.end() :])))
    return columns


def _parts(text: str) -> list[str]:
    parts, depth, is_quoted = [""], 0, False
    for character in text:
        is_quoted ^= character == '"'
        depth += 0 if is_quoted else {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _other_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PgError(UNSUPPORTED, "PostgreSQL does not run as root, and there is no user postgres or nobody")


class Relay:
    """A connection to the private PostgreSQL. Its answers are passed on as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.settings: dict[str, str] = {}
        self._reader = reader
        self._writer = writer
        self.needs_sync = False  # it has been sent extended messages since the last Sync
        self.is_broken = False  # an answer was not read to its end, so the next one would be mistaken

    async def greet(self, user: str, database: str) -> None:
        """Say hello and wait until it is ready."""
        self._writer.write(written(Startup(messages.VERSION_3_0, {"user": user, "database": database})))
        async for kind, body in self._until(b"Z"):
            if kind == b"S":
                name, value = body[4:].split(b"\0")[:2]
                self.settings[name.decode()] = value.decode()
            elif kind == b"E":
                raise _problem_of(body)

    async def run(self, statement: str) -> None:
        """Run a statement whose rows nobody needs."""
        problem = None
        async for kind, body in self.ask([SimpleQuery(statement)], b"Z"):
            if kind == b"E":
                problem = _problem_of(body)
        if problem is not None:
            raise problem

    async def ask(self, said: list[Message], ends: bytes) -> AsyncIterator[tuple[bytes, bytes]]:
        """Say something and yield what is answered, up to a message of a type in `ends`: its type, and its bytes without that."""
        is_extended = not any(isinstance(message, SimpleQuery) for message in said)
        self.needs_sync |= is_extended
        self.is_broken = True
        self._writer.write(b"".join(map(written, [*said, Flush()] if is_extended and b"Z" not in ends else said)))
        async for answer in self._until(ends):
            yield answer

    async def _until(self, ends: bytes) -> AsyncIterator[tuple[bytes, bytes]]:
        while True:
            try:
                async with asyncio.timeout(limits.CATALOGUE_S_MAX):
                    await self._writer.drain()
                    head = await self._reader.readexactly(5)
                    length = INT32.unpack_from(head, 1)[0]
                    if length > limits.CATALOGUE_BYTES_MAX:
                        raise PgError("54000", f"an answer about the catalogue has more than {limits.CATALOGUE_BYTES_MAX} bytes a row")
                    body = head[1:] + await self._reader.readexactly(length - 4)
            except TimeoutError:
                raise PgError("57014", f"the question about the catalogue took longer than {limits.CATALOGUE_S_MAX:g} s") from None
            except (OSError, EOFError) as error:
                raise PgError(CONNECTION_FAILURE, f"the private PostgreSQL has gone: {error}") from error
            is_last = head[:1] in ends
            self.is_broken = not is_last
            yield head[:1], body
            if is_last:
                return

    async def close(self) -> None:
        """Leave."""
        self._writer.write(written(Terminate()))
        self._writer.close()
        try:
            with contextlib.suppress(OSError):  # it had gone
                await self._writer.wait_closed()
        except asyncio.CancelledError:  # what it was to be told waits no longer
            self._writer.transport.abort()
            raise


def _problem_of(body: bytes) -> PgError:
    fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body[4:].split(b"\0") if part}
    return PgError(fields.get(b"C", "XX000"), fields.get(b"M", "an error"))
