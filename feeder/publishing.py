"""A publisher inside one of Spark's tasks: it takes its rows in order, asks the driver's desk when they may go, and sends them itself.

Each has a name of its own at the server, under which that keeps how many of the publisher's rows it has taken. The rows of a publisher and
their order follow from the data and the number of publishers, so whoever takes its place after a death goes on behind those.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
from millstream.feeder.desk import MESSAGE_BYTES_MAX, dial, hang_up
from millstream.feeder.errors import FeederError
from millstream.feeder.numbering import ARRIVAL, STREAM
from millstream.feeder.pace import Ahead, Pacer, Tally, WallClock
from millstream.feeder.position import NamedRows, Position
from millstream.feeder.targets import Target

REPORT_NS = 200_000_000  # between two reports while nobody waits for one


@dataclass(frozen=True, slots=True)
class RemotePublisher:
    """What a task must know to publish. It is pickled; `connect` returns a client of the server's, wherever it is called."""

    desk: tuple[str, int]
    key: bytes
    name: str
    connect: Callable[[], Any]
    targets: tuple[Target, ...]
    paced: bool

    def in_task(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Publish the batches of the task that this runs in, whose partition is the publisher's number. Yields one row of it."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        sent = self.run(number, batches)
        yield pa.record_batch({"publisher": pa.array([number], pa.int32()), "sent": pa.array([sent], pa.int64())})

    def run(self, number: int, batches: Iterable[Any]) -> int:
        """Publish, and return how many rows were sent now. Raises what the client raised; FeederError when the driver is gone."""
        streams = tuple(target.stream for target in self.targets)
        with _Post(self.desk, self.key, number) as post, self.connect() as client:
            position = Position(streams, post.acked, f"{self.name}-{number}")
            named = NamedRows(client, streams, position)
            with Ahead(lambda: behind(batches, position.acked())) as ahead:
                first = next(ahead, None)
                elapsed_ns = post.begin(position, None if first is None else int(first.column(ARRIVAL)[0].as_py()))
                if first is None or elapsed_ns is None:
                    return 0
                origin_ns = WallClock().now_ns() - elapsed_ns
                totals = [0] * len(streams)  # of no use, as the driver finishes the streams
                pacer = Pacer(named, self.targets, totals, position, paced=self.paced, finish=False, origin_ns=origin_ns, turns=post)
                post.listen(pacer)
                pacer.run(chain([first], ahead))
                post.end()
        return pacer.tally.sent


class _Post:
    """The publisher's end of its line to the desk. Reports go out; a thread hears when it is this publisher's turn, or that all stop."""

    def __init__(self, desk: tuple[str, int], key: bytes, number: int) -> None:
        self._line = dial(desk, key)
        self._say({"publisher": number})
        self.acked: tuple[int, ...] = tuple(self._hear()["acked"])
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._position: Position | None = None
        self._tally = Tally()
        self._upto_ns = -1
        self._is_gone = self._is_booked = False
        self._reported_ns = 0
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _Post:
        """Hold the line."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        hang_up(self._line)
        if self._thread is not None:
            self._thread.join()
        self._line.close()

    def begin(self, position: Position, next_ns: int | None) -> int | None:
        """Say how far this publisher is and when its next row is due; return how late it is, in ns, once all have said so.

        None when the feed stops.
        """
        self._position = position
        self._say({"acked": position.acked(), "next_ns": next_ns})
        elapsed_ns = self._hear().get("elapsed_ns")
        return None if elapsed_ns is None else int(elapsed_ns)

    def listen(self, pacer: Pacer) -> None:
        """Hear from now on, and stop the pacer when that is said."""
        self._stop, self._tally = pacer.stop, pacer.tally
        self._thread = threading.Thread(target=self._listen, name="feeder-post", daemon=True)
        self._thread.start()

    def upto_ns(self, next_ns: int) -> int:
        """Report, wait until the row that is due at `next_ns` may be sent, and return up to which instant rows may."""
        now_ns = WallClock().now_ns()
        if next_ns > self._upto_ns or now_ns - self._reported_ns > REPORT_NS:
            self._report(next_ns)
            self._reported_ns = now_ns
        with self._changed:
            self._changed.wait_for(lambda: self._upto_ns >= next_ns or self._stop.is_set())
            return self._upto_ns

    def end(self) -> None:
        """Make the last report, and wait until it is taken. FeederError when the desk has gone before."""
        self._report(None)
        with self._changed:
            self._changed.wait_for(lambda: self._is_booked or self._is_gone)
        if not self._is_booked:
            raise FeederError("the driver of this feed has gone")

    def _report(self, next_ns: int | None) -> None:
        assert self._position is not None
        self._say({**asdict(self._tally), "acked": self._position.acked(), "next_ns": next_ns})

    def _say(self, said: dict[str, Any]) -> None:
        try:
            self._line.send_bytes(json.dumps(said).encode())
        except OSError:  # the desk is gone, which who listens finds out
            return

    def _hear(self) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads(self._line.recv_bytes(MESSAGE_BYTES_MAX))
        except (OSError, EOFError) as error:
            raise FeederError("the driver of this feed has gone") from error
        return said

    def _listen(self) -> None:
        try:
            while True:
                said = self._hear()
                with self._changed:
                    self._upto_ns = max(self._upto_ns, said.get("upto_ns", -1))
                    self._is_booked = said.get("booked", self._is_booked)
                    if said.get("stop"):
                        self._stop.set()
                    self._changed.notify_all()
        except FeederError:
            with self._changed:
                self._is_gone = True
                self._stop.set()
                self._changed.notify_all()


def behind(batches: Iterable[Any], acked: Sequence[int]) -> Iterator[Any]:
    """Yield batches without the first rows of each stream, as many as `acked` says; none that is empty."""
    left = list(acked)
    for batch in batches:
        kept = batch
        if any(left):
            streams = batch.column(STREAM).to_numpy()
            keep = np.ones(batch.num_rows, dtype=np.bool_)
            for stream, rows in enumerate(left):
                passed = np.flatnonzero(streams == stream)[:rows]
                keep[passed] = False
                left[stream] -= len(passed)
            kept = batch.take(np.flatnonzero(keep))
        if kept.num_rows:
            yield kept
