"""Publishes rows when they are due: one thread, fed ahead of time by another, so that pacing never waits for Spark.

All rows of a stream that are due go out together in one publish, so a late feed catches up by itself and a slow one sends each row
alone. The order of one stream is kept; rows of different streams that fall due between two looks at the clock go stream by
stream. Waiting for credits happens inside the client's publish; it shows as lag, which is measured and never hidden by skipping.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from millstream.feeder.arrivals import Int64Array
from millstream.feeder.numbering import ARRIVAL, INDEX, STREAM
from millstream.feeder.position import Position
from millstream.feeder.targets import Target

AHEAD_BATCHES_MAX = 32  # batches ready before they are due: memory against a pause of Spark
REASONS_KEPT_MAX = 10
NS_PER_S = 1_000_000_000


class RowPublisher(Protocol):
    """What the pacing thread needs of the client."""

    def publish(self, stream: str, data: Any) -> Any:
        """Send rows and return the ack: `accepted`, and `rejected` with a `reason` each."""
        ...

    def finish(self, stream: str) -> Any:
        """End a stream."""
        ...


@dataclass(slots=True)
class Tally:
    """What has happened so far. Written by the pacing thread only; others may read it at any time."""

    sent: int = 0
    accepted: int = 0
    rejected: int = 0
    lag_ns: int = 0
    lag_ns_max: int = 0
    started_ns: int | None = None
    ended_ns: int | None = None
    reasons: list[str] = field(default_factory=list)


class Clock(Protocol):
    """Time and waiting, so that tests can do both at once."""

    def now_ns(self) -> int:
        """Return a time that never goes back, in ns."""
        ...

    def wait_ns(self, duration_ns: int, stop: threading.Event) -> None:
        """Wait so long, or until `stop` is set."""
        ...


class Turns(Protocol):
    """Who says when it is this publisher's turn, where there are several."""

    def upto_ns(self, next_ns: int) -> int:
        """Wait until the row that is due at `next_ns` may be sent, or all stop; return up to which instant rows may be sent now."""
        ...


class WallClock:
    """The real clock."""

    def now_ns(self) -> int:
        """Return the monotonic clock."""
        return time.monotonic_ns()

    def wait_ns(self, duration_ns: int, stop: threading.Event) -> None:
        """Wait on the event, so that stopping is immediate."""
        stop.wait(duration_ns / NS_PER_S)


