"""What a connector must keep, as checks that anybody can run on their own: call them from a test, with the other side at hand.

    check_source(MySource, options, fill)      # fill(n) makes the other side hold n messages
    check_sink(MySink, options, kept)          # kept() returns the rows that the other side has

Each raises AssertionError that says which rule was broken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from millstream.client.edges.contract import ConnectorOptions, Message, MessageBatch

POSITION_BYTES_MAX = 1_024
WAIT_S = 0.05
PATIENCE_S = 20.0
MESSAGES = 40


def _promise_of(connector: Any) -> bool:
    """Return whether it promises exactly once."""
    promise = connector.promise
    assert promise.startswith(("exactly once", "at least once")), f"promise must begin with 'exactly once' or 'at least once': {promise!r}"
    return bool(promise.startswith("exactly once"))


def _read(source: Any, count: int) -> list[MessageBatch]:
    """Return the batches with the next `count` messages."""
    found: list[MessageBatch] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(len(batch.messages) for batch in found) < count:
        assert time.monotonic() < deadline, f"only {sum(len(b.messages) for b in found)} of {count} messages came in {PATIENCE_S:g} s"
        batch = source.read(WAIT_S)
        if batch is not None:
            assert batch.messages, "a batch without messages: return None instead"
            assert isinstance(batch.position, bytes), "a position is bytes"
            assert len(batch.position) <= POSITION_BYTES_MAX, f"a position has at most {POSITION_BYTES_MAX} bytes"
            found.append(batch)
    return found


def check_source(make: Callable[[], Any], options: Mapping[str, Any], fill: Callable[[int], object]) -> None:
    """Check that a source gives every message, in one order, and goes on behind any of its positions."""
    exactly = _promise_of(make())
    half = MESSAGES // 2

    def opened(position: bytes | None) -> Any:
        source = make()
        source.open(ConnectorOptions("kit", options), position)
        return source

    first = opened(None)
    try:
        fill(half)
        batches = _read(first, half)
        if not exactly:
            first.settled(batches[-1].position)  # a broker may send no more before that
        fill(half)
        batches += _read(first, half)
        messages = [message for batch in batches for message in batch.messages]
        assert len(messages) == MESSAGES, f"{len(messages)} messages of {MESSAGES}"
        assert all(isinstance(message, Message) for message in messages), "messages must be of the class Message"
        began = time.monotonic()
        assert first.read(WAIT_S) is None, "a message that nobody sent"
        assert time.monotonic() - began < PATIENCE_S, "read takes much longer than it was given"
        assert time.monotonic() - began > WAIT_S / 2, "read comes back before its time, so an idle source would take a whole processor"
        first.lag()
        if not exactly:
            first.settled(batches[-1].position)
    finally:
        first.close()
    if not exactly:
        again = opened(batches[-1].position)
        try:
            assert again.read(WAIT_S) is None, "a message came again that was settled"
        finally:
            again.close()
        return
    seen = 0
    for batch in batches:
        seen += len(batch.messages)
        again = opened(batch.position)
        try:
            rest = [m.value for b in _read(again, MESSAGES - seen) for m in b.messages]
        finally:
            again.close()
        assert rest == [m.value for m in messages[seen:]], f"behind the position of message {seen} other messages come"


def check_sink(make: Callable[[], Any], options: Mapping[str, Any], kept: Callable[[], list[int]]) -> None:
    """Check that a sink keeps what it was given, and the token with it. `kept` returns the values of the column `v`, as they are kept."""
    import pyarrow as pa

    exactly = _promise_of(make())

    def opened(token: str | None) -> tuple[Any, str | None]:
        sink = make()
        try:
            return sink, sink.open(ConnectorOptions("kit", options), token)
        except BaseException:
            sink.close()
            raise

    sink, token = opened(None)
    try:
        assert token is None, f"a new sink has no token, and this one says {token!r}"
        for number in range(3):
            sink.write(pa.record_batch({"v": pa.array([2 * number, 2 * number + 1], pa.int64())}), f"token {number}")
            sink.flush()
    finally:
        sink.close()
    assert kept() == list(range(6)), f"of the rows 0 to 5 it kept {kept()}"
    sink, token = opened("token 2")
    try:
        assert token == "token 2", f"opened again it says {token!r}, and the last token was 'token 2'"
        if exactly:
            other, remembered = opened(None)
            other.close()
            assert remembered == "token 2", "a sink that promises exactly once keeps its token itself"
        sink.write(pa.record_batch({"v": pa.array([6], pa.int64())}), "token 3")
        sink.flush()
    finally:
        sink.close()
    assert kept() == list(range(7)), f"opened again it kept {kept()}"
