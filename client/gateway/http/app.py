"""The routes of the HTTP gateway, and what OpenAPI says of them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any

import pyarrow as pa
from litestar import Litestar, Request, Response, get, post
from litestar.background_tasks import BackgroundTask
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.datastructures.headers import Accept
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, OpenAPIMediaType, Operation, RequestBody, Schema, SecurityScheme
from litestar.openapi.spec import Parameter as OpenAPIParameter
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType
from litestar.params import FromPath, HeaderParameter, QueryParameter
from litestar.response import Stream
from millstream.client.connection import Answer
from millstream.client.errors import MillstreamError
from millstream.client.gateway.http import limits, results
from millstream.client.gateway.http.connections import Connections, Held
from millstream.client.gateway.http.publishing import ARROW, CSV, JSON_LINES, KINDS, Body, Published, publish
from millstream.client.statements import first_word, query_statement, quoted

STATUS = {
    "syntax": 400, "unknown_name": 404, "type": 400, "unsupported": 400, "invalid": 400, "exists": 409, "in_use": 409, "engine": 500,
    "state": 409, "unauthorized": 401, "forbidden": 403, "version": 502, "protocol": 502, "flow": 502, "limit": 413, "overloaded": 503,
    "storage": 503, "timeout": 504, "slow": 503, "cancelled": 503, "closed": 409, "data": 400, "stopping": 503, "unreachable": 502,
    "disconnected": 502, "internal": 500, "media": 415, "acceptable": 406,
}  # fmt: skip
LISTS = {
    "streams": "SHOW STREAMS", "tables": "SHOW TABLES", "queries": "SHOW QUERIES", "classes": "SHOW CLASSES", "sources": "SHOW SOURCES",
    "sinks": "SHOW SINKS", "functions": "SHOW FUNCTIONS", "policies": "SHOW POLICIES", "archives": "SHOW ARCHIVES",
}  # fmt: skip
_LOG = logging.getLogger("millstream.gateway")
_JSON = "application/json"
SEND = r"^[A-Za-z0-9._:-]{1,200}/[1-9][0-9]{0,17}\Z"  # a publisher's name and the number of a send
_ASKED_FIRST = ("SELECT", "WITH", "VALUES")


@dataclass
class Problem:
    """Why a request was refused: a code of docs/errors.md, a sentence, the mend, and the place in a statement (from 1)."""

    code: str
    message: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass
class ColumnShown:
    """A column of an answer."""

    name: str
    type: str


@dataclass
class Answered:
    """What a statement answered."""

    columns: list[ColumnShown]
    rows: list[dict[str, Any]]
    notices: list[str] = field(default_factory=list)
    query: str | None = None


@dataclass
class Listed:
    """What there is of a kind, each with what SHOW says of it."""

    rows: list[dict[str, Any]]


@dataclass
class Described:
    """A stream, table or query: what SHOW says of it, and its columns."""

    shown: dict[str, Any]
    columns: list[dict[str, Any]]


@dataclass
class Gateway:
    """What the handlers share. Each request has it in the app's state."""

    connections: Connections
    held: Held
    streams_max: int
    streams: int = 0


def application(connections: Connections, held: Held, cors_origins: Sequence[str], connections_max: int) -> Litestar:
    """Return the ASGI application of one gateway."""
    gateway = Gateway(connections, held, max(1, int(connections_max * limits.STREAMS_PART)))
    allowed = ["Authorization", "Content-Type", "Last-Event-ID", "Idempotency-Key"]
    cors = CORSConfig(allow_origins=list(cors_origins), allow_methods=["GET", "POST"], allow_headers=allowed) if cors_origins else None
    app = Litestar(
        [publish_rows, read_results, run_statement, *map(_list_of, LISTS), *map(_one_of, ("streams", "tables", "queries"))],
        cors_config=cors,
        compression_config=CompressionConfig(backend="gzip", minimum_size=1_024, gzip_compress_level=5),
        exception_handlers={MillstreamError: _refused, HTTPException: _misasked, TimeoutError: _timed_out, Exception: _broken},
        openapi_config=OpenAPIConfig(
            "Millstream",
            version("millstream"),
            path="/v1/openapi.json",
            render_plugins=[JsonRenderPlugin(path="/")],
            components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
            security=[{"token": []}, {}],
            use_handler_docstrings=True,
        ),
        request_max_body_size=None,  # bodies are counted as they are read
        logging_config=None,
    )
    app.state.gateway = gateway
    return app


# --- refusals ---


def _problem(status: int, problem: Problem) -> Response[Problem]:
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = "1"
    return Response(problem, status_code=status, media_type=_JSON, headers=headers)


