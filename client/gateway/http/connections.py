"""The gateway's own connections to the server: one for each request under way, kept for the next with the same token."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from millstream.client.connection import AsyncClient, connect_async
from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import Access
from millstream.client.gateway.http import limits

BEARER_HINT = "send the header Authorization: Bearer TOKEN"


class Connections:
    """At most `connections_max` at a time. A request has its connection alone, so what it leaves half done ends with it."""

    def __init__(self, access: Access, connections_max: int) -> None:
        self._access = access
        self._connections_max = connections_max
        self._idle: list[tuple[str | None, AsyncClient]] = []
        self._busy: set[AsyncClient] = set()
        self._under_way = 0
        self._connecting = asyncio.Semaphore(limits.CONNECTING_MAX)

    def admitted(self, authorization: str | None) -> str | None:
        """Return the token to use at the server. MillstreamError (`unauthorized`) for one that the gateway knows to be none."""
        scheme, _, token = (authorization or "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else None
        known = self._access.tokens.values()
        if known and not sum(hmac.compare_digest((given or "").encode(), one.encode()) for one in known):
            raise MillstreamError("unauthorized", "a token is needed", BEARER_HINT)
        return given

    @asynccontextmanager
    async def one(self, token: str | None) -> AsyncIterator[AsyncClient]:
        """Give a connection with the rights of a token. MillstreamError when the server cannot be reached or refuses."""
        if self._under_way >= self._connections_max:
            raise MillstreamError("overloaded", f"{self._connections_max} requests are under way", "try again in a moment")
        self._under_way += 1
        try:
            client = self._taken(token) or await self._connected(token)
            self._busy.add(client)
            try:
                yield client
            except MillstreamError:
                await self._given_back(token, client)  # a refusal leaves the connection as it was
                raise
            except BaseException:
                await client.abandon()  # which cancels what it asked for
                raise
            else:
                await self._given_back(token, client)
            finally:
                self._busy.discard(client)
        finally:
            self._under_way -= 1

    async def _connected(self, token: str | None) -> AsyncClient:
        """Return a new connection. Few are made at a time, and a wrong token keeps its place: guesses cost little."""
        async with self._connecting:
            try:
                return await connect_async(self._access.server, token, self._access.tls_ca)
            except MillstreamError as error:
                if error.code != "unauthorized":
                    raise
                await asyncio.sleep(limits.GUESS_S)
                raise MillstreamError(error.code, "the token is missing or unknown", BEARER_HINT) from None

    def _taken(self, token: str | None) -> AsyncClient | None:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index][0] == token:
                client = self._idle.pop(index)[1]
                if client.is_open:
                    return client
        return None

    async def _given_back(self, token: str | None, client: AsyncClient) -> None:
        if client.is_open:
            self._idle.append((token, client))
        if len(self._idle) > limits.IDLE_MAX:
            await self._idle.pop(0)[1].close()

    async def close(self) -> None:
        """Close all."""
        for _, client in self._idle:
            await client.close()
        self._idle.clear()
        for client in list(self._busy):
            await client.abandon()


class Held:
    """How many bytes of bodies and answers are in memory, of all peers together."""

    def __init__(self, bytes_max: int = limits.HELD_BYTES_MAX) -> None:
        self.bytes, self._bytes_max = 0, bytes_max

    def take(self, size: int) -> None:
        """Count bytes. MillstreamError (`overloaded`) when there are too many."""
        if self.bytes + size > self._bytes_max:
            raise MillstreamError("overloaded", "the gateway holds as many bytes as it may", "try again in a moment")
        self.bytes += size

    def give(self, size: int) -> None:
        """Count bytes that are gone."""
        self.bytes -= size
