"""What stands at one arrival number: states of streams, contents of tables, and what durable queries hold. A place to replay from.

A checkpoint is taken where a segment of the journal begins, so that the segments before it can be let go of. Nothing runs while it is
copied; what waits in the queues is worked off in the copy (engine/runtime/fork.py), so that it says what the queries hold once they have
seen all that arrived before.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.engine.data.records import dataclass
from millstream.engine.runtime import fork
from millstream.engine.runtime.fork import OperatorState
from millstream.engine.state.forms import StateError, state_record
from millstream.server.errors import StoreError
from millstream.server.journal.checkpoint_files import checkpoint_path, read_body, write_body
from millstream.server.journal.disk import Disk
from millstream.server.journal.known import way_out

if TYPE_CHECKING:
    from millstream.engine.flow.sources import Source
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query


@state_record("query_state", 1)
@dataclass(slots=True)
class QueryCheckpoint:
    """What a query held: its operators' states in the order of its plan, and how many result rows it had given."""

    rows: int
    operators: list[OperatorState]


@state_record("checkpoint", 2, added={"producers": dict})
@dataclass(slots=True)
class Checkpoint:
    """What stands at the arrival number `at`. Streams and tables by their numbers in the catalogue, queries by their keys (`Query.key`).

    `producers` are the named publishers of each stream (`Producers.state`).
    """

    at: int
    sources: dict[int, dict[str, Any]] = field(default_factory=dict)
    tables: dict[int, list[Any]] = field(default_factory=dict)
    queries: dict[str, QueryCheckpoint] = field(default_factory=dict)
    producers: dict[int, dict[str, list[Any]]] = field(default_factory=dict)


def take(host: EngineHost, queries: list[Query], numbers: dict[str, int], roll: Any) -> Checkpoint | None:
    """Copy what stands now and begin a new segment there; None when rows wait for the disk, so that this is no place to stand."""
    with host.runtime.still(), host.network.ingress.lock:
        sources = {name: host.network.sources[name] for name in numbers if name in host.network.sources}
        if any(s.open_reservations for s in sources.values()):
            return None
        at = host.network.ingress.next_seq
        made = Checkpoint(at)
        for name, source in sources.items():
            made.sources[numbers[name]] = _source_state(source)
            if name in host.intakes and host.intakes[name].has_producers:
                made.producers[numbers[name]] = host.intakes[name].producers.state()
            if source.table is not None:
                content = source.table.content(at)
                made.tables[numbers[name]] = content.columns()
        running = [q for q in queries if q.id is not None]
        rows = {q.name: q.rows_out for q in running}
        copied = fork.take([host.network.queries[q.id].blueprint for q in running], at)  # type: ignore[index]
        roll(at)
    states, delivered = copied.advance()
    for query, operators in zip(running, states, strict=True):
        made.queries[query.key] = QueryCheckpoint(rows[query.name] + delivered.get(query.name, 0), operators)
    return made


def _source_state(source: Source) -> dict[str, Any]:
    return {
        "watermark_us": source.watermark_us,
        "last_arrival_us": source.last_arrival_us,
        "idle": source.idle,
        "ended": source.ended,
        "future_skew": source.future_skew,
    }


def write(disk: Disk, directory: Path, identity: bytes, checkpoint: Checkpoint) -> None:
    """Put a checkpoint on disk, whole or not at all. OSError when the disk refuses."""
    write_body(disk, directory, identity, checkpoint.at, body_of(checkpoint))


def body_of(checkpoint: Checkpoint) -> bytes:
    """Return the body of a checkpoint's file. It has no check of its own, as the file has one."""
    from millstream.engine.state.encoding import encode  # loaded by the first checkpoint that is written, or read

    return encode(checkpoint, check=False)


def read(disk: Disk, directory: Path, identity: bytes, at: int) -> Checkpoint | None:
    """Return the checkpoint at an arrival number, None when there is none. StoreError when it is damaged or a newer release's.

    What queries held is left as it is written: each query's is read when that takes it up.
    """
    body = read_body(disk, directory, identity, at)
    if body is None:
        return None
    from millstream.engine.state.decoding import decode

    try:
        found = decode(body, check=False)
    except StateError as error:
        path = checkpoint_path(directory, at)
        raise StoreError(f"{path}: the checkpoint cannot be read: {error}", hint="start the release that wrote it") from error
    if not isinstance(found, Checkpoint):
        raise StoreError(f"{checkpoint_path(directory, at)}: this is the state of something else", hint=way_out(directory))
    return found
