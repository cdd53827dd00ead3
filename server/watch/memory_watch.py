"""The bounds on memory that the settings mean, and the look at what all queries hold together (`engine/runtime/memory.py` judges)."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from millstream.engine.runtime.network import Network
from millstream.server.config import Config
from millstream.server.lean import trim_arenas

SHARE_OF_MACHINE = 0.5  # what is counted is about half of what the process then takes: garbage, buffers of the network, what steps make
SHARE_OF_SERVER = 0.5  # one query may be large on a machine of its own, and leaves room for others beside it
GIVEN_BACK_FROM = 32 * 2**20  # bytes that all queries together hold less than before
KEPT_PART = 4  # of a query's own bound: what of it results may be that are kept for resuming, so that most is left to its state
QUIET_LOOKS = 16  # calls of `look` for one look while queries come and go and no row does
MACHINE_BYTES_MIN = 512 * 2**20  # whatever a control group says: with less nothing runs at all
_CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_bytes() -> int:
    """Return the memory that this process may have: the machine's, or its control group's where that is less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for place in _CONTROL_GROUPS:
        try:
            said = Path(place).read_text("ascii").strip()
        except OSError:  # no control groups, or of the other version
            continue
        if said.isdigit():
            found.append(int(said))
    return max(MACHINE_BYTES_MIN, min(found))


def server_bytes_max(config: Config) -> int:
    """Return the bound on all queries together."""
    return config.server_memory_bytes_max or int(SHARE_OF_MACHINE * machine_bytes())


def query_bytes_max(config: Config) -> int:
    """Return the bound on a query that has none of its own."""
    return config.query_memory_bytes_max or int(SHARE_OF_SERVER * server_bytes_max(config))


class MemoryWatch:
    """Looks when rows or queries have come or gone since the last look, or much is held."""

    def __init__(self, network: Network, config: Config) -> None:
        self._network = network
        self._seen = (-1, -1)
        self._unlooked = 0
        self._held = 0
        self._ended = 0
        network.memory.server_bytes_max = server_bytes_max(config)
        network.memory.query_bytes_max = query_bytes_max(config)

    def look(self) -> bool:
        """Look, if anything can have changed; return whether much was let go of, so that the system should have it back."""
        memory, seen = self._network.memory, (self._network.ingress.next_seq, self._network.version)
        if seen == self._seen and not memory.is_busy:
            return False
        self._unlooked += 1
        if seen[0] == self._seen[0] and not memory.is_busy and self._unlooked < QUIET_LOOKS:
            return False  # queries came or went and no row did: with thousands of them a look is dear, and little can have changed
        self._seen, self._unlooked = seen, 0
        memory.look()
        has_ended = memory.ended != self._ended and not memory.has_leaving
        fell = has_ended or self._held - memory.total_bytes >= GIVEN_BACK_FROM
        self._held = memory.total_bytes
        if has_ended:
            self._ended = memory.ended
        return fell


def give_back() -> None:
    """Return to the system what allocators keep for later: they do not by themselves, and a query may have had most of the machine."""
    pa.default_memory_pool().release_unused()
    trim_arenas()
