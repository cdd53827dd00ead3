"""Results on their way from the worker that made them to the event loop: who made so many that its publishers should wait.

Counted by query, so that publishers wait for what comes of their own stream alone: however many results another stream's queries give,
the rest go on.
"""

from __future__ import annotations

from collections.abc import Iterable

WAITING_TRAINS_MAX = 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
LOOKED_AT_FROM = 32  # items on the bridge; fewer are soon delivered, and every read would count them


class WaitingResults:
    """Those of one query. `add` is called by whoever runs its sink, one at a time, `take` on the loop's thread: no lock is needed."""

    __slots__ = ("_bytes_added", "_bytes_taken", "_trains_added", "_trains_taken")

    def __init__(self) -> None:
        self._trains_added = self._bytes_added = 0
        self._trains_taken = self._bytes_taken = 0

    @property
    def trains(self) -> int:
        """Trains that the loop has yet to take."""
        return self._trains_added - self._trains_taken

    @property
    def bytes(self) -> int:
        """Bytes of their rows."""
        return self._bytes_added - self._bytes_taken

    def add(self, size_bytes: int) -> None:
        """Note a train on its way."""
        self._bytes_added += size_bytes
        self._trains_added += 1

    def take(self, size_bytes: int) -> None:
        """Note that the loop has a train."""
        self._bytes_taken += size_bytes
        self._trains_taken += 1


def are_too_many(waiting: Iterable[WaitingResults]) -> bool:
    """Whether the results of these queries together are more than may be on their way."""
    trains = size_bytes = 0
    for one in waiting:
        trains += one.trains
        size_bytes += one.bytes
    return trains > WAITING_TRAINS_MAX or size_bytes > WAITING_BYTES_MAX
