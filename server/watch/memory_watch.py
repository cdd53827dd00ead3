"""The bounds on memory that the settings mean, and the look at what all queries hold together (`engine/runtime/memory.py` judges)."""

from __future__ import annotations

import os
from pathlib import Path

from millstream.engine.runtime.network import Network
from millstream.server.config import Config

SHARE_OF_MACHINE = 0.5  # what is counted is about half of what the process then takes: garbage, buffers of the network, what steps make
SHARE_OF_SERVER = 0.5  # one query may be large on a machine of its own, and leaves room for others beside it
KEPT_PART = 4  # of a query's own bound: what of it results may be that are kept for resuming, so that most is left to its state
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
    """Looks when rows have come since the last look, or much is held."""

    def __init__(self, network: Network, config: Config) -> None:
        self._network = network
        self._seen = -1
        network.memory.server_bytes_max = server_bytes_max(config)
        network.memory.query_bytes_max = query_bytes_max(config)

    def look(self) -> None:
        """Look, if anything can have changed."""
        memory, seen = self._network.memory, self._network.ingress.next_seq
        if seen != self._seen or memory.is_busy:
            self._seen = seen
            memory.look()
