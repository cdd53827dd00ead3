"""One peer: its greeting, its transactions in name, and what is done with each of its messages.

Statements run one after the other, as PostgreSQL has it. There are no transactions behind BEGIN and COMMIT: each statement takes effect at
once, and ROLLBACK says so. After an error in a transaction the session still refuses everything up to its end, as clients count on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from millstream.client.connection import AsyncClient
from millstream.client.errors import MillstreamError
from millstream.client.gateway.postgres import limits, messages
from millstream.client.gateway.postgres.copying import copy_in, copy_out
from millstream.client.gateway.postgres.extended import Extended, Relayed
from millstream.client.gateway.postgres.mirror import WHAT_TO_INSTALL, Mirror, Relay
from millstream.client.gateway.postgres.output_values import data_rows
from millstream.client.gateway.postgres.results import Following, Rows, Source
from millstream.client.gateway.postgres.settings import DEFAULT_VERSION, SessionSettings
from millstream.client.gateway.postgres.sql_words import Edited, split, words_of
from millstream.client.gateway.postgres.sqlstates import (
    CANCELLED,
    DUPLICATE_CURSOR,
    FAILED_TRANSACTION,
    INVALID_CURSOR,
    LIMIT,
    OF_CODE,
    PROTOCOL_VIOLATION,
    UNDEFINED_COLUMN,
    UNSUPPORTED,
    PgError,
)
from millstream.client.gateway.postgres.statements import Asked, Kind, for_server, read
from millstream.client.gateway.postgres.types import field_of
from millstream.client.statements import query_statement, quoted
from millstream.protocol.types import Column, ColumnType

if TYPE_CHECKING:
    from millstream.client.gateway.postgres.messages import Message

_WHILE_FAILED = (Kind.COMMIT, Kind.ROLLBACK, Kind.ROLLBACK_TO)
_NOT_GIVEN_UP = (Kind.INSERT, Kind.SERVER, Kind.COPY_IN)  # when a peer leaves: it may have sent them and not have waited


class Link(Protocol):
    """The peer's connection: messages in, bytes out."""

    async def next(self) -> Message | None:
        """Return the next message; None when the peer has left. `PgError` for what breaks the protocol."""

    def send(self, data: bytes) -> None:
        """Send bytes."""

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent. TimeoutError when it takes nothing."""


class Session:
    """A peer that has been let in. `number` and `key` are what a request to cancel has to say."""

    def __init__(self, link: Link, client: AsyncClient, mirror: Mirror | None, user: str, number: int, key: int) -> None:
        self.number, self.key = number, key
        self.link, self.client, self.mirror = link, client, mirror
        version = mirror.version if mirror is not None and mirror.version else ""
        self.settings = SessionSettings(version or DEFAULT_VERSION, user, is_admin=client.role == "admin")
        self.status = "I"  # I: idle, T: in a transaction, E: in a failed one
        self.cursors: dict[str, Source] = {}
        self._holding: set[str] = set()  # cursors that outlive their transaction
        self._changed = False  # whether anything took effect in this transaction
        self._relay: Relay | None = None
        self._extended = Extended(self)
        self._skips = False  # after an error in the extended protocol, up to Sync
        self._work: asyncio.Task[None] | None = None
        self._cancelled = False
        self._is_essential = False  # the work under way is not given up when the peer leaves
        self.has_left = False

    # --- from outside ---

    def cancel(self, key: int) -> None:
        """Cancel what is being done, if the key is right."""
        if hmac.compare_digest(key.to_bytes(4, "big", signed=True), self.key.to_bytes(4, "big", signed=True)) and self._work is not None:
            self._cancelled = True
            self._work.cancel()

    def peer_left(self) -> None:
        """Give up what nobody waits for any more."""
        self.has_left = True
        if self._work is not None and not self._is_essential:
            self._work.cancel()

    # --- the session ---

    async def run(self, parameters: dict[str, str]) -> None:
        """Tell the settings, then carry out messages until the peer leaves. `PgError` for what ends the connection."""
        if "application_name" in parameters:
            self.settings.set("application_name", parameters["application_name"])
        told = [messages.parameter_status(name, value) for name, value in self.settings.reported()]
        self.link.send(b"".join(told) + messages.backend_key(self.number, self.key) + messages.ready("I"))
        self.client.on_notice(lambda code, message: self.link.send(messages.notice(message)))
        try:
            while (message := await self.link.next()) is not None and not isinstance(message, messages.Terminate):
                await self._one(message)
                await self.link.drain()
        finally:
            await self._close()

    async def _one(self, message: Message) -> None:
        """Carry one message out in a task of its own, so that it can be cancelled without this one."""
        if self._skips and not isinstance(message, messages.Sync):
            return
        self._cancelled = self._is_essential = False
        self._work = asyncio.create_task(self._carried_out(message))
        try:
            await asyncio.wait({self._work})
        except asyncio.CancelledError:
            self._work.cancel()
            await asyncio.wait({self._work})
            raise
        work, self._work = self._work, None
        problem: PgError | None = None
        if work.cancelled():
            problem = PgError(CANCELLED, "canceling statement due to user request")
        elif (raised := work.exception()) is not None:
            problem = self.told(raised)
        if problem is not None:
            await self._failed(message, problem)

    async def _failed(self, message: Message, problem: PgError) -> None:
        if problem.fatal:
            raise problem
        self.link.send(problem.data if isinstance(problem, Relayed) else messages.error_response(problem))
        if self.status == "T":
            self.status = "E"
        if isinstance(message, messages.SimpleQuery):
            self.link.send(messages.ready(self.status))
        elif not isinstance(message, messages.Sync):
            self._skips = True

    def told(self, raised: BaseException) -> PgError:
        """Return what a peer is told of an error. An error of ours is raised again."""
        if isinstance(raised, PgError):
            return raised
        if isinstance(raised, MillstreamError):
            is_lost = raised.code in ("disconnected", "stopping", "closed") and not self.client.is_open
            return PgError(OF_CODE.get(raised.code, "XX000"), raised.message, raised.hint, fatal=is_lost)
        if isinstance(raised, TimeoutError):
            return PgError(CANCELLED, "canceling statement due to statement timeout")
        raise raised

    async def _carried_out(self, message: Message) -> None:
        match message:
            case messages.SimpleQuery(text):
                await self._simple(text)
            case messages.Sync():
                await self._forget_broken_relay()
                if self._relay is not None and self._relay.needs_sync:
                    self._relay.needs_sync = False
                    async for _ in self._relay.ask([message], b"Z"):
                        """Its errors have been told."""
                self._skips = False
                await self._extended.synced()
                self.link.send(messages.ready(self.status))
            case messages.CopyData() | messages.CopyDone() | messages.CopyFail() | messages.Flush():
                return  # of a COPY that has failed; and everything is sent at once
            case messages.FunctionCall():
                self.link.send(messages.error_response(PgError(UNSUPPORTED, "function calls are not supported", "SELECT the function")))
                self.link.send(messages.ready(self.status))
            case messages.Parse() | messages.Bind() | messages.Describe() | messages.Execute() | messages.Close():
                await self._extended.do(message)
            case _:
                raise PgError(PROTOCOL_VIOLATION, f"{type(message).__name__} is not expected now", fatal=True)

    async def _close(self) -> None:
        async with contextlib.AsyncExitStack() as closing:  # each is closed, whatever becomes of the others
            closing.push_async_callback(self.client.close)
            if self._relay is not None:
                closing.push_async_callback(self._relay.close)
            for source in [*self.cursors.values(), *self._extended.sources()]:
                closing.push_async_callback(source.close)
            self.cursors.clear()

    # --- simple queries ---

    async def _simple(self, text: str) -> None:
        statements = split(words_of(text))
        if not statements:
            self.link.send(messages.EMPTY_QUERY)
        for words in statements:
            asked = read(words)
            self.guard(asked)
            if asked.kind is Kind.CATALOGUE and not self.is_constant(asked):
                await self._ask_catalogue(text[words[0].start : words[-1].end])
                continue
            async with asyncio.timeout(self.settings.timeout_s):
                source = await self.carry_out(text, asked, {})
                if source is not None:
                    self.link.send(messages.row_description([field_of(column) for column in source.columns]))
                    rows = await self.send_rows(source, asked.count if asked.kind is Kind.FETCH else None, [messages.TEXT])
                    self.link.send(messages.command_complete(f"{source.tag} {rows}" if source.tag in ("SELECT", "FETCH") else source.tag))
        self.link.send(messages.ready(self.status))

    def guard(self, asked: Asked) -> None:
        """Refuse what a failed transaction refuses; say what is not given up when the peer leaves."""
        if self.status == "E" and asked.kind not in _WHILE_FAILED:
            raise PgError(FAILED_TRANSACTION, "current transaction is aborted, commands ignored until end of transaction block")
        self._is_essential = asked.kind in _NOT_GIVEN_UP
        if self.has_left and not self._is_essential:
            raise asyncio.CancelledError

    async def _ask_catalogue(self, statement: str) -> None:
        relay = await self.relay()
        async for kind, body in relay.ask([messages.SimpleQuery(statement)], b"Z"):
            if kind == b"E" and self.status == "T":
                self.status = "E"
            if kind in (b"T", b"D", b"C", b"E", b"N", b"I"):
                self.link.send(kind + body)
                await self.link.drain()

    async def relay(self) -> Relay:
        """Return this session's connection to the private PostgreSQL, which knows what there is now."""
        if self.mirror is None:
            raise PgError(UNSUPPORTED, "questions about the catalogue need PostgreSQL beside the gateway", WHAT_TO_INSTALL)
        await self.mirror.refresh(self.client)
        await self._forget_broken_relay()
        if self._relay is None:
            self._relay = await self.mirror.connect()
        return self._relay

    async def _forget_broken_relay(self) -> None:
        """Leave a connection whose last answer was not read to its end: it was cancelled, or took too long."""
        if self._relay is not None and self._relay.is_broken:
            relay, self._relay = self._relay, None
            await relay.close()

    async def send_rows(self, source: Source, rows_max: int | None, formats: Sequence[int]) -> int:
        """Send rows and return how many; `formats` are those of the columns, or one for all."""
        each = list(formats) * len(source.columns) if len(formats) == 1 else list(formats) or [messages.TEXT] * len(source.columns)
        count = 0
        async for batch in source.take(rows_max):
            self.link.send(data_rows(batch, source.columns, each))
            count += batch.num_rows
            await self.link.drain()
        self.tell_losses(source)
        return count

    def tell_losses(self, source: Source) -> None:
        """Say where results are missing."""
        if isinstance(source, Following):
            for lost in source.lost:
                self.link.send(messages.notice(f"{lost.rows} results are missing here ({lost.reason})", "WARNING", "01000"))
            source.lost.clear()

    # --- statements ---

    async def carry_out(self, source: str, asked: Asked, literals: dict[int, str]) -> Source | None:
        """Do what a statement asks for. Return its rows, or None for one that has none: then its end has been told."""
        doing: Callable[[], Coroutine[Any, Any, Source | None]] | None = {
            Kind.DECLARE: lambda: self._declare(source, asked, literals),
            Kind.COPY_OUT: lambda: copy_out(self, source, asked, literals),
            Kind.COPY_IN: lambda: copy_in(self, asked),
            Kind.CLOSE: lambda: self._close_cursors(asked.name),
        }.get(asked.kind)
        if doing is not None:
            return await doing()
        if asked.kind is Kind.FETCH:
            return self._cursor(asked.name)
        if asked.kind is Kind.CATALOGUE:
            return constant_answer(asked)
        if asked.kind in (Kind.SELECT, Kind.INSERT, Kind.SERVER):
            return await self.ask_server(source, asked, literals)
        if asked.kind is Kind.SETTING:
            return _one_value(asked.name, self.settings.get(asked.name))
        await self._of_postgres(asked)
        return None

    async def ask_server(self, source: str, asked: Asked, literals: dict[int, str]) -> Rows | None:
        """Run a statement on the server; SELECT as FETCH. Return the rows, or None: then its end has been told."""
        sent = for_server(source, asked.words, literals, prefix="FETCH " if asked.kind is Kind.SELECT else "")
        try:
            answer = await self.client.execute(sent.text)
        except MillstreamError as error:
            raise placed(error, sent) from error
        if answer.continuous and not answer.durable and answer.query is not None:
            await self.client.execute(query_statement("DROP", answer.query.name))
            raise PgError(
                UNSUPPORTED, "this query runs on, so it has no answer", "CREATE QUERY name AS …, then COPY (SUBSCRIBE name) TO STDOUT"
            )
        first = asked.words[0].upper
        if asked.kind is Kind.INSERT:
            self._changed = True
            self.complete(f"INSERT 0 {answer.info.get('accepted', 0)}")
            return None
        if answer.columns:
            return Rows(answer.columns, answer.to_arrow(), "SELECT" if asked.kind is Kind.SELECT or first == "FETCH" else first)
        self._changed = True
        if self.mirror is not None:
            self.mirror.forget()
        for notice in answer.notices:
            self.link.send(messages.notice(notice))
        self.complete(asked.tag)
        return None

    def complete(self, tag: str) -> None:
        """Say that a statement without rows is done."""
        self.link.send(messages.command_complete(tag))

    async def _of_postgres(self, asked: Asked) -> None:
        """Answer a statement that is PostgreSQL's alone."""
        match asked.kind:
            case Kind.BEGIN:
                if self.status == "T":
                    self.link.send(messages.notice("there is already a transaction in progress", "WARNING", "25001"))
                self.status, self._changed = "T", False
            case Kind.COMMIT | Kind.ROLLBACK:
                await self._end_transaction(asked.kind)
                return
            case Kind.ROLLBACK_TO:
                self._warn_of_rollback()
                self.status = "T" if self.status == "E" else self.status
            case Kind.SET if asked.name:
                told = self.settings.set(asked.name, asked.value or "")
                if told is not None:
                    self.link.send(messages.parameter_status(*told))
            case Kind.RESET:
                self.link.send(b"".join(messages.parameter_status(*told) for told in self.settings.reset(asked.name)))
            case Kind.DISCARD:
                for name in list(self.cursors):
                    await self._forget_cursor(name)
                await self._extended.forget("")
                self.complete("DISCARD ALL")
                return
            case Kind.DEALLOCATE:
                await self._extended.forget(asked.name)
            case _:
                pass  # SAVEPOINT, RELEASE, SET TRANSACTION: nothing is behind them
        self.complete(asked.kind.value)

    async def _end_transaction(self, kind: Kind) -> None:
        if self.status == "I":
            self.link.send(messages.notice("there is no transaction in progress", "WARNING", "25P01"))
        elif kind is Kind.ROLLBACK:
            self._warn_of_rollback()
        has_failed, self.status = self.status == "E", "I"
        for name in self.cursors.keys() - self._holding:
            await self._forget_cursor(name)
        self.complete("ROLLBACK" if has_failed else kind.value)

    def _warn_of_rollback(self) -> None:
        if self._changed:
            self._changed = False
            self.link.send(messages.notice("nothing was undone: each statement took effect at once", "WARNING", "01000"))

    # --- cursors ---

    async def _declare(self, source: str, asked: Asked, literals: dict[int, str]) -> None:
        if asked.name in self.cursors:
            raise PgError(DUPLICATE_CURSOR, f'cursor "{asked.name}" already exists')
        self.room_for_portal()
        self.cursors[asked.name] = await self.rows_of(source, asked, literals)
        if asked.holds or self.status == "I":
            self._holding.add(asked.name)
        self.complete("DECLARE CURSOR")

    async def rows_of(self, source: str, asked: Asked, literals: dict[int, str]) -> Source:
        """Return the rows of the query inside DECLARE or COPY."""
        if asked.subscribed is not None:
            subscription = await self.client.subscribe(
                asked.subscribed.query,
                from_start=asked.subscribed.from_start,
                rows_window=limits.SUBSCRIPTION_ROWS,
                bytes_window=limits.SUBSCRIPTION_BYTES,
            )
            return Following(subscription)
        if asked.inner is None:
            names = ", ".join(map(quoted, asked.columns)) or "*"
            answer = await self.client.execute(f"FETCH SELECT {names} FROM {quoted(asked.name)}")
            return Rows(answer.columns, answer.to_arrow(), "SELECT")
        inner = read(asked.words[slice(*asked.inner)])
        if inner.kind is Kind.CATALOGUE:
            raise PgError(UNSUPPORTED, "a question about the catalogue stands alone, not in a cursor or COPY")
        rows = await self.ask_server(source, inner, literals)
        if rows is None:
            raise PgError(UNSUPPORTED, "this statement has no rows")
        rows.tag = "FETCH"
        return rows

    def room_for_portal(self) -> None:
        """`PgError` when the session holds as many portals, or as much in them, as it may."""
        held = [*self.cursors.values(), *self._extended.sources()]
        if len(held) >= limits.PORTALS_MAX:
            raise PgError(LIMIT, f"a session has at most {limits.PORTALS_MAX} portals and cursors", "close those that are read")
        if sum(source.bytes for source in held) > limits.RESULTS_BYTES_MAX:
            raise PgError(LIMIT, f"the cursors of a session hold at most {limits.RESULTS_BYTES_MAX} bytes", "close those that are read")

    def _cursor(self, name: str) -> Source:
        found = self.cursors.get(name)
        if found is None:
            raise PgError(INVALID_CURSOR, f'cursor "{name}" does not exist', "DECLARE it first; it ends with its transaction")
        found.tag = "FETCH"
        return found

    async def _close_cursors(self, name: str) -> None:
        if name:
            self._cursor(name)
        for one in [name] if name else list(self.cursors):
            await self._forget_cursor(one)
        self.complete("CLOSE CURSOR")

    async def _forget_cursor(self, name: str) -> None:
        self._holding.discard(name)
        await self.cursors.pop(name).close()

    def is_constant(self, asked: Asked) -> bool:
        """Whether the gateway answers this itself: `SELECT 1`, by which pools look whether a connection lives."""
        return self.mirror is None and constant_answer(asked) is not None


def constant_answer(asked: Asked) -> Rows | None:
    """Return the answer of SELECT and a whole number; None for anything else."""
    import pyarrow as pa

    words = asked.words
    if len(words) != 2 or words[0].upper != "SELECT" or not words[1].text.isdigit() or len(words[1].text) > 9:
        return None
    column = Column("?column?", ColumnType("INT"))
    return Rows([column], pa.table({"?column?": pa.array([int(words[1].text)], pa.int32())}), "SELECT")


def _one_value(name: str, value: str) -> Rows:
    import pyarrow as pa

    return Rows([Column(name, ColumnType("TEXT"))], pa.table({name: pa.array([value], pa.string())}), "SHOW")


def placed(error: MillstreamError, sent: Edited) -> PgError:
    """Return an error of the server with the place that it has in what the peer wrote."""
    position = None
    if error.line is not None and error.column is not None:
        position = sent.origin(error.line, error.column) + 1
    is_column = error.code == "unknown_name" and "column" in error.message
    state = UNDEFINED_COLUMN if is_column else OF_CODE.get(error.code, "XX000")
    return PgError(state, error.message, error.hint, position, fatal=error.code in ("disconnected", "stopping"))
