"""The console's routes, on Starlette: the page, its files, its connection, and statements that it runs in the user's name.

Whoever is let in is the server's decision: each page brings a token, and what it asks goes to the server under it. Another site's page is
no page of ours: its requests name another host or origin and are refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from millstream.client.connection import Answer, AsyncClient, connect_async
from millstream.client.console import files
from millstream.client.console.deciding import Simulations, decisions
from millstream.client.console.experiments import ExperimentRuns, experiments
from millstream.client.console.pages import Page, report_fault
from millstream.client.console.trying import FILES_BYTES_MAX, Tries
from millstream.client.console.watching import Watch
from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import Access
from millstream.client.gateway.http.connections import Connections
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

STATEMENT_BYTES_MAX = 262_144
STATEMENT_S_MAX = 60.0
SIMULATE_S_MAX = 420.0  # with the server's answer before it
ADVISE_S_MAX = 1_200.0
TRY_S_MAX = 120.0
TRY_BYTES_MAX = 2 * FILES_BYTES_MAX  # as text
ENTER_S_MAX = 10.0
ROWS_SHOWN_MAX = 1_000
PAGES_MAX = 32
ASKS_S = 60.0
STATUS = {"unauthorized": 401, "forbidden": 403, "overloaded": 503, "unreachable": 502, "disconnected": 502, "timeout": 504}


class Desk:
    """What all pages share: connections to the server, and a watch for each role that looks."""

    def __init__(self, access: Access, own_token: str | None, connections_max: int, *, open_to_others: bool) -> None:
        self.connections = Connections(access, connections_max)
        self.simulations = Simulations()
        self.experiment_runs = ExperimentRuns()
        self.tries = Tries()
        self.pages = 0
        self._access = access
        self._own_token = own_token
        self._open_to_others = open_to_others
        self._asks_until_s = 0.0  # until when it is known that the server asks for tokens
        self._watches: dict[str, Watch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self) -> str:
        """Look with the console's own token from now on, so that the first page finds a past. Return what stands in the way."""
        try:
            role = await self.role_of(self._own_token)
        except MillstreamError as error:  # the first page that is let in begins
            if self._own_token is None and error.code == "unauthorized":
                return ""
            refused = "the server refuses MILLSTREAM_TOKEN" if error.code == "unauthorized" else "the console cannot look yet"
            return f"{refused}: {error}; the first page that is let in begins"
        self.watch(role, self._own_token, stays=True)
        return ""

    async def role_of(self, token: str | None) -> str:
        """Return what a token grants. MillstreamError when the server refuses it."""
        async with self.one(token) as client:
            return client.role

    @asynccontextmanager
    async def one(self, token: str | None) -> AsyncIterator[AsyncClient]:
        """Give a connection with a token's rights, as `Connections` does. MillstreamError also where it would let in anybody."""
        if self._open_to_others and time.monotonic() >= self._asks_until_s:
            await self._check_that_the_server_asks()
        async with self.connections.one(token) as client:
            yield client

    async def _check_that_the_server_asks(self) -> None:
        """MillstreamError when the server lets in whoever has no token: then this console would let in other machines."""
        try:
            async with self.connections.one(None):
                pass
        except MillstreamError as error:
            if error.code != "unauthorized":
                raise
            self._asks_until_s = time.monotonic() + ASKS_S
        else:
            hint = "set MILLSTREAM_ADMIN_TOKEN for the server, or let the console listen on 127.0.0.1"
            raise MillstreamError("unauthorized", "the server asks nobody for a token, and this console lets other machines in", hint)

    def watch(self, role: str, token: str | None, *, stays: bool = False) -> Watch:
        """Return the watch of a role, begun with this token if there is none."""
        task = self._tasks.get(role)
        if task is None or task.done():
            self._watches[role] = Watch(role, lambda: _connected(self._access, token), stays=stays)
            self._tasks[role] = asyncio.get_running_loop().create_task(self._watches[role].run())
            self._tasks[role].add_done_callback(report_fault)
        return self._watches[role]

    async def close(self) -> None:
        """End all."""
        await self.experiment_runs.stop()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.connections.close()


