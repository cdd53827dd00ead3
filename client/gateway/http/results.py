"""A query's results as the body of a response: server-sent events, JSON lines or an Arrow stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from millstream.client.errors import MillstreamError
from millstream.client.gateway.http import limits
from millstream.client.gateway.http.publishing import ARROW, JSON_LINES
from millstream.client.receipts import with_token
from millstream.client.subscriber import Lost, Subscription

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS = "text/event-stream"
FORMS = (EVENTS, JSON_LINES, ARROW)
MARK = "~"  # in an event's id, between a resume token and how many rows of the next batch have come
OVER = "end"  # in place of that number: nothing more will come
_RETRY_MS = 1_000
_LAST = ("finished", "dropped")  # ends after which a reader need not come again


def place_of(event_id: str) -> tuple[str, int | None]:
    """Return the resume token of an event's id, and how many rows behind it have come; None when nothing more will.

    MillstreamError (`invalid`) for what is no id of ours.
    """
    token, mark, rest = event_id.rpartition(MARK)
    if not mark:
        return event_id, 0
    if rest == OVER:
        return token, None
    if not (rest.isascii() and rest.isdigit() and len(rest) < 10):
        raise MillstreamError("invalid", "Last-Event-ID is none of this gateway's", "leave it out, or send the last id as it came")
    return token, int(rest)


async def events(subscription: Subscription, passed: int) -> AsyncIterator[bytes]:
    """Yield results as events: `data` is a JSON array of rows, `id` the exact place behind them. The first `passed` rows are left out.

    Event `gap` tells of lost results, `end` of the last one and why.
    """
    token = subscription.resume_token or ""
    first = f"{token}{MARK}{passed}" if passed else token
    yield f"retry: {_RETRY_MS}\nid: {first}\n\n".encode()
    while True:
        try:
            item = await asyncio.wait_for(subscription.next_item(), limits.SILENCE_S)
        except TimeoutError:
            yield b": no results\n\n"
            continue
        if item is None:
            break
        if isinstance(item, Lost):
            seen = min(passed, item.rows)
            passed -= seen
            if item.rows > seen:
                yield _event("gap", json.dumps({"rows": item.rows - seen, "reason": item.reason}))
            continue
        after = subscription.resume_token or ""
        if passed >= item.num_rows:
            passed -= item.num_rows
        else:
            for piece, behind in pieces(item, passed):
                event_id = after if behind == item.num_rows else f"{token}{MARK}{behind}"
                yield b"id: " + event_id.encode() + b"\ndata: " + array_of(piece) + b"\n\n"
            passed = 0
        token = after
    end = subscription.end
    assert end is not None
    told = json.dumps({"reason": end.reason, "message": end.message, "counts": end.counts})
    yield _event("end", told, f"{token}{MARK}{OVER}" if end.reason in _LAST else None)


def _event(name: str, data: str, event_id: str | None = None) -> bytes:
    return (f"id: {event_id}\n" if event_id is not None else "").encode() + f"event: {name}\ndata: {data}\n\n".encode()


def array_of(rows: Any) -> bytes:
    """Return a batch or table as a JSON array on one line: JSON text has no bare line ends, so those between rows become commas."""
    from millstream.protocol.values.text import json_lines

    batches = rows.to_batches() if hasattr(rows, "to_batches") else [rows]
    return b"[" + b"".join(map(json_lines, batches))[:-1].replace(b"\n", b", ") + b"]"


def pieces(batch: pa.RecordBatch, start: int = 0) -> list[tuple[pa.RecordBatch, int]]:
    """Return a batch from row `start` on, cut into pieces of bounded length, each with the row behind it."""
    size = limits.ROWS_AT_ONCE
    return [(batch.slice(at, size), min(at + size, batch.num_rows)) for at in range(start, batch.num_rows, size)]


async def lines(subscription: Subscription, tokens: bool) -> AsyncIterator[bytes]:
    """Yield results as JSON, a row a line. MillstreamError when results were lost, which breaks the response off."""
    from millstream.protocol.values.text import json_lines

    async for batch in _whole(subscription, tokens):
        for piece, _ in pieces(batch):
            yield json_lines(piece)


async def arrow(subscription: Subscription, tokens: bool) -> AsyncIterator[bytes]:
    """Yield results as an Arrow stream. MillstreamError when results were lost, which breaks the response off."""
    import pyarrow as pa

    out = Out()
    schema = subscription.schema
    assert schema is not None
    bare = schema.remove_metadata()
    if tokens:
        bare = with_token(pa.RecordBatch.from_pylist([], schema=bare)).schema
    writer = pa.ipc.new_stream(pa.PythonFile(out, mode="w"), bare)
    yield out.taken()
    async for batch in _whole(subscription, tokens):
        for piece, _ in pieces(batch):
            writer.write_batch(piece.replace_schema_metadata(None))
            yield out.taken()
    writer.close()
    yield out.taken()


async def _whole(subscription: Subscription, tokens: bool) -> AsyncIterator[pa.RecordBatch]:
    while (item := await subscription.next_item()) is not None:
        if isinstance(item, Lost):
            raise MillstreamError("slow", f"{item.rows} results were lost: {item.reason}", "events tell of gaps and go on")
        yield with_token(item) if tokens else item
    assert subscription.end is not None
    if subscription.end.reason not in (*_LAST, "stopped"):
        raise MillstreamError("closed", f"the results have ended: {subscription.end.message or subscription.end.reason}")


class Out:
    """A file that hands out what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, part: Any) -> int:
        """Keep a part."""
        self._parts.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole
