"""The metrics port: what it answers, and how little a peer can take of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from millstream.server.net import pages
from millstream.server.net.pages import REQUEST_BYTES_MAX, Page, Pages

PAGES: dict[str, Page] = {"/x": lambda: (200, "text/plain", b"body\n"), "/metrics": lambda: (200, "text/plain", b"measured\n")}


def run(test: Callable[[Pages], Awaitable[None]], served: Pages | None = None) -> None:
    async def whole() -> None:
        found = served or Pages(PAGES)
        found.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(test(found), 60)
        finally:
            await found.stop()

    asyncio.run(whole())


async def ask(served: Pages, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status", "has_body"),
    [
        (b"GET /x HTTP/1.1", 200, True),
        (b"GET /x?a=b HTTP/1.0", 200, True),
        (b"HEAD /x HTTP/1.1", 200, False),
        (b"GET /y HTTP/1.1", 404, False),
        (b"POST /x HTTP/1.1", 405, False),
        (b"hello there you", 400, False),
    ],
)
def test_a_request_gets_the_answer_it_should(request_line: bytes, status: int, has_body: bool) -> None:
    async def test(served: Pages) -> None:
        head, _, body = (await ask(served, request_line + b"\r\nHost: h\r\n\r\n")).partition(b"\r\n\r\n")
        assert b" %d " % status in head.partition(b"\r\n")[0]
        assert (body == b"body\n") is has_body

    run(test)


def test_metrics_are_for_those_with_a_token_and_made_after_what_they_need() -> None:
    asked: list[str] = []

    async def prepare() -> None:
        asked.append("measured")

    async def test(served: Pages) -> None:
        assert b" 401 " in await ask(served, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert not asked
        answer = await ask(served, b"GET /metrics HTTP/1.0\r\nAuthorization: Bearer good\r\n\r\n")
        assert (answer.endswith(b"measured\n"), asked) == (True, ["measured"])
        assert b" 200 " in await ask(served, b"GET /x HTTP/1.0\r\n\r\n")

    run(test, Pages(PAGES, {"/metrics": prepare}, lambda token: token == "good"))


def test_peers_that_say_too_much_or_too_little_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "REQUEST_S_MAX", 0.05)
    monkeypatch.setattr(pages, "CONNECTIONS_MAX", 2)

    async def test(served: Pages) -> None:
        lines = b"X: y\r\n" * (REQUEST_BYTES_MAX // 6 + 1)
        assert b" 200 " not in await ask(served, b"GET /x HTTP/1.0\r\n" + lines + b"\r\n")
        silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
        for reader, writer in silent:  # the third for want of room, the others as their time is over
            assert await reader.read() == b""
            writer.close()
        while b" 200 " not in await ask(served, b"GET /x HTTP/1.0\r\n\r\n"):
            pass  # their threads are about to end

    run(test)


def test_a_server_that_is_stuck_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "REQUEST_S_MAX", 0.05)

    async def never() -> None:
        await asyncio.Event().wait()

    async def test(served: Pages) -> None:
        assert b" 503 " in await ask(served, b"GET /x HTTP/1.0\r\n\r\n")

    run(test, Pages(PAGES, {"/x": never}))
