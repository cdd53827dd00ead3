"""A daemon that takes everything, a clock that jumps, and batches as Spark hands them over."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from millstream.feeder.numbering import ARRIVAL, INDEX, STREAM
from millstream.feeder.targets import Target, TargetColumn


@dataclass
class Rejection:
    index: int
    reason: str


@dataclass
class Ack:
    accepted: int
    rejected: list[Rejection] = field(default_factory=list)


class JumpingClock:
    """Waiting takes no time but the time it says; each look costs `look_ns`."""

    def __init__(self, look_ns: int = 0) -> None:
        self.time_ns = 1_000
        self.look_ns = look_ns
        self.waits: list[int] = []

    def now_ns(self) -> int:
        self.time_ns += self.look_ns
        return self.time_ns

    def wait_ns(self, duration_ns: int, stop: threading.Event) -> None:
        self.waits.append(duration_ns)
        self.time_ns += max(0, duration_ns)


class FakeDaemon:
    """Keeps what was published with the time it came. `on_publish` may take time, refuse rows or fail."""

    def __init__(self, clock: JumpingClock | None = None, on_publish: Any = None) -> None:
        self.clock = clock
        self.on_publish = on_publish
        self.published: list[tuple[str, list[dict[str, Any]], int]] = []
        self.finished: list[str] = []
        self.order: list[str] = []

    def publish(self, stream: str, data: pa.RecordBatch) -> Ack:
        self.published.append((stream, data.to_pylist(), 0 if self.clock is None else self.clock.time_ns))
        self.order.append(f"publish {stream}")
        ack = self.on_publish(stream, data) if self.on_publish else None
        return ack or Ack(data.num_rows)

    def finish(self, stream: str) -> None:
        self.finished.append(stream)
        self.order.append(f"finish {stream}")

    def values(self, stream: str) -> list[int]:
        return [row["v"] for name, rows, _ in self.published if name == stream for row in rows]


def target(name: str, columns: str = "v BIGINT", event_time: str | None = None) -> Target:
    return Target(name, tuple(TargetColumn(*column.split()) for column in columns.split(", ")), event_time)


def arriving(rows: list[tuple[int, int, int]]) -> pa.RecordBatch:
    """Return a batch of (stream, value, arrival in ns) rows."""
    streams, values, arrivals = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "v": pa.array(values, pa.int64()),
            STREAM: pa.array(streams, pa.int32()),
            INDEX: pa.array(range(len(rows)), pa.int64()),
            ARRIVAL: pa.array(arrivals, pa.int64()),
        }
    )


class NamedDaemon:
    """Takes sends of named publishers, of several threads, each with its position. `on_send` may fail before or after that."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []
        self.positions: dict[tuple[str, str], bytes] = {}
        self.finished: list[str] = []
        self.lock = threading.Lock()
        self.before: Any = lambda name: None
        self.after: Any = lambda name: None

    def __enter__(self) -> NamedDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        """Stay."""

    def publisher(self, stream: str, name: str) -> NamedSends:
        return NamedSends(self, stream, name)

    def finish(self, stream: str) -> None:
        self.finished.append(stream)

    def values(self, stream: str) -> list[int]:
        return [value for name, value in self.rows if name == stream]


class NamedSends:
    def __init__(self, daemon: NamedDaemon, stream: str, name: str) -> None:
        self._daemon, self._stream, self._name, self._sent = daemon, stream, name, 0
        self.position = daemon.positions.get((stream, name))

    def send(self, data: Any, *, position: bytes) -> int:
        self._daemon.before(self._name)
        with self._daemon.lock:
            self._daemon.rows += [(self._stream, value) for value in data.column("v").to_pylist()]
            self._daemon.positions[self._stream, self._name] = position
        self._daemon.after(self._name)
        self._sent += data.num_rows
        return int(data.num_rows)

    def flush(self) -> Ack:
        sent, self._sent = self._sent, 0
        return Ack(sent)
