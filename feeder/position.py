"""How far a feed has come, kept in a file so that a stopped one goes on where it was.

Rows are numbered the same way in every run of one plan, so the count of acked rows of each stream says all. The daemon keeps that count
too, with the rows; the file says under which name, and stands in where the daemon does not know. A fingerprint of the plan keeps a state
file from being used with other files, streams or arrivals.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millstream.client.data import to_table, trains_of
from millstream.feeder.errors import StateError
from millstream.feeder.numbering import STRIPE_ROWS

if TYPE_CHECKING:
    from millstream.feeder.job import FeedPlan

_VERSION = 1
SEND_ROWS_MAX = 65_536  # that are taken as one


class NamedStream(Protocol):
    """What is needed of the client's named publisher of one stream."""

    position: bytes | None

    def send(self, data: Any, *, position: bytes | None = None) -> int:
        """Send rows, and have the daemon keep a position with them."""
        ...

    def flush(self) -> Any:
        """Wait until they are settled, and return the ack."""
        ...


class Position:
    """Rows acked of each stream. Written by the pacing thread, read by others.

    `name` is the feed's own, made with its state file: under it the daemon remembers how far each stream is. Of a feed with several
    publishers, `parts` has the rows acked of each stream by each of them.
    """

    def __init__(
        self, streams: tuple[str, ...], acked: tuple[int, ...] | None = None, name: str | None = None, parts: Sequence[Sequence[int]] = ()
    ) -> None:
        self.parts = parts
        self.name = name or f"feed-{secrets.token_hex(8)}"
        self._streams = streams
        self._lock = threading.Lock()
        self._acked = list(acked) if acked is not None else [0] * len(streams)

    def advance(self, stream: int, rows: int) -> None:
        """Count rows of one stream as settled by the daemon."""
        with self._lock:
            self._acked[stream] += rows

    def set(self, stream: int, rows: int) -> None:
        """Go on behind the first `rows` rows of a stream."""
        with self._lock:
            self._acked[stream] = rows

    def set_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """Count what each publisher has had settled of each stream."""
        with self._lock:
            self.parts = parts
            self._acked = [sum(of_stream) for of_stream in zip(*parts, strict=True)]

    def acked(self) -> tuple[int, ...]:
        """Return the rows settled of each stream."""
        with self._lock:
            return tuple(self._acked)

    def save(self, path: Path, fingerprint: str) -> None:
        """Write the position; a crash in the middle leaves the file as it was."""
        acked = dict(zip(self._streams, self.acked(), strict=True))
        state: dict[str, Any] = {"version": _VERSION, "fingerprint": fingerprint, "name": self.name, "acked": acked}
        if self.parts:
            state["publishers"] = self.parts
        beside = path.with_name(path.name + ".new")
        try:
            beside.write_text(json.dumps(state, indent=1) + "\n")
            os.replace(beside, path)
        except OSError as error:
            raise StateError(f"cannot write the state file {path}: {error.strerror}") from error


class NamedRows:
    """Publishes under the feed's name: the daemon keeps how far each stream is beside its rows, so a crash at any moment repeats none.

    When made, it sets `position` to what the daemon knows. Where that knows nothing, as after a restart without durability, the state file
    counts.
    """

    def __init__(self, client: Any, streams: Sequence[str], position: Position) -> None:
        self._client = client
        self._position = position
        self._numbers = {stream: number for number, stream in enumerate(streams)}
        self._publishers: dict[str, NamedStream] = {stream: client.publisher(stream, position.name) for stream in streams}
        for stream, publisher in self._publishers.items():
            if publisher.position is not None:
                position.set(self._numbers[stream], int(publisher.position))

    def publish(self, stream: str, data: Any) -> Any:
        """Send a batch of rows and return the ack."""
        upto = self._position.acked()[self._numbers[stream]]
        publisher = self._publishers[stream]
        for part in trains_of(to_table(data), SEND_ROWS_MAX):
            upto += part.num_rows
            publisher.send(part, position=str(upto).encode())
        return publisher.flush()

    def finish(self, stream: str) -> Any:
        """End a stream."""
        return self._client.finish(stream)


def load_position(path: Path, fingerprint: str, streams: tuple[str, ...]) -> Position:
    """Read a position back; a file that is not there is the beginning. Raises StateError when it belongs to another feed."""
    if not path.exists():
        return Position(streams)
    try:
        state = json.loads(path.read_text())
        version, kept, acked = state["version"], state["fingerprint"], state["acked"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} is not a state file of a feed", hint="name another file with --state") from error
    if version != _VERSION:
        raise StateError(f"{path} has the version {version}, this feeder writes {_VERSION}")
    if kept != fingerprint or set(acked) != set(streams):
        raise StateError(
            f"{path} belongs to a feed of other files, streams or arrivals",
            hint="give the same options as before, or delete the file to start again",
        )
    counts = tuple(int(acked[stream]) for stream in streams)
    return Position(streams, counts, state.get("name"), state.get("publishers", ()))  # 0.1.0 wrote no name


def fingerprint_of(plan: FeedPlan) -> str:
    """Return a digest of all in a plan that decides which rows come in which order."""
    rule = plan.rule
    said: dict[str, Any] = {
        "paths": plan.paths,
        "read": repr(plan.read),
        "mapped": [sorted(plan.mapped.expressions.items()), plan.mapped.zone],
        "streams": [target.stream for target in plan.targets],
        "conditions": plan.conditions,
        "split_by": plan.split_by,
        "arrivals": [rule.kind, str(rule.profile), rule.seed, rule.burst, rule.speed, rule.shares],
    }
    if plan.publishers:  # which of them has which rows
        said["publishers"] = [plan.publishers, STRIPE_ROWS]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
