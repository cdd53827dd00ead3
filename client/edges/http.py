"""HTTP: server-sent events or a page that is polled as a source, a webhook as a sink."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
from millstream.client.edges.contract import (
    BATCH_BYTES_MAX,
    ConnectorError,
    ConnectorOptions,
    Growth,
    Lag,
    Message,
    MessageBatch,
    fitting,
)
from millstream.client.edges.formats import check_is_text, encoder
from millstream.protocol.connectors import LINES_ONLY, MODES

CONNECT_S = 10.0
ANSWER_S = 30.0
LEAVE_S = 2.0
SILENCE_S = 120.0  # of an event stream, before it is opened again
BODY_BYTES_MAX = 16 * 2**20
EVENT_BYTES_MAX = 2**20
ID_BYTES_MAX = 512  # of an event: it is part of a position
WAITING_MAX = 1_000
BATCH_MAX = 500
RETRY_S = (0.25, 1.0, 4.0)
PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers after which the same request may be sent again


def _client(options: ConnectorOptions, read_s: float) -> httpx.Client:
    token = options.maybe("token")
    headers = _headers({} if token is None else {"Authorization": f"Bearer {token}"})
    authority = options.maybe("tls_ca")
    verify: dict[str, Any] = {}
    if authority is not None:
        import ssl

        try:
            verify = {"verify": ssl.create_default_context(cafile=authority)}
        except OSError as error:
            raise ConnectorError(f"{options.name}: tls_ca = '{authority}' cannot be used: {error.strerror or error}") from None
    return httpx.Client(headers=headers, timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=read_s), follow_redirects=False, **verify)


def _headers(values: dict[str, str]) -> httpx.Headers:
    """Return headers whose values may have any characters: ids and tags come from the other side, names from statements."""
    return httpx.Headers(values, encoding="utf-8")


def _url(options: ConnectorOptions) -> str:
    return options.url(("http", "https"), "http://… or https://…").geturl()


class HttpSource:
    """Server-sent events of `url` (`mode = 'events'`), or its page every `poll` seconds (`mode = 'poll'`), each time it has changed.

    A page that is a JSON array is a message an item.
    """

    promise = "at least once: an event stream goes on behind the last id, if the other side has ids; a page counts each time it has changed"

    def __init__(self) -> None:
        self._reader: _Events | _Page | None = None

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Begin to listen, or to poll."""
        url, mode = _url(options), options.text("mode", "events")
        poll_s = options.number("poll", 10.0, 0.01)
        before = {} if position is None else json.loads(position)
        if mode not in MODES:
            raise ConnectorError(f"{options.name}: mode must be 'events' or 'poll'")
        is_events = mode == "events"
        if is_events:
            check_is_text(options, "an event")
        client = _client(options, SILENCE_S if is_events else ANSWER_S)
        self._reader = (
            _Events(client, url, options.growth, before.get("id")) if is_events else _Page(client, url, options.growth, poll_s, before)
        )

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return what has come."""
        assert self._reader is not None
        return self._reader.read(wait_s)

    def settled(self, position: bytes) -> None:
        """Nobody is to be told."""

    def lag(self) -> Lag:
        """Return how many messages wait here; of others nothing is known."""
        return Lag(0 if self._reader is None else self._reader.waiting)

    def close(self) -> None:
        """Leave."""
        if self._reader is not None:
            self._reader.close()


class _Events:
    """An event stream, read by a thread; what has come waits here, bounded."""

    def __init__(self, client: httpx.Client, url: str, growth: Growth, last_id: str | None) -> None:
        self._client, self._url, self._growth, self._id = client, url, growth, last_id
        self._stream: Any = None  # of httpcore: the connection
        self._arrived: queue.Queue[tuple[Message, str | None]] = queue.Queue(WAITING_MAX)
        self._held: list[tuple[Message, str | None]] = []
        self._ended = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._listen, name="http events", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._arrived.qsize() + len(self._held)

    def _listen(self) -> None:
        headers = _headers({"Accept": "text/event-stream", **({} if self._id is None else {"Last-Event-ID": self._id})})
        try:
            with self._client.stream("GET", self._url, headers=headers, extensions={"trace": self._traced}) as answer:
                if answer.status_code == 204:
                    self._trouble = "the other side says that no more events will come (204)"
                elif answer.status_code != 200:
                    self._trouble = f"{self._url} answers {answer.status_code}"
                else:
                    for event in events(answer.iter_bytes()):
                        self._put(event)
                    self._trouble = "the event stream has ended"
        except (httpx.HTTPError, ConnectorError) as error:
            self._trouble = f"{self._url}: {type(error).__name__} {error}"

    def _traced(self, event: str, details: dict[str, Any]) -> None:
        """Remember the connection, so that `close` can end a read that waits: closing a socket does not."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = details["return_value"]

    def _put(self, event: tuple[Message, str | None]) -> None:
        while True:
            if self._ended.is_set():
                raise ConnectorError("closed")
            with contextlib.suppress(queue.Full):  # until there is room, or nobody reads any more
                self._arrived.put(event, timeout=0.2)
                return

    def read(self, wait_s: float) -> MessageBatch | None:
        with contextlib.suppress(queue.Empty):
            if not self._held:
                self._held.append(self._arrived.get(timeout=wait_s) if wait_s else self._arrived.get_nowait())
            while len(self._held) < BATCH_MAX:
                self._held.append(self._arrived.get_nowait())
        if not self._held:
            if not self._thread.is_alive():
                raise ConnectorError(self._trouble or "the event stream has ended")
            return None
        count = fitting([message for message, _ in self._held], self._growth)
        found, self._held = self._held[:count], self._held[count:]
        self._id = found[-1][1]
        return MessageBatch([message for message, _ in found], json.dumps({"id": self._id}, ensure_ascii=False).encode())

    def close(self) -> None:
        self._ended.set()
        if self._stream is not None:
            with contextlib.suppress(OSError):  # the other side has closed it
                self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(LEAVE_S)
        self._client.close()