async def _connected(access: Access, token: str | None) -> AsyncClient:
    return await connect_async(access.server, token, access.tls_ca)


def application(desk: Desk, bundle: files.Bundle, names: frozenset[str] | None) -> ASGIApp:
    """Return the application. `names` are the hosts that it may be called by; None lets any name pass."""

    async def page(request: Request) -> Response:
        text, headers = files.page(bundle)
        return Response(text, headers=headers, media_type=files.TYPES[".html"])

    async def file(request: Request) -> Response:
        found = bundle.files.get(request.path_params["name"])
        if found is None:
            return _refusal(MillstreamError("not_found", "the console has no such file"), 404)
        return Response(found[0], headers=found[1])

    async def statement(request: Request) -> Response:
        return await _answered(request, lambda asked: _executed(desk, _token(request), asked))

    async def look(request: Request) -> Response:
        return await _answered(request, lambda asked: decisions(desk, _token(request), asked))

    async def simulate(request: Request) -> Response:
        return await _answered(request, lambda asked: desk.simulations.simulate(desk, _token(request), asked), SIMULATE_S_MAX)

    async def advise(request: Request) -> Response:
        return await _answered(request, lambda asked: desk.simulations.advise(desk, _token(request), asked), ADVISE_S_MAX)

    async def on_files(request: Request) -> Response:
        try:  # whoever is let in, and is alone, may send much
            await desk.role_of(_token(request))
            with desk.tries.alone.turn():
                return await _answered(request, lambda asked: desk.tries.on_files(desk, _token(request), asked), TRY_S_MAX, TRY_BYTES_MAX)
        except MillstreamError as error:
            return _refusal(error, STATUS.get(error.code, 400))

    known = experiments(bundle.experiments)

    async def experiment(request: Request) -> Response:
        return await _answered(request, lambda asked: _experiment(desk, known, _token(request), asked))

    async def live(socket: WebSocket) -> None:
        await _live(desk, socket)

    routes = [
        Route("/", page),
        Route("/files/{name}", file),
        Route("/api/statement", statement, methods=["POST"]),
        Route("/api/decisions", look, methods=["POST"]),
        Route("/api/simulate", simulate, methods=["POST"]),
        Route("/api/advise", advise, methods=["POST"]),
        Route("/api/experiment", experiment, methods=["POST"]),
        Route("/api/try", on_files, methods=["POST"]),
        WebSocketRoute("/api/live", live),
    ]
    return Guard(Starlette(routes=routes), names)


def _token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def _answered(
    request: Request,
    do: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    seconds_max: float = STATEMENT_S_MAX,
    bytes_max: int = STATEMENT_BYTES_MAX,
) -> Response:
    """Return what `do` makes of the body, a JSON object; a refusal has code, message, hint and place."""
    try:
        async with asyncio.timeout(seconds_max):
            asked = json.loads(await _body(request, bytes_max))
            if not isinstance(asked, dict):
                raise ValueError("not an object")  # noqa: TRY301, TRY004
            return JSONResponse(await do(asked))
    except MillstreamError as error:
        return _refusal(error, STATUS.get(error.code, 400))
    except ValueError as error:
        return _refusal(MillstreamError("invalid", f"the request is not what a page asks: {error}"), 400)
    except TimeoutError:
        return _refusal(MillstreamError("timeout", f"the server did not answer within {seconds_max:g} s"), 504)


async def _body(request: Request, bytes_max: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > bytes_max:
            raise MillstreamError("limit", f"a request has {bytes_max} bytes at most")
    return bytes(body)


def _refusal(error: MillstreamError, status: int) -> Response:
    told = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
        "token": error.token,
    }
    return JSONResponse(told, status)