class Pacer:
    """Takes batches in order of arrival and publishes each row when it is due (`paced`), or at once.

    `totals` are the rows of each stream there are to send altogether: a stream is finished with its last row, unless `finish` is off or
    all its rows were refused: they can then be mended and sent again.
    One of several publishers is given when their time begins (`origin_ns`, on the clock) and their `turns`.
    """

    def __init__(
        self,
        publisher: RowPublisher,
        targets: Sequence[Target],
        totals: Sequence[int],
        position: Position,
        *,
        paced: bool,
        finish: bool = True,
        clock: Clock | None = None,
        origin_ns: int | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._publisher = publisher
        self._names = [target.stream for target in targets]
        self._columns = [[column.name for column in target.columns] for target in targets]
        self._totals = list(totals)
        self._position = position
        self._paced = paced
        self._finish = finish
        self._refused = [0] * len(self._names)
        self._clock = clock or WallClock()
        self.tally = Tally()
        self.stop = threading.Event()
        self._origin_ns = origin_ns
        self._turns = turns

    def now_ns(self) -> int:
        """Return the time on the pacer's clock."""
        return self._clock.now_ns()

    def run(self, batches: Iterable[Any]) -> None:
        """Publish all batches, or as far as `stop` lets it, and finish the streams that are complete."""
        self._finish_complete(range(len(self._names)))
        for batch in batches:
            self._run_batch(batch)
            if self.stop.is_set():
                break
        self.tally.ended_ns = self._clock.now_ns()

    def _run_batch(self, batch: Any) -> None:
        arrivals: Int64Array = batch.column(ARRIVAL).to_numpy()
        streams = batch.column(STREAM).to_numpy()
        data = batch.drop_columns([ARRIVAL, STREAM, INDEX])
        if not len(arrivals):
            return
        if self.tally.started_ns is None:
            # Time begins with the first row: after a resume nobody waits again for what was fed before.
            self.tally.started_ns = self._clock.now_ns()
            if self._origin_ns is None:
                resumes = any(self._position.acked())
                self._origin_ns = self.tally.started_ns - (int(arrivals[0]) if resumes else 0)
        assert self._origin_ns is not None
        origin_ns, at = self._origin_ns, 0
        while at < len(arrivals) and not self.stop.is_set():
            due = self._due(arrivals, at, origin_ns)
            if due == at:
                self._clock.wait_ns(int(arrivals[at]) + origin_ns - self._clock.now_ns(), self.stop)
                continue
            self._send(data, streams, at, due)
            at = due

    def _due(self, arrivals: Int64Array, at: int, origin_ns: int) -> int:
        """Return behind which row to stop sending now; `at` when none may be sent yet."""
        upto_ns = None if self._turns is None else self._turns.upto_ns(int(arrivals[at]))
        if not self._paced:
            return len(arrivals) if upto_ns is None else max(at, int(np.searchsorted(arrivals, upto_ns, side="right")))
        elapsed_ns = self._clock.now_ns() - origin_ns
        due = int(np.searchsorted(arrivals, elapsed_ns if upto_ns is None else min(elapsed_ns, upto_ns), side="right"))
        if due > at:
            self.tally.lag_ns = elapsed_ns - int(arrivals[at])
            self.tally.lag_ns_max = max(self.tally.lag_ns_max, self.tally.lag_ns)
        return max(due, at)

    def _send(self, data: Any, streams: Any, start: int, stop: int) -> None:
        part = streams[start:stop]
        present = np.unique(part).tolist()
        for stream in present:
            rows = data.slice(start, stop - start) if len(present) == 1 else data.take(np.flatnonzero(part == stream) + start)
            self._publish(stream, rows.select(self._columns[stream]))
        self._finish_complete(present)

    def _publish(self, stream: int, rows: Any) -> None:
        ack = self._publisher.publish(self._names[stream], rows)
        tally = self.tally
        tally.sent += rows.num_rows
        tally.accepted += ack.accepted
        tally.rejected += rows.num_rows - ack.accepted
        self._refused[stream] += rows.num_rows - ack.accepted
        if len(tally.reasons) < REASONS_KEPT_MAX:
            told = dict.fromkeys([*tally.reasons, *(f"{self._names[stream]}: {rejected.reason}" for rejected in ack.rejected)])
            tally.reasons[:] = list(told)[:REASONS_KEPT_MAX]
        self._position.advance(stream, rows.num_rows)

    def _finish_complete(self, streams: Iterable[int]) -> None:
        acked = self._position.acked()
        for stream in streams:
            is_useless = 0 < acked[stream] == self._refused[stream]
            if self._finish and acked[stream] == self._totals[stream] and not is_useless:
                self._publisher.finish(self._names[stream])


class Ahead:
    """Reads an iterator in a thread of its own, a bounded number of items ahead."""

    _END = object()

    def __init__(self, items: Callable[[], Iterable[Any]], ahead_max: int = AHEAD_BATCHES_MAX) -> None:
        self._items = items
        self._queue: queue.Queue[Any] = queue.Queue(ahead_max)
        self._closed = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="feeder-ahead")

    def __enter__(self) -> Ahead:
        """Begin to read."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading and wait for the thread."""
        self._closed.set()
        while self._thread.is_alive():
            self._drain()
            self._thread.join(0.05)

    def __iter__(self) -> Ahead:
        """Iterate over what was read."""
        return self

    def __next__(self) -> Any:
        """Return the next item; raises what the source raised."""
        item = self._queue.get()
        if item is not self._END:
            return item
        self._queue.put(self._END)
        if self._error is not None:
            raise self._error
        raise StopIteration

    def _read(self) -> None:
        try:
            for item in self._items():
                self._queue.put(item)
                if self._closed.is_set():
                    break
        except BaseException as error:  # handed to the consumer, which raises it
            self._error = error
        self._queue.put(self._END)

    def _drain(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
