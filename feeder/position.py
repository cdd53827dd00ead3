"""How far a feed has come, kept in a file so that a stopped one goes on where it was.

Rows are numbered the same way in every run of one plan, so the count of acked rows of each stream says all. A fingerprint of the
plan keeps a state file from being used with other files, streams or arrivals.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

from millstream.feeder.errors import StateError
from millstream.feeder.job import FeedPlan

_VERSION = 1


class Position:
    """Rows acked of each stream. Written by the pacing thread, read by others."""

    def __init__(self, streams: tuple[str, ...], acked: tuple[int, ...] | None = None) -> None:
        self._streams = streams
        self._lock = threading.Lock()
        self._acked = list(acked) if acked is not None else [0] * len(streams)

    def advance(self, stream: int, rows: int) -> None:
        """Count rows of one stream as settled by the daemon."""
        with self._lock:
            self._acked[stream] += rows

    def acked(self) -> tuple[int, ...]:
        """Return the rows settled of each stream."""
        with self._lock:
            return tuple(self._acked)

    def save(self, path: Path, fingerprint: str) -> None:
        """Write the position; a crash in the middle leaves the file as it was."""
        state = {"version": _VERSION, "fingerprint": fingerprint, "acked": dict(zip(self._streams, self.acked(), strict=True))}
        beside = path.with_name(path.name + ".new")
        try:
            beside.write_text(json.dumps(state, indent=1) + "\n")
            os.replace(beside, path)
        except OSError as error:
            raise StateError(f"cannot write the state file {path}: {error.strerror}") from error


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
    return Position(streams, tuple(int(acked[stream]) for stream in streams))


def fingerprint_of(plan: FeedPlan) -> str:
    """Return a digest of all in a plan that decides which rows come in which order."""
    rule = plan.rule
    said = {
        "paths": plan.paths,
        "read": repr(plan.read),
        "mapped": [sorted(plan.mapped.expressions.items()), plan.mapped.zone],
        "streams": [target.stream for target in plan.targets],
        "conditions": plan.conditions,
        "split_by": plan.split_by,
        "arrivals": [rule.kind, str(rule.profile), rule.seed, rule.burst, rule.speed, rule.shares],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
