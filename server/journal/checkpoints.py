"""What stands at one arrival number: states of streams, contents of tables, and what durable queries hold. A place to replay from.

A checkpoint is taken where a segment of the journal begins, so that the segments before it can be let go of. Nothing runs while it is
copied; what waits in the queues is worked off in the copy (engine/runtime/fork.py), so that it says what the queries hold once they have
seen all that arrived before.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.engine.data.records import dataclass
from millstream.engine.runtime import fork
from millstream.engine.runtime.fork import OperatorState
from millstream.server.errors import StoreError
from millstream.server.journal.disk import PART_SUFFIX, Disk, write_whole
from millstream.server.journal.disk import read as read_file
from millstream.server.journal.known import way_out

if TYPE_CHECKING:
    from millstream.engine.runtime.sources import Source
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query

VERSION = 2
MAGIC = b"MSTC"
_SUFFIX = ".checkpoint"
_HEAD = struct.Struct("<4sI16sqqI")  # magic, version, identity, arrival number, body length, body check
_CHECK = struct.Struct("<I")


@dataclass(slots=True)
class QueryState:
    """What a query held: its operators' states in the order of its plan, and how many result rows it had given."""

    rows: int
    operators: list[OperatorState]


@dataclass(slots=True)
class Checkpoint:
    """See the module's text. Streams and tables by their numbers in the catalogue, queries by their keys (`key_of`)."""

    at: int
    sources: dict[int, dict[str, Any]] = field(default_factory=dict)
    tables: dict[int, list[Any]] = field(default_factory=dict)
    queries: dict[str, QueryState] = field(default_factory=dict)


def key_of(query: Query) -> str:
    """Return the name under which a query's run is remembered: derived streams have names of their own."""
    from millstream.server.host.queries import QueryKind

    return f"stream {query.name}" if query.kind is QueryKind.DERIVED else f"query {query.name}"


def checkpoint_path(directory: Path, at: int) -> Path:
    """Return the file of the checkpoint at an arrival number."""
    return directory / f"{at:020d}{_SUFFIX}"


def checkpoint_bases(disk: Disk, directory: Path) -> list[int]:
    """Return the arrival numbers of the checkpoints in a directory."""
    stems = [name.removesuffix(_SUFFIX) for name in disk.names(directory) if name.endswith(_SUFFIX)]
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isascii() and stem.isdigit())


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
        made.queries[key_of(query)] = QueryState(rows[query.name] + delivered.get(query.name, 0), operators)
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
    body = pickle.dumps(checkpoint, protocol=5)
    head = _HEAD.pack(MAGIC, VERSION, identity, checkpoint.at, len(body), zlib.crc32(body))
    write_whole(disk, checkpoint_path(directory, checkpoint.at), [head, _CHECK.pack(zlib.crc32(head)), body])


def read(disk: Disk, directory: Path, identity: bytes, at: int) -> Checkpoint | None:
    """Return the checkpoint at an arrival number, None when there is none. StoreError when it is damaged or of another version."""
    path = checkpoint_path(directory, at)
    if not disk.exists(path):
        return None
    content = read_file(disk, path)
    if content[:4] == MAGIC and len(content) >= 8 and (version := int.from_bytes(content[4:8], "little")) != VERSION:
        raise StoreError(f"{path} has version {version} and this server reads {VERSION}", hint="start the release that wrote it")
    head, body = content[: _HEAD.size], content[_HEAD.size + _CHECK.size :]
    if content[_HEAD.size : _HEAD.size + _CHECK.size] != _CHECK.pack(zlib.crc32(head)):
        raise StoreError(f"{path}, byte 0: the checkpoint's head is damaged", hint=way_out(directory))
    magic, _, found_identity, found_at, length, check = _HEAD.unpack(head)
    if magic != MAGIC or found_identity != identity or found_at != at:
        raise StoreError(f"{path} belongs to another data directory or place", hint=way_out(directory))
    if len(body) != length or zlib.crc32(body) != check:
        raise StoreError(f"{path}, byte {_HEAD.size + _CHECK.size}: the checkpoint is damaged", hint=way_out(directory))
    found: Checkpoint = pickle.loads(body)
    return found


def forget_before(disk: Disk, directory: Path, at: int) -> None:
    """Remove checkpoints before an arrival number, and what a failed try left half written."""
    for name in disk.names(directory):
        if name.endswith(_SUFFIX + PART_SUFFIX):
            disk.unlink(directory / name)
    for base in checkpoint_bases(disk, directory):
        if base < at:
            disk.unlink(checkpoint_path(directory, base))