def events(chunks: Iterator[bytes]) -> Iterator[tuple[Message, str | None]]:
    """Yield the messages of an event stream (WHATWG HTML, 9.2), each with the last id. ConnectorError for one that is too long."""
    rest, data, name, last_id, size = b"", [], "", None, 0
    for chunk in chunks:
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        size += len(chunk)
        for line in lines:
            if line:
                field, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if field == b"data":
                    data.append(value)
                elif field == b"event":
                    name = value.decode("utf-8", "replace")
                elif field == b"id" and b"\0" not in value:
                    if len(value) > ID_BYTES_MAX:
                        raise ConnectorError(f"the id of an event has {len(value)} bytes, {ID_BYTES_MAX} are the most")
                    last_id = value.decode("utf-8", "replace")
                continue
            if data:
                yield Message(b"\n".join(data), name), last_id
            data, name, size = [], "", len(rest)
        if size > EVENT_BYTES_MAX + len(chunk):
            raise ConnectorError(f"an event has more than {EVENT_BYTES_MAX} bytes")


class _Page:
    """A page that is asked for again and again."""

    def __init__(self, client: httpx.Client, url: str, growth: Growth, poll_s: float, before: dict[str, Any]) -> None:
        self._client, self._url, self._growth, self._poll_s = client, url, growth, poll_s
        self._etag, self._digest = before.get("etag"), before.get("digest")
        self._due = time.monotonic()
        self._held: list[Message] = []

    @property
    def waiting(self) -> int:
        return len(self._held)

    def read(self, wait_s: float) -> MessageBatch | None:
        deadline = time.monotonic() + wait_s
        while not self._held:
            now = time.monotonic()
            if now >= self._due:
                self._due = now + self._poll_s
                self._ask()
            elif now >= deadline:
                return None
            else:
                time.sleep(min(deadline, self._due) - now)  # a page tells nobody that it has changed
        count = fitting(self._held, self._growth)
        found, self._held = self._held[:count], self._held[count:]
        place = {} if self._held else {"etag": self._etag, "digest": self._digest}  # within a page: all of it again
        return MessageBatch(found, json.dumps(place).encode())

    def _ask(self) -> None:
        import hashlib

        headers = _headers({"Accept": "application/json, */*;q=0.5", **({"If-None-Match": self._etag} if self._etag else {})})
        body = bytearray()
        try:
            with self._client.stream("GET", self._url, headers=headers) as answer:
                if answer.status_code == 304:
                    return
                if answer.status_code != 200:
                    raise ConnectorError(f"{self._url} answers {answer.status_code}")
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > BODY_BYTES_MAX:
                        raise ConnectorError(f"{self._url} has more than {BODY_BYTES_MAX} bytes")
                self._etag = answer.headers.get("etag", "")[:256] or None
        except httpx.HTTPError as error:
            raise ConnectorError(f"{self._url}: {type(error).__name__} {error}") from None
        digest = hashlib.sha256(body).hexdigest()
        if digest != self._digest:
            self._digest = digest
            self._held = _items(bytes(body))

    def close(self) -> None:
        self._client.close()


