"""How classes stand under their load manager: for SHOW CLASSES and the metrics port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millstream.engine.graph import ClassId
from millstream.scheduler.load.contract import ClassLoad
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from millstream.server.engine_host import EngineHost

NS_PER_MS = 1e6
COLUMNS = (("load", "DOUBLE"), ("headroom", "DOUBLE"), ("quota", "DOUBLE"), ("drop_percent", "DOUBLE"), ("response_ms", "DOUBLE"))
"""Load and headroom in seconds of work a second, quota as a share of the processor, drop and response as of the last cycle."""

_FAMILIES = (
    ("load", "Seconds of work a second that come for the class, shed or not", "load"),
    ("headroom", "Seconds of work a second that the class can have", "headroom"),
    ("quota", "Share of the processor that the class is given", "share"),
    ("drop_ratio", "Share of the input of the class that is shed now", "drop"),
    ("backlog_seconds", "Work that waits before operators of the class", "backlog_s"),
)


def cells(found: ClassLoad | None) -> tuple[object, ...]:
    """Return the values of `COLUMNS`; NULL for a class that has no query, or where nobody looks."""
    if found is None:
        return (None,) * len(COLUMNS)
    response_ms = None if found.response_ns is None else found.response_ns / NS_PER_MS
    return (found.load, found.headroom, found.share, 100.0 * found.drop, response_ms)


def families(host: EngineHost, loads: Mapping[ClassId, ClassLoad]) -> Iterator[Any]:
    """Yield a family for each of the values, by class."""
    known = [(name, loads[node.id]) for name, node in host.class_nodes.items() if node.id in loads]
    for name, words, field in _FAMILIES:
        family = GaugeMetricFamily(f"millstream_class_{name}", words, labels=["class"])
        for class_name, one in known:
            family.add_metric([class_name], getattr(one, field))
        yield family
