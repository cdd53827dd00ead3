"""Real arrival processes that are carried with the package (`data/README.md` says where they come from)."""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import SimulationError
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Trace:
    """A carried trace: its file, the nanoseconds of one unit of its gaps, and what it is."""

    file: str
    unit_ns: int
    summary: str


TRACES: Mapping[str, Trace] = MappingProxyType(
    {
        "dec-pkt-1": Trace("dec_pkt_1_udp_gaps_us.xz", 1_000, "wide-area UDP packets, DEC, March 1995"),
        "bc-paug89": Trace("bc_paug89_gaps_us.xz", 1_000, "Ethernet frames, Bellcore, August 1989"),
        "mavpad": Trace("mavpad_2005_02_12_gaps_s.xz", 1_000_000_000, "sensor events of a smart apartment, one day in 2005"),
    }
)


def gaps_ns(name: str) -> NDArray[np.int64]:
    """Return the gaps of a carried trace in ns; raises `SimulationError` for an unknown name."""
    trace = TRACES.get(name)
    if trace is None:
        raise SimulationError(f"unknown trace '{name}'", hint="known are " + ", ".join(TRACES))
    data = resources.files("millstream.scheduler.simulation").joinpath("data", trace.file).read_bytes()
    planes = np.frombuffer(lzma.decompress(data), dtype=np.uint8).reshape(4, -1)
    gaps = np.ascontiguousarray(planes.T).view("<u4").reshape(-1)
    return gaps.astype(np.int64) * trace.unit_ns
