"""The extended protocol: prepared statements, their parameters, and portals.

The server has no parameters: they are literals in the statement that it is sent. What a statement's columns are, it says with an answer, so
a statement that is described before it is bound runs once with sample values.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.client.errors import MillstreamError
from millstream.client.gateway.postgres import limits, messages
from millstream.client.gateway.postgres.input_values import literal, text_of_binary
from millstream.client.gateway.postgres.results import Source
from millstream.client.gateway.postgres.sql_words import split, words_of
from millstream.client.gateway.postgres.sqlstates import (
    DUPLICATE_CURSOR,
    DUPLICATE_STATEMENT,
    INVALID_CURSOR,
    INVALID_STATEMENT,
    INVALID_TEXT,
    LIMIT,
    PROTOCOL_VIOLATION,
    SYNTAX,
    UNSUPPORTED,
    PgError,
)
from millstream.client.gateway.postgres.statements import Asked, Kind, parameter_types, read
from millstream.client.gateway.postgres.types import field_of, oid_of, type_of_oid
from millstream.client.statements import quoted
from millstream.protocol.types import ColumnType, parse_type

if TYPE_CHECKING:
    from millstream.client.gateway.postgres.messages import Message, ResultField
    from millstream.client.gateway.postgres.session import Session

_TEXT = ColumnType("TEXT")
_READ_ONLY = ("SHOW", "DESCRIBE", "EXPLAIN", "FETCH")  # statements of the server that have rows and change nothing
_SAMPLES = {
    "BOOLEAN": "t", "INT": "1", "BIGINT": "1", "DOUBLE": "1", "DECIMAL": "1.0", "TEXT": "", "TIMESTAMP": "2000-01-01", "DATE": "2000-01-01",
    "INTERVAL": "1 second", "JSON": "null", "LIST": "{}", "BYTES": "\\x", "TIME": "00:00:00",
}  # fmt: skip
_RELATIONS_MAX = 8  # of a statement whose columns are asked for, to know the types of parameters
_ENDS = {messages.Parse: b"1E", messages.Bind: b"2E", messages.Describe: b"TnE", messages.Execute: b"CsIE", messages.Close: b"3E"}


@dataclass(slots=True)
class Prepared:
    """A prepared statement; `asked` is None for an empty one. `columns` are its fields once they are known."""

    text: str
    asked: Asked | None
    oids: tuple[int, ...]
    types: tuple[ColumnType, ...]
    is_of_mirror: bool = False
    fields: list[ResultField] | None = None

    @property
    def has_rows(self) -> bool:
        """Whether its rows can be had, and had again, without changing anything."""
        if self.asked is None:
            return False
        if self.asked.kind is Kind.SERVER:
            return self.asked.words[0].upper in _READ_ONLY
        return self.asked.kind in (Kind.SELECT, Kind.CATALOGUE, Kind.SETTING, Kind.FETCH)


@dataclass(slots=True)
class Portal:
    """A statement with its parameters, and its rows once it has run."""

    prepared: Prepared
    literals: dict[int, str] = field(default_factory=dict)
    formats: tuple[int, ...] = ()
    source: Source | None = None


class Extended:
    """The prepared statements and portals of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._statements: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}

    def sources(self) -> list[Source]:
        """Return the rows that portals hold, save those of cursors."""
        cursors = set(map(id, self._session.cursors.values()))
        return [p.source for p in self._portals.values() if p.source is not None and id(p.source) not in cursors]

    async def synced(self) -> None:
        """Drop the portals, if no transaction keeps them."""
        if self._session.status == "I":
            for source in self.sources():
                await source.close()
            self._portals.clear()

    async def forget(self, name: str) -> None:
        """Forget a prepared statement, or all. `PgError` when there is none of that name."""
        if name and name not in self._statements:
            raise PgError(INVALID_STATEMENT, f'prepared statement "{name}" does not exist')
        for one in [name] if name else list(self._statements):
            await self._do_close(messages.Close("S", one), quiet=True)

    async def do(self, message: Message) -> None:
        """Carry one message out, and answer it."""
        match message:
            case messages.Parse():
                await self._parse(message)
            case messages.Bind():
                await self._bind(message)
            case messages.Describe(kind="S"):
                await self._describe_statement(message)
            case messages.Describe():
                await self._describe_portal(message)
            case messages.Execute():
                await self._execute(message)
            case messages.Close():
                await self._do_close(message)

    # --- statements ---

    async def _parse(self, message: messages.Parse) -> None:
        if message.name and message.name in self._statements:
            raise PgError(DUPLICATE_STATEMENT, f'prepared statement "{message.name}" already exists')
        others = [one for name, one in self._statements.items() if name != message.name]
        if len(others) >= limits.STATEMENTS_MAX:
            raise PgError(LIMIT, f"a session has at most {limits.STATEMENTS_MAX} prepared statements", "close those that are done with")
        if sum(len(one.text) for one in others) + len(message.text) > limits.STATEMENTS_BYTES_MAX:
            raise PgError(LIMIT, f"the prepared statements of a session have at most {limits.STATEMENTS_BYTES_MAX} bytes")
        found = split(words_of(message.text))
        if len(found) > 1:
            raise PgError(SYNTAX, "cannot insert multiple commands into a prepared statement", position=found[1][0].start + 1)
        asked = read(found[0]) if found else None
        if asked is not None:
            self._session.guard(asked)
        if asked is not None and asked.kind is Kind.CATALOGUE and not self._session.is_constant(asked):
            await self._relayed(message)
            self._statements[message.name] = Prepared(message.text, asked, (), (), is_of_mirror=True)
            return
        oids, types = await self._parameters(asked, message.types)
        self._statements[message.name] = Prepared(message.text, asked, oids, types)
        self._session.link.send(messages.PARSE_COMPLETE)

    async def _parameters(self, asked: Asked | None, given: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[ColumnType, ...]]:
        """Return OIDs and types of a statement's parameters: those that the client says, else those that their places tell, else TEXT."""
        numbers = [] if asked is None else asked.parameters()
        if asked is None or not numbers:
            return (), ()
        count = max(numbers)
        if min(numbers) < 1 or count > limits.PARAMETERS_MAX:
            raise PgError(LIMIT, f"parameters are $1 to ${limits.PARAMETERS_MAX}")
        oids, types = [], []
        known = {} if len(given) >= count and all(given) else await self._told_by_places(asked)
        for number in range(1, count + 1):
            oid = given[number - 1] if number <= len(given) else 0
            kind = type_of_oid(oid) if oid not in (0, 705) else known.get(number, _TEXT)
            if kind is None:
                raise PgError(UNSUPPORTED, f"parameter ${number} has the type {oid}, which is not supported")
            oids.append(oid or oid_of(kind))
            types.append(kind)
        return tuple(oids), tuple(types)

    async def _told_by_places(self, asked: Asked) -> dict[int, ColumnType]:
        """Return what the columns of the streams and tables in a statement say of its parameters."""
        columns: dict[str, ColumnType] = {}
        inserted: list[ColumnType] = []
        words = asked.words
        names = [words[i + 1] for i, word in enumerate(words[:-1]) if word.upper in ("FROM", "JOIN", "INTO", ",")]
        for name in dict.fromkeys(word.identifier for word in names[:_RELATIONS_MAX] if word.identifier):
            try:
                rows = (await self._session.client.execute(f"DESCRIBE {quoted(name)}")).rows
            except MillstreamError as error:
                if error.code not in ("unknown_name", "syntax", "invalid"):
                    raise
                continue  # not a stream: the name of a common table, or a column after a comma
            if not all(row.keys() >= {"column", "type"} for row in rows):
                continue  # a class has properties
            found = {row["column"]: parse_type(row["type"]) for row in rows}
            columns = {**found, **columns}
            if asked.kind is Kind.INSERT and not inserted:
                inserted = self._inserted(asked, found)
        return parameter_types(words, columns, inserted)

    def _inserted(self, asked: Asked, columns: dict[str, ColumnType]) -> list[ColumnType]:
        """Return the types of the columns that INSERT names between its name and VALUES, or of all."""
        words = asked.words
        start = next((i for i, word in enumerate(words) if word.upper in ("(", "VALUES")), len(words))
        end = next((i for i, word in enumerate(words) if word.upper == "VALUES"), len(words))
        named = [word.identifier for word in words[start:end] if word.identifier]
        return [columns.get(name, _TEXT) for name in named] if named else list(columns.values())

    async def _describe_statement(self, message: messages.Describe) -> None:
        prepared = self._statement(message.name)
        if prepared.is_of_mirror:
            await self._relayed(message)
            return
        self._session.link.send(messages.parameter_description(prepared.oids))
        if not prepared.has_rows:
            self._session.link.send(messages.NO_DATA)
            return
        if prepared.fields is None:
            samples = {i: literal(kind, _SAMPLES.get(kind.name, "{}")) for i, kind in enumerate(prepared.types, 1)}
            source = await self._run(Portal(prepared, samples))
            assert source is not None
            prepared.fields = [field_of(column) for column in source.columns]
        self._session.link.send(messages.row_description(prepared.fields))

    def _statement(self, name: str) -> Prepared:
        found = self._statements.get(name)
        if found is None:
            raise PgError(INVALID_STATEMENT, f'prepared statement "{name}" does not exist')
        return found

    # --- portals ---

    async def _bind(self, message: messages.Bind) -> None:
        prepared = self._statement(message.statement)
        if message.portal and (message.portal in self._portals or message.portal in self._session.cursors):
            raise PgError(DUPLICATE_CURSOR, f'portal "{message.portal}" already exists')
        self._session.room_for_portal()
        if message.portal not in self._portals and len(self._portals) >= limits.PORTALS_MAX:
            raise PgError(LIMIT, f"a session has at most {limits.PORTALS_MAX} portals and cursors", "close those that are read")
        if prepared.is_of_mirror:
            await self._relayed(message)
            self._portals[message.portal] = Portal(prepared)
            return
        if len(message.values) != len(prepared.types):
            text = f"the statement has {len(prepared.types)} parameters, and {len(message.values)} were given"
            raise PgError(PROTOCOL_VIOLATION, text)
        literals = {i + 1: self._literal(prepared, message, i) for i in range(len(message.values))}
        self._portals[message.portal] = Portal(prepared, literals, message.result_formats)
        self._session.link.send(messages.BIND_COMPLETE)

    def _literal(self, prepared: Prepared, message: messages.Bind, index: int) -> str:
        value = message.values[index]
        format = message.formats[0 if len(message.formats) == 1 else index] if message.formats else messages.TEXT
        if value is None:
            return "NULL"
        if format == messages.BINARY:
            return literal(prepared.types[index], text_of_binary(prepared.oids[index], value))
        try:
            return literal(prepared.types[index], value.decode("utf-8"))
        except UnicodeDecodeError:
            raise PgError(INVALID_TEXT, f"parameter ${index + 1} is not UTF-8") from None

    async def _describe_portal(self, message: messages.Describe) -> None:
        cursor = self._session.cursors.get(message.name)
        if cursor is not None:
            self._session.link.send(messages.row_description([field_of(column) for column in cursor.columns]))
            return
        portal = self._portal(message.name)
        if portal.prepared.is_of_mirror:
            await self._relayed(message)
        elif not portal.prepared.has_rows:
            self._session.link.send(messages.NO_DATA)
        else:
            source = portal.source = portal.source or await self._run(portal)
            assert source is not None
            formats = _spread(portal.formats, len(source.columns))
            lain = [field_of(column, format) for column, format in zip(source.columns, formats, strict=True)]
            self._session.link.send(messages.row_description(lain))

    async def _execute(self, message: messages.Execute) -> None:
        portal = self._portal(message.portal)
        if portal.prepared.is_of_mirror:
            await self._relayed(message)
            return
        asked = portal.prepared.asked
        if asked is None:
            self._session.link.send(messages.EMPTY_QUERY)
            return
        source = portal.source = portal.source or await self._run(portal)
        if source is None:
            return
        rows_max = asked.count if asked.kind is Kind.FETCH else message.rows_max or None
        async with asyncio.timeout(self._session.settings.timeout_s):
            rows = await self._session.send_rows(source, rows_max, _spread(portal.formats, len(source.columns)))
        if asked.kind is not Kind.FETCH and not source.is_done:
            self._session.link.send(messages.PORTAL_SUSPENDED)
        else:
            self._session.complete(f"{source.tag} {rows}" if source.tag in ("SELECT", "FETCH") else source.tag)

    async def _run(self, portal: Portal) -> Source | None:
        asked = portal.prepared.asked
        assert asked is not None
        self._session.guard(asked)
        async with asyncio.timeout(self._session.settings.timeout_s):
            return await self._session.carry_out(portal.prepared.text, asked, portal.literals)

    def _portal(self, name: str) -> Portal:
        found = self._portals.get(name)
        if found is None:
            raise PgError(INVALID_CURSOR, f'portal "{name}" does not exist')
        return found

    # --- both ---

    async def _do_close(self, message: messages.Close, *, quiet: bool = False) -> None:
        is_of_mirror = False
        if message.kind == "S":
            prepared = self._statements.pop(message.name, None)
            is_of_mirror = prepared is not None and prepared.is_of_mirror
        elif (portal := self._portals.pop(message.name, None)) is not None:
            is_of_mirror = portal.prepared.is_of_mirror
            if portal.source is not None and portal.source not in self._session.cursors.values():
                await portal.source.close()
        if is_of_mirror:
            await self._relayed(message, quiet=quiet)
        elif not quiet:
            self._session.link.send(messages.CLOSE_COMPLETE)

    async def _relayed(self, message: Message, *, quiet: bool = False) -> None:
        """Have the private PostgreSQL carry a message out, and pass its answer on."""
        relay = await self._session.relay()
        link = self._session.link
        async for kind, body in relay.ask([message], _ENDS[type(message)]):
            if kind == b"E":
                raise Relayed(kind + body)
            if not quiet and kind not in (b"S", b"Z"):
                link.send(kind + body)
                await link.drain()


class Relayed(PgError):
    """An error of the private PostgreSQL, passed on as it is."""

    def __init__(self, data: bytes) -> None:
        super().__init__("XX000", "an error about the catalogue")
        self.data = data


def _spread(formats: tuple[int, ...], columns: int) -> list[int]:
    """Return a format for each column: none given is text, one is for all."""
    if len(formats) <= 1:
        return [formats[0] if formats else messages.TEXT] * columns
    if len(formats) != columns:
        raise PgError(PROTOCOL_VIOLATION, f"{len(formats)} formats for {columns} columns")
    return list(formats)
