"""What stands at one arrival number: states of streams, contents of tables, and what durable queries hold. A place to replay from.

A checkpoint is taken where a segment of the journal begins, so that the segments before it can be let go of. Nothing runs while it is
copied; what waits in the queues is worked off in the copy (engine/runtime/fork.py), so that it says what the queries hold once they have
seen all that arrived before.
"""

from __future__ import annotations

import pickle
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.engine.data.records import dataclass
from millstream.engine.runtime import fork
from millstream.engine.runtime.fork import OperatorState
from millstream.server.errors import StoreError
from millstream.server.journal.checkpoint_files import checkpoint_path, read_body, write_body
from millstream.server.journal.disk import Disk

if TYPE_CHECKING:
    from millstream.engine.flow.sources import Source
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query


@dataclass(slots=True)
class QueryCheckpoint:
    """What a query held: its operators' states in the order of its plan, and how many result rows it had given."""

    rows: int
    operators: list[OperatorState]


@dataclass(slots=True)
class Checkpoint:
    """What stands at the arrival number `at`. Streams and tables by their numbers in the catalogue, queries by their keys (`Query.key`)."""

    at: int
    sources: dict[int, dict[str, Any]] = field(default_factory=dict)
    tables: dict[int, list[Any]] = field(default_factory=dict)
    queries: dict[str, QueryCheckpoint] = field(default_factory=dict)


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
    """Put a checkpoint on disk, whole or not at all."""
    write_body(disk, directory, identity, checkpoint.at, pickle.dumps(checkpoint, protocol=5))


def read(disk: Disk, directory: Path, identity: bytes, at: int) -> Checkpoint | None:
    """Return the checkpoint at an arrival number, None when there is none. StoreError when it is damaged or of another version.

    Of one that another release wrote, streams and tables at least: what queries held is theirs alone.
    """
    body = read_body(disk, directory, identity, at)
    if body is None:
        return None
    try:
        found: Checkpoint = pickle.loads(body)
    except Exception as error:  # a class that this release does not have, or not so; what that raises is not a closed list
        from millstream.server.durability.first_checkpoints import take_over  # it builds on this file

        taken = take_over(body)
        if taken is None:
            path = checkpoint_path(directory, at)
            raise StoreError(f"{path}: another release wrote the checkpoint ({error})", hint="start the release that wrote it") from error
        found = pickle.loads(taken)
    return found