def _refused(_: Request[Any, Any, Any], error: MillstreamError) -> Response[Problem]:
    return _problem(STATUS.get(error.code, 500), Problem(error.code, error.message, error.hint, error.line, error.column))


def _misasked(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    code = {404: "unknown_name", 413: "limit", 415: "media"}.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    faults = error.extra if isinstance(error.extra, list) else []
    said = [f"{one.get('key')}: {one.get('message')}" for one in faults if isinstance(one, dict)]
    hint = "/v1/openapi.json describes what can be asked" if error.status_code in (404, 405) else None
    response = _problem(error.status_code, Problem(code, "; ".join([error.detail, *said]), hint))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


def _timed_out(_: Request[Any, Any, Any], error: TimeoutError) -> Response[Problem]:
    message = f"the request was not done within {limits.ANSWER_S_MAX:g} s, and is given up"
    return _problem(504, Problem("timeout", message, "what was published until then may have been accepted"))


def _broken(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    _LOG.error("a fault of the gateway at %s %s", request.method, request.url.path, exc_info=error)
    return _problem(500, Problem("internal", f"a fault of the gateway: {type(error).__name__}", "its log says more; please report it"))


def _refusals(*statuses: int) -> dict[int, ResponseSpec]:
    words = {
        400: "The statement, value or body is wrong", 401: "A token is needed", 403: "The role may not", 404: "There is no such thing",
        406: "No form that the peer takes", 409: "The state of things does not allow it", 413: "Too much at once",
        415: "A form of body that is not taken", 503: "Not now", 504: "It took too long",
    }  # fmt: skip
    return {status: ResponseSpec(Problem, False, words[status], _JSON) for status in (*statuses, 401, 403, 503)}


# --- rows ---


_ROWS_SENT = {
    JSON_LINES: OpenAPIMediaType(Schema(type=OpenAPIType.STRING, description="One JSON object a line.")),
    CSV: OpenAPIMediaType(Schema(type=OpenAPIType.STRING, description="The first line has the names of the columns.")),
    ARROW: OpenAPIMediaType(Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY, description="An Arrow stream, not compressed.")),
}


@dataclass
class _TakesRows(Operation):
    """An operation whose body is rows."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(_ROWS_SENT, "Rows, as Content-Type says. Content-Encoding may be gzip.", True)
        key = Schema(type=OpenAPIType.STRING, pattern=SEND.replace("\\Z", "$"), examples=["plant-7/1"])
        says = "PUBLISHER/NUMBER: such a request counts once. The numbers must grow."
        self.parameters = [*(self.parameters or []), OpenAPIParameter("Idempotency-Key", "header", key, says)]


@post(
    "/v1/streams/{stream:str}/rows",
    status_code=200,
    operation_id="publishRows",
    operation_class=_TakesRows,
    responses=_refusals(400, 404, 409, 413, 415, 504),
)
async def publish_rows(
    request: Request[Any, Any, Any],
    stream: FromPath[str],
) -> Published:
    """Publish rows to a stream or table. Each row is accepted or refused by itself; the answer lists what was refused."""
    gateway = _gateway(request)
    name, number = _send_of(request.headers.get("idempotency-key", ""))
    kind = KINDS.get(_media(request.headers.get("content-type", "")))
    if kind is None:
        raise MillstreamError("media", "this Content-Type is not taken", f"send {JSON_LINES}, {CSV} or {ARROW}")
    body = Body(request.stream(), request.headers.get("content-encoding", "").strip().lower(), gateway.held)
    async with asyncio.timeout(limits.ANSWER_S_MAX), gateway.connections.one(_token(request)) as client:
        return await publish(client, stream, kind, body, name, number)


def _send_of(key: str) -> tuple[str | None, int | None]:
    """Return a publisher's name and the number of its send; None for a request without."""
    if not key:
        return None, None
    if re.match(SEND, key) is None:
        raise MillstreamError("invalid", "Idempotency-Key is PUBLISHER/NUMBER", "for example plant-7/1, then plant-7/2")
    name, _, number = key.rpartition("/")
    return name, int(number)


# --- results ---


@get(
    "/v1/queries/{name:str}/results",
    operation_id="readResults",
    responses={
        **_refusals(400, 404, 406),
        204: ResponseSpec(None, False, "Last-Event-ID is behind the last result: nothing more will come"),
        200: ResponseSpec(str, False, "Results as they come, until the query ends", results.EVENTS),
    },
)
async def read_results(
    request: Request[Any, Any, Any],
    name: FromPath[str],
    from_start: Annotated[bool, QueryParameter(description="Begin with the oldest result that the server keeps.")] = False,
    tokens: Annotated[bool, QueryParameter(description="Add the column resume_token to JSON lines and Arrow.")] = False,
    last_event_id: Annotated[
        str, HeaderParameter(name="Last-Event-ID", max_length=4_096, description="Go on behind this event, or behind a resume token.")
    ] = "",
) -> Response[Any]:
    """Read the results of a query: server-sent events, JSON lines or an Arrow stream, as Accept says."""
    gateway = _gateway(request)
    form = _accepted(request, results.FORMS)
    token, passed = (None, 0) if not last_event_id else results.place_of(last_event_id)
    rights = gateway.connections.admitted(request.headers.get("authorization"))
    if passed is None:
        return Response(None, status_code=204)
    if passed and form != results.EVENTS:
        raise MillstreamError("invalid", "this id is one between two tokens, of an event stream", "go on with Accept: text/event-stream")
    if gateway.streams >= gateway.streams_max:
        raise MillstreamError("overloaded", f"{gateway.streams_max} peers read results", "try again in a moment")
    async with AsyncExitStack() as stack:
        gateway.streams += 1
        stack.callback(_left, gateway)
        client = await stack.enter_async_context(gateway.connections.one(rights))
        subscription = await client.subscribe(
            name,
            from_start=from_start and token is None,
            resume_token=token or None,
            rows_window=limits.SUBSCRIPTION_ROWS,
            bytes_window=limits.SUBSCRIPTION_BYTES,
        )
        stack.push_async_callback(subscription.close)
        if form == results.EVENTS:
            chunks = results.events(subscription, passed)
        else:
            chunks = (results.arrow if form == ARROW else results.lines)(subscription, tokens)
        kept = stack.pop_all()
    # The stack is closed when the response is over, also when it never began or broke off.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Stream(_until_over(chunks, kept), media_type=form, headers=headers, background=BackgroundTask(kept.aclose))


def _left(gateway: Gateway) -> None:
    gateway.streams -= 1


async def _until_over(chunks: AsyncIterator[bytes], stack: AsyncExitStack) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        await stack.aclose()


# --- statements ---


@dataclass
class _TakesSql(Operation):
    """An operation whose body is a statement."""

    def __post_init__(self) -> None:
        text = Schema(type=OpenAPIType.STRING, min_length=1)
        whole = Schema(type=OpenAPIType.OBJECT, properties={"sql": text}, required=["sql"], additional_properties=False)
        content = {_JSON: OpenAPIMediaType(whole), "text/plain": OpenAPIMediaType(text)}
        self.request_body = RequestBody(content, "One statement of the language.", True)


@post(
    "/v1/sql",
    status_code=200,
    operation_id="runStatement",
    operation_class=_TakesSql,
    responses={**_refusals(400, 404, 406, 409, 413, 415, 504), 200: ResponseSpec(Answered, False, "What it answered", _JSON)},
)
async def run_statement(request: Request[Any, Any, Any]) -> Response[Any]:
    """Run one statement. SELECT answers once, from what the server holds now. Accept may ask for CSV or an Arrow stream."""
    gateway = _gateway(request)
    form = _accepted(request, (_JSON, CSV, ARROW))
    async with asyncio.timeout(limits.ANSWER_S_MAX):
        sql = await _statement(request)
        prefix = "FETCH " if first_word(sql) in _ASKED_FIRST else ""
        async with gateway.connections.one(_token(request)) as client:
            try:
                answer = await client.execute(prefix + sql)
            except MillstreamError as error:
                if prefix and error.line == 1 and error.column is not None:
                    error.column = max(1, error.column - len(prefix))
                raise
            if answer.continuous and not answer.durable and answer.query is not None:
                await client.execute(query_statement("DROP", answer.query.name))
                hint = "CREATE QUERY name AS …, then GET /v1/queries/name/results"
                raise MillstreamError("unsupported", "this query runs on, so it has no answer", hint)
    return _response(answer, form, gateway.held)


async def _statement(request: Request[Any, Any, Any]) -> str:
    media = _media(request.headers.get("content-type", ""))
    if media not in (_JSON, "text/plain"):
        raise MillstreamError("media", "this Content-Type is not taken", 'send text/plain, or application/json: {"sql": "…"}')
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limits.STATEMENT_BYTES_MAX:
            raise MillstreamError("limit", f"a statement has at most {limits.STATEMENT_BYTES_MAX} bytes")
    try:
        sql = data.decode() if media == "text/plain" else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MillstreamError("invalid", f"the body cannot be read: {error}") from error
    if isinstance(sql, dict) and set(sql) == {"sql"}:
        sql = sql["sql"]
    elif media == _JSON:
        sql = None
    if not isinstance(sql, str):
        raise MillstreamError("invalid", "the body is not a statement", 'send {"sql": "SHOW STREAMS"}')
    return sql


def _response(answer: Answer, form: str, held: Held) -> Response[Any]:
    table = answer.to_arrow()
    head = {
        "columns": [{"name": column.name, "type": str(column.type)} for column in answer.columns],
        "notices": answer.notices,
        "query": None if answer.query is None else answer.query.name,
    }
    chunks = _written(table, form, head)
    size = int(table.nbytes)
    if table.num_rows <= limits.ROWS_AT_ONCE and size <= limits.ANSWER_BYTES_WHOLE:
        return Response(b"".join(chunks), media_type=form)
    held.take(size)
    kept = AsyncExitStack()
    kept.callback(held.give, size)
    return Stream(_until_over(_pieces(chunks), kept), media_type=form, background=BackgroundTask(kept.aclose))


async def _pieces(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def _written(table: pa.Table, form: str, head: dict[str, Any]) -> Iterator[bytes]:
    """Yield a table in a form, some rows at a time."""
    from millstream.client.render import ArrowRenderer
    from millstream.protocol.values.text import csv_header, csv_lines, json_lines

    parts = (piece for batch in table.to_batches() for piece, _ in results.pieces(batch))
    if form == ARROW:
        out = results.Out()
        renderer = ArrowRenderer(table.schema, out)  # type: ignore[arg-type]
        for piece in parts:
            renderer.batch(piece)
            yield out.taken()
        renderer.finish()
        yield out.taken()
    elif form == CSV:
        yield csv_header(table.schema)
        for piece in parts:
            yield csv_lines(piece)
    else:
        yield json.dumps(head)[:-1].encode() + b', "rows": ['
        comma = b""
        for piece in parts:
            yield comma + json_lines(piece)[:-1].replace(b"\n", b", ")
            comma = b", "
        yield b"]}"


# --- what there is ---


def _list_of(kind: str) -> HTTPRouteHandler:
    async def listed(request: Request[Any, Any, Any]) -> Response[Any]:
        async with asyncio.timeout(limits.ANSWER_S_MAX), _gateway(request).connections.one(_token(request)) as client:
            answer = await client.execute(LISTS[kind])
        return Response(b'{"rows": ' + results.array_of(answer.to_arrow()) + b"}", media_type=_JSON)

    listed.__doc__ = f"List the {kind}."
    spec = {**_refusals(504), 200: ResponseSpec(Listed, False, "What there is", _JSON)}
    return get(f"/v1/{kind}", operation_id=f"list{kind.title()}", responses=spec, name=f"list-{kind}")(listed)


def _one_of(kind: str) -> HTTPRouteHandler:
    async def described(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
        async with asyncio.timeout(limits.ANSWER_S_MAX), _gateway(request).connections.one(_token(request)) as client:
            shown = (await client.execute(LISTS[kind])).to_arrow()
            found = [index for index, one in enumerate(shown.column("name").to_pylist()) if one == name]
            if not found:
                raise MillstreamError("unknown_name", f"none of the {kind} is called {name}")
            columns = (await client.execute(f"DESCRIBE {quoted(name)}")).to_arrow()
        one = results.array_of(shown.slice(found[0], 1))[1:-1]
        return Response(b'{"shown": ' + one + b', "columns": ' + results.array_of(columns) + b"}", media_type=_JSON)

    described.__doc__ = f"Describe one of the {kind}: what SHOW says, and its columns."
    spec = {**_refusals(404, 504), 200: ResponseSpec(Described, False, "What it is", _JSON)}
    return get(f"/v1/{kind}/{{name:str}}", operation_id=f"describe{kind.title()}", responses=spec, name=f"describe-{kind}")(described)


# --- requests ---


def _gateway(request: Request[Any, Any, Any]) -> Gateway:
    found: Gateway = request.app.state.gateway
    return found


def _token(request: Request[Any, Any, Any]) -> str | None:
    return _gateway(request).connections.admitted(request.headers.get("authorization"))


def _media(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def _accepted(request: Request[Any, Any, Any], forms: Sequence[str]) -> str:
    """Return the form that Accept likes best. MillstreamError when it takes none."""
    found = Accept(request.headers.get("accept") or "*/*").best_match(list(forms))
    if found is None:
        raise MillstreamError("acceptable", "no form of the answer is one that Accept names", f"ask for {', '.join(forms)}")
    return found
