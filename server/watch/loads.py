"""How classes stand under their load manager, as columns of SHOW CLASSES; `load_families.py` has the metrics."""

from __future__ import annotations

from millstream.scheduler.load.contract import ClassLoad

NS_PER_MS = 1e6
COLUMNS = (("load", "DOUBLE"), ("headroom", "DOUBLE"), ("quota", "DOUBLE"), ("drop_percent", "DOUBLE"), ("response_ms", "DOUBLE"))
"""Load and headroom in seconds of work a second, quota as a share of the processor, drop and response as of the last cycle."""


def cells(found: ClassLoad | None) -> tuple[object, ...]:
    """Return the values of `COLUMNS`; NULL for a class that has no query, or where nobody looks."""
    if found is None:
        return (None,) * len(COLUMNS)
    response_ms = None if found.response_ns is None else found.response_ns / NS_PER_MS
    return (found.load, found.headroom, found.share, 100.0 * found.drop, response_ms)