def _items(body: bytes) -> list[Message]:
    """Return a JSON array as a message an item, anything else as one message."""
    if body.lstrip().startswith(b"["):
        with contextlib.suppress(ValueError, RecursionError):
            return [Message(json.dumps(item).encode()) for item in json.loads(body)]
    return [Message(body)]


class HttpSink:
    """Results as JSON lines in a POST to `url`, each request with an Idempotency-Key; tried again when the other side has no time."""

    promise = "at least once: a request without an answer is sent again; its Idempotency-Key is the same as long as its rows are"

    def __init__(self) -> None:
        self._client: httpx.Client | None = None

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Take the address; nobody is asked before there is something to say."""
        self._name, self._target, self._before = options.name, _url(options), token or ""
        self._messages = encoder(options, LINES_ONLY)
        self._client = _client(options, ANSWER_S)
        return token

    def write(self, batch: Any, token: str) -> None:
        """Send the rows, at most `BATCH_BYTES_MAX` bytes in a request, and return when they were taken."""
        part: list[bytes] = []
        size = sent = 0
        for line in self._messages(batch):
            if part and size + len(line) > BATCH_BYTES_MAX:
                self._post(part, token, sent)
                sent, part, size = sent + len(part), [], 0
            part.append(line)
            size += len(line)
        self._post(part, token, sent)
        self._before = token

    def _post(self, lines: list[bytes], token: str, sent: int) -> None:
        assert self._client is not None
        # Results may be cut into other batches after a fault, so a key has both ends of its batch and which of its rows these are.
        key = f"{self._name}/{self._before}/{token}/{sent}+{len(lines)}"
        headers = _headers({"Content-Type": "application/x-ndjson", "Idempotency-Key": key})
        body = b"\n".join(lines) + b"\n"
        for pause_s in (*RETRY_S, None):
            try:
                status = self._client.post(self._target, content=body, headers=headers).status_code
                trouble = f"answers {status}"
                if 200 <= status < 300:
                    return
                if status not in PASSING:
                    raise ConnectorError(f"{self._target} {trouble}; it refuses these rows")
            except httpx.HTTPError as error:
                trouble = f"cannot be reached: {type(error).__name__} {error}"
            if pause_s is None:
                raise ConnectorError(f"{self._target} {trouble}, {len(RETRY_S) + 1} times in a row")
            time.sleep(pause_s)  # the other side has no time just now

    def flush(self) -> None:
        """Each write is done already."""

    def close(self) -> None:
        """Leave."""
        if self._client is not None:
            self._client.close()
