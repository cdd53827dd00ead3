"""The metrics port: a few pages over HTTP, on the standard library's server in a thread of its own. A page itself is made in the loop.

Whoever asks can hold a thread here for `REQUEST_S_MAX`, one of at most `CONNECTIONS_MAX`, and nothing of the server.
"""

from __future__ import annotations

import asyncio
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, BinaryIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 5.0
CONNECTIONS_MAX = 16
Page = Callable[[], tuple[int, str, bytes]]  # status, content type, body
Prepare = Callable[[], Awaitable[None]]
Guard = Callable[[str | None], bool]  # whether a token, or the lack of one, is good enough


class Pages:
    """Pages by path. `prepare` is waited for before the page of that path is made; with a `guard`, `/metrics` is for those it lets in."""

    def __init__(self, pages: Mapping[str, Page], prepare: Mapping[str, Prepare] | None = None, guard: Guard | None = None) -> None:
        self.port = 0
        self._pages, self._prepare, self._guard = pages, prepare or {}, guard
        self._server: _Server | None = None

    def start(self, host: str, port: int) -> None:
        """Listen, from the loop that makes the pages. OSError when the port is taken."""
        self._loop = asyncio.get_running_loop()
        self._server = _Server(host, port)
        self._server.set_app(self._answer)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="pages", daemon=True).start()

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._server.shutdown)
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method not in ("GET", "HEAD"):
            status, kind, body = 405, "text/plain", b"only GET is answered\n"
        elif path not in self._pages:
            status, kind, body = 404, "text/plain", f"pages are {', '.join(self._pages)}\n".encode()
        elif path == "/metrics" and self._guard is not None and not self._guard(_bearer(environ.get("HTTP_AUTHORIZATION", ""))):
            status, kind, body = 401, "text/plain", b"a token is needed: Authorization: Bearer TOKEN\n"
        else:
            status, kind, body = self._made(path)
        start_response(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body] if method == "GET" else []

    def _made(self, path: str) -> tuple[int, str, bytes]:
        making = asyncio.run_coroutine_threadsafe(self._page(path), self._loop)
        try:
            return making.result(REQUEST_S_MAX)
        except TimeoutError:
            making.cancel()
            return 503, "text/plain", b"the server has no time to answer\n"

    async def _page(self, path: str) -> tuple[int, str, bytes]:
        if path in self._prepare:
            await self._prepare[path]()
        return self._pages[path]()


def _bearer(header: str) -> str | None:
    """Return the token of `Bearer TOKEN`, None where there is none."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class _Head:
    """What a peer sends, up to a bound; then it is as if it had ended."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, REQUEST_BYTES_MAX

    def readline(self, size: int) -> bytes:
        line = self._file.readline(min(size, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._file.close()


class _Handler(WSGIRequestHandler):
    """One request. It logs nothing."""

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment, arg-type]

    def handle(self) -> None:
        with suppress(OSError):  # a peer that does not finish its request, or leaves, gets no answer
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each request, at most `CONNECTIONS_MAX`; those that last too long are cut."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_full = len(self._since) >= CONNECTIONS_MAX
            if not is_full:
                self._since[request] = time.monotonic()
        if is_full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut connections that have had their time; asked twice a second."""
        with self._lock:
            for request, since in self._since.items():
                if time.monotonic() - since > REQUEST_S_MAX:
                    with suppress(OSError):  # it has gone by itself
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of peers that leave."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
