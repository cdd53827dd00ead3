"""Follows the queries while the streams are fed: results as they come, and how long each took from publish to here.

The latency of a batch is the time from the publish that brought the row which caused it (the batch's `position`, an arrival number
of the server) to its coming here: the whole way over both connections.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from millstream.feeder.demo.queries import DemoQuery

POSITION = b"millstream.position"
NS_PER_MS = 1_000_000


class PublishTimes:
    """Publishes through a client and remembers when each arrival number was sent."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._positions: list[int] = []
        self._times_ns: list[int] = []
        self.rows: dict[str, int] = {}

    def publish(self, stream: str, data: Any) -> Any:
        """Publish; the ack says up to which arrival number."""
        sent_ns = time.monotonic_ns()
        ack = self._client.publish(stream, data)
        self.rows[stream] = self.rows.get(stream, 0) + ack.accepted
        if ack.position is not None:
            self._times_ns.append(sent_ns)
            self._positions.append(ack.position)
        return ack

    def finish(self, stream: str) -> None:
        """End a stream."""
        self._client.finish(stream)

    def sent_ns(self, position: int) -> int | None:
        """Return when the row with this arrival number was sent; None if no publish brought it (a control, for example)."""
        at = bisect.bisect_left(self._positions, position)
        return self._times_ns[at] if at < len(self._times_ns) else None


@dataclass(slots=True)
class Followed:
    """The results of one query so far, and how its subscription ended."""

    query: DemoQuery
    subscription: Any
    batches: list[Any] = field(default_factory=list)
    received: list[tuple[int, int]] = field(default_factory=list)  # (arrival number, time here in ns) of each batch that has one
    rows: int = 0
    error: BaseException | None = None

    def follow(self) -> None:
        """Take batches until the query ends."""
        try:
            for batch in self.subscription:
                now_ns = time.monotonic_ns()
                position = (batch.schema.metadata or {}).get(POSITION)
                if position is not None and batch.num_rows:
                    self.received.append((int(position), now_ns))
                self.batches.append(batch)
                self.rows += batch.num_rows
        except BaseException as error:  # raised again by whoever waits for the thread
            self.error = error

    def answer(self) -> list[tuple[Any, ...]]:
        """Return all rows received."""
        return [tuple(row.values()) for batch in self.batches for row in batch.to_pylist()]

    def last(self) -> str:
        """Return the newest row in words."""
        for batch in reversed(self.batches):
            if batch.num_rows:
                return "  ".join(
                    "NULL" if value is None else _short(value) for value in batch.slice(batch.num_rows - 1).to_pylist()[0].values()
                )
        return ""

    def latency_ms(self, times: PublishTimes) -> tuple[float, float] | None:
        """Return the 50th and 99th percentile over the batches; None when none can be told."""
        found = [now_ns - sent for position, now_ns in self.received if (sent := times.sent_ns(position)) is not None]
        if not found:
            return None
        middle, tail = np.percentile(np.array(found) / NS_PER_MS, [50, 99])
        return float(middle), float(tail)


class Watch:
    """Follows several queries, a thread each. Enter it before the client it follows with: its threads end with that client."""

    def __init__(self) -> None:
        self.followed: list[Followed] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Watch:
        """Nothing to do yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the threads; the client is closed by now."""
        for thread in self._threads:
            thread.join()

    def follow(self, client: Any, queries: Sequence[DemoQuery]) -> None:
        """Subscribe to all the queries, then begin to take results."""
        self.followed = [Followed(query, client.subscribe(query.name)) for query in queries]
        self._threads = [threading.Thread(target=one.follow, name=f"demo-{one.query.name}") for one in self.followed]
        for thread in self._threads:
            thread.start()

    def join(self, seconds_max: float) -> list[str]:
        """Wait for all queries to end; return the names of those that did not in time. Raises what a subscription raised."""
        until = time.monotonic() + seconds_max
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        for one in self.followed:
            if one.error is not None:
                raise one.error
        return [one.query.name for one, thread in zip(self.followed, self._threads, strict=True) if thread.is_alive()]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value.strftime("%d %b %H:%M") if hasattr(value, "strftime") else str(value)
