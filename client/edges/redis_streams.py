"""Redis Streams: entries of a stream as a source, results as entries as a sink."""

from __future__ import annotations

from typing import Any

import redis
from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Lag, Message, MessageBatch, fitting
from millstream.client.edges.formats import encoder

BATCH_MAX = 1_000
ANSWER_S = 30.0
WAIT_MS_MIN = 1
TOKEN_KEY = "millstream:sink:{}"


def _connected(options: ConnectorOptions) -> Any:
    options.url(("redis", "rediss", "unix"), "redis://host:port/number")
    password = options.maybe("password")
    secrets = {"password": password} if password else {}
    client = redis.Redis.from_url(options.text("url"), socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, **secrets)
    try:
        client.ping()
    except redis.RedisError as error:
        raise ConnectorError(f"{options.name}: Redis cannot be reached: {error}") from None
    return client


class RedisSource:
    """Entries of the stream `key`. With `field` that field is the message; without, the fields are its values by name."""

    promise = "exactly once: the entry's id is kept with the rows (Redis itself keeps what its appendfsync says)"

    def __init__(self) -> None:
        self._client: Any = None

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Connect."""
        self._key = options.text("key")
        field = options.maybe("field")
        self._field = None if field is None else field.encode()
        self._last: Any = b"0-0" if position is None else position
        self._growth = options.growth
        self._ahead: list[Message] = []  # entries that were read and not given yet
        self._client = _connected(options)

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return the next entries."""
        if not self._ahead:
            block = max(WAIT_MS_MIN, int(wait_s * 1000)) if wait_s else None
            found = self._client.xread({self._key: self._last}, count=BATCH_MAX, block=block)
            if not found:
                return None
            ((_, entries),) = found
            self._ahead = [self._message(number, fields) for number, fields in entries]
        count = fitting(self._ahead, self._growth)
        messages, self._ahead = self._ahead[:count], self._ahead[count:]
        self._last = messages[-1].key
        return MessageBatch(messages, self._last)

    def _message(self, number: bytes, fields: dict[bytes, bytes]) -> Message:
        time_us = int(number.partition(b"-")[0]) * 1_000
        if self._field is not None:
            return Message(fields.get(self._field, b""), self._key, number, time_us)
        named = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
        return Message(named, self._key, number, time_us)

    def settled(self, position: bytes) -> None:
        """The entries stay; how long is the stream's own affair (XTRIM)."""

    def lag(self) -> Lag:
        """Return how many entries wait, at most 10,000 of which are counted."""
        waiting = self._client.xrange(self._key, b"(" + self._last, count=10_000)
        return Lag(len(waiting))

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()


class RedisSink:
    """Each result as an entry of the stream `key`, as JSON in `field` (by default `data`)."""

    promise = "exactly once: entries and resume token are written in one transaction (key millstream:sink:NAME)"

    def __init__(self) -> None:
        self._client: Any = None

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect, and return the token that Redis has."""
        self._key = options.text("key")
        self._field = options.text("field", "data")
        self._messages = encoder(options)
        self._length_max = int(options.number("length_max", 0))
        self._token_key = TOKEN_KEY.format(options.name)
        self._client = _connected(options)
        kept = self._client.get(self._token_key)
        return None if kept is None else kept.decode()

    def write(self, batch: Any, token: str) -> None:
        """Write entries and token in one transaction."""
        bound: dict[str, Any] = {"maxlen": self._length_max, "approximate": True} if self._length_max else {}
        pipeline = self._client.pipeline(transaction=True)
        for line in self._messages(batch):
            pipeline.xadd(self._key, {self._field: line}, **bound)
        pipeline.set(self._token_key, token)
        pipeline.execute()

    def flush(self) -> None:
        """Each write is done already."""

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
