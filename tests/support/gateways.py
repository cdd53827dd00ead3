"""A gateway before a live server, in the loop of a test; and a peer that speaks PostgreSQL's protocol byte by byte."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from millstream.client.gateway.access import Access, Settings
from millstream.client.gateway.postgres import messages
from millstream.client.gateway.postgres.messages import Message, Startup, written
from millstream.client.gateway.serving import Ports, running

from tests.support import live_server
from tests.support.live_server import Harness


class Gateway:
    """A running gateway, and the server behind it."""

    def __init__(self, harness: Harness, ports: Ports, said: list[str]) -> None:
        self.harness, self.ports, self.said = harness, ports, said

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.ports.pg} user=admin dbname=millstream"

    async def peer(self, user: str = "admin") -> Peer:
        """Return a peer that has been let in without a password."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.ports.pg))
        peer.say(Startup(messages.VERSION_3_0, {"user": user}))
        await peer.until(b"Z")
        return peer


@asynccontextmanager
async def gateway(harness: Harness, tokens: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Gateway]:
    said: list[str] = []
    wanted = Settings(Access(harness.address, None, tokens or {}), pg_port=0, catalogue=False)
    async with running(replace(wanted, **settings), said.append) as ports:
        yield Gateway(harness, ports, said)


def run(test: Callable[[Gateway], Awaitable[None]], *, server: dict[str, Any] | None = None, **settings: Any) -> None:
    """Run an async test against a gateway and a server of its own, within a bound."""

    async def whole(harness: Harness) -> None:
        async with gateway(harness, **settings) as running_gateway:
            await test(running_gateway)

    live_server.run(whole, **(server or {}))


class Peer:
    """A peer of PostgreSQL's protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *said: Message) -> None:
        self.writer.write(b"".join(map(written, said)))

    async def hear(self) -> tuple[bytes, bytes]:
        """Return the next message: its type and its body. EOFError when the gateway has closed."""
        kind = await self.reader.readexactly(1)
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return kind, await self.reader.readexactly(length - 4)

    async def until(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """Return the messages up to one of this type."""
        heard = [await self.hear()]
        while heard[-1][0] != kind:
            heard.append(await self.hear())
        return heard

    async def ask(self, *said: Message) -> list[tuple[bytes, bytes]]:
        """Say something and return what is answered, up to the next ReadyForQuery."""
        self.say(*said)
        return await self.until(b"Z")

    async def error(self, *said: Message) -> dict[str, str]:
        """Say something and return the fields of the error that answers it, by their letters."""
        self.say(*said)
        return fields_of((await self.until(b"E"))[-1][1])

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def fields_of(body: bytes) -> dict[str, str]:
    """Return the fields of an error or notice."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def tags(heard: list[tuple[bytes, bytes]]) -> list[str]:
    """Return the tags of the statements that were done."""
    return [body[:-1].decode() for kind, body in heard if kind == b"C"]


def values(heard: list[tuple[bytes, bytes]]) -> list[list[str | None]]:
    """Return the rows, as text."""
    rows = []
    for kind, body in heard:
        if kind == b"D":
            (count,), at, row = struct.unpack_from(">h", body), 2, []
            for _ in range(count):
                (length,) = struct.unpack_from(">i", body, at)
                row.append(None if length < 0 else body[at + 4 : at + 4 + length].decode())
                at += 4 + max(length, 0)
            rows.append(row)
    return rows
