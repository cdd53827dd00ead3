"""The small HTTP end for metrics and health: GET /metrics, /healthz, /readyz. One answer a connection, then it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 5.0

Page = Callable[[], tuple[int, str, bytes]]  # status, content type, body
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable", 400: "Bad Request"}


def answer(request: bytes, pages: dict[str, Page]) -> bytes:
    """Return the whole answer to a request; `pages` by path."""
    words = request.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/"):
        return _response(400, "text/plain", b"not an HTTP request\n")
    if words[0] not in (b"GET", b"HEAD"):
        return _response(405, "text/plain", b"only GET is answered\n")
    page = pages.get(words[1].split(b"?", 1)[0].decode("latin-1"))
    if page is None:
        return _response(404, "text/plain", f"pages are {', '.join(pages)}\n".encode())
    response = _response(*page())
    return response if words[0] == b"GET" else response.split(b"\r\n\r\n", 1)[0] + b"\r\n\r\n"


def _response(status: int, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


Prepare = Callable[[], Awaitable[None]]


def _path(request: bytes) -> str:
    words = request.split(b"\r\n", 1)[0].split(b" ")
    return words[1].split(b"?", 1)[0].decode("latin-1") if len(words) == 3 else ""


async def serve_pages(host: str, port: int, pages: dict[str, Page], prepare: Mapping[str, Prepare] | None = None) -> asyncio.Server:
    """Listen; raises OSError when the port is taken. `prepare` is waited for before the page of that path is made."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S_MAX)
            before = (prepare or {}).get(_path(request))
            if before is not None:
                await before()
            writer.write(answer(request, pages))
            await asyncio.wait_for(writer.drain(), REQUEST_S_MAX)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # a peer that does not finish its request, or leaves, gets no answer
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port, limit=REQUEST_BYTES_MAX)