async def _executed(desk: Desk, token: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    sql = asked.get("sql")
    if not isinstance(sql, str):
        raise ValueError("sql is missing")  # noqa: TRY004
    async with desk.one(token) as client:
        answer = await client.execute(sql)
        if answer.continuous and not answer.durable and answer.query is not None:
            await answer.query.drop()
            raise MillstreamError(
                "invalid", "this SELECT runs on: follow its results instead", "or give it a name: CREATE QUERY name AS SELECT …"
            )
        return _shown(answer)


async def _experiment(desk: Desk, known: list[dict[str, Any]], token: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Tell of the experiments and of the run under way, begin or stop one: whoever is let in may look, only an admin steers."""
    role, runs = await desk.role_of(token), desk.experiment_runs
    do, name = asked.get("do"), asked.get("name")
    if do in ("start", "stop") and role != "admin":
        raise MillstreamError("forbidden", f"to {do} an experiment needs the admin role, and your token grants {role}")
    if do in ("start", "figure") and name not in {one["name"] for one in known}:
        raise ValueError(f"there is no experiment {name!r}")
    match do:
        case "start":
            runs.start(str(name))
        case "stop":
            await runs.stop()
        case "figure":
            return {"figure": runs.figure(str(name))}
        case "state" | "list":
            pass
        case _:
            raise ValueError("do is list, state, start, stop or figure")
    return {**runs.state(), **({"experiments": known} if do == "list" else {})}


def _shown(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON: rows as lists of the values that JSON has, else as text."""
    names = [column.name for column in answer.columns]
    rows = answer.rows
    cells = [[_cell(row[name]) for name in names] for row in rows[:ROWS_SHOWN_MAX]]
    columns = [[column.name, column.type.name] for column in answer.columns]
    return {"columns": columns, "rows": cells, "rows_in_all": len(rows), "notices": answer.notices, "info": _cell(dict(answer.info))}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)  # NaN and infinities are text
    if isinstance(value, dict):
        return {str(name): _cell(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_cell(part) for part in value]
    return "\\x" + bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)


async def _live(desk: Desk, socket: WebSocket) -> None:
    """Let a page in, and serve it until it leaves."""
    if desk.pages >= PAGES_MAX:
        await socket.close(1013, "too many pages are open")
        return
    desk.pages += 1
    try:
        await socket.accept()
        async with asyncio.timeout(ENTER_S_MAX):
            entering = json.loads(await socket.receive_text())
        token = entering.get("token") if isinstance(entering, dict) else None
        if token is not None and not isinstance(token, str):
            raise ValueError("a token is a text")  # noqa: TRY301
        role = await desk.role_of(token or None)
        await Page(socket, desk.watch(role, token or None), desk, token or None).run()
        await socket.close()
    except MillstreamError as error:
        await socket.send_text(json.dumps({"kind": "refused", "code": error.code, "why": error.message, "hint": error.hint}))
        await socket.close(4401 if error.code == "unauthorized" else 1011)
    except (ValueError, TimeoutError):
        await socket.close(1008, "this is no page of the console")
    except (WebSocketDisconnect, RuntimeError):
        return  # it has left already
    finally:
        desk.pages -= 1


class Guard:
    """Lets in requests that come from our own page, by host and origin, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not self._is_ours(scope):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": "this page is not the console's"})
            else:
                refusal = MillstreamError("forbidden", "the console serves its own page only", "open it by the address that it told")
                await _refusal(refusal, 403)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in files.HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, with_headers)

    def _is_ours(self, scope: Scope) -> bool:
        if scope["type"] not in ("http", "websocket"):
            return True
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        name = urlsplit(f"//{host}").hostname or ""
        if self._names is not None and name not in self._names:
            return False
        return origin is None or urlsplit(origin).netloc == host  # a browser names the origin of whatever can do something
