"""What a PostgreSQL peer holds is let go of, whatever becomes of the rest of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from millstream.client.gateway.postgres.mirror import Relay
from millstream.client.gateway.postgres.session import Session


def test_a_source_that_cannot_be_closed_keeps_nothing_else_open() -> None:
    closed: list[str] = []

    def closing(name: str, fails: bool = False) -> Any:
        async def close() -> None:
            closed.append(name)
            if fails:
                raise RuntimeError(name)

        return SimpleNamespace(close=close)

    session: Any = Session.__new__(Session)
    session.cursors = {"c": closing("cursor", fails=True)}
    session._extended = SimpleNamespace(sources=lambda: [closing("portal")])
    session._relay, session.client = closing("relay"), closing("client")
    with pytest.raises(RuntimeError, match="cursor"):
        asyncio.run(session._close())
    assert sorted(closed) == ["client", "cursor", "portal", "relay"]
    assert not session.cursors


def test_a_connection_that_is_given_up_while_it_closes_is_cut() -> None:
    done: list[str] = []

    async def forever() -> None:
        await asyncio.Event().wait()

    async def cancelled() -> None:
        transport = SimpleNamespace(abort=lambda: done.append("cut"))
        writer: Any = SimpleNamespace(write=done.append, close=lambda: done.append("closed"), wait_closed=forever, transport=transport)
        reader: Any = None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Relay(reader, writer).close(), 0.01)

    asyncio.run(cancelled())
    assert done[1:] == ["closed", "cut"]
