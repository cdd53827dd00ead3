"""One budget for what all peers make the server hold: frames that are half received, requests that wait, answers that nobody reads.

When they hold more together than the budget, somebody's connection is closed: of those that hold more than an even share the one that has
done so longest. So no peer that holds less than its share pays for others, and whoever lets a frame or an answer lie pays before those who
only just began. With a peer's connection its memory is free at once.
"""

from __future__ import annotations

from typing import Protocol

from millstream.server.net.limits import COUNTED_BYTES_MIN


class Holder(Protocol):
    """A connection."""

    def evict(self, held_bytes: int, bytes_max: int) -> None:
        """Close, and let go of what is held: all connections together may hold `bytes_max`."""
        ...


class PeerMemory:
    """What peers hold. The event loop's thread alone; `bytes_max` is the setting `connections_bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self.evicted_total = 0
        self._held: dict[Holder, int] = {}  # in the order in which they began to hold something

    def note(self, holder: Holder, held_bytes: int) -> None:
        """Note how much a connection holds now, and make room if all hold too much: also at the cost of this one."""
        if held_bytes < COUNTED_BYTES_MIN:
            held_bytes = 0
        before = self._held.get(holder, 0)
        if held_bytes == before:
            return
        self.total_bytes += held_bytes - before
        if held_bytes:
            self._held[holder] = held_bytes
        else:
            del self._held[holder]
        while self.total_bytes > self.bytes_max:
            self._evict_one()

    def _evict_one(self) -> None:
        share = self.bytes_max // len(self._held)
        holder, held_bytes = next(found for found in self._held.items() if found[1] > share)  # there is one: all hold more than all shares
        del self._held[holder]
        self.total_bytes -= held_bytes
        self.evicted_total += 1
        holder.evict(held_bytes, self.bytes_max)
