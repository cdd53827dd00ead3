"""Metric families of how classes stand under their load manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import ClassLoad
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost

_FAMILIES = (
    ("load", "Seconds of work a second that come for the class, shed or not", "load"),
    ("headroom", "Seconds of work a second that the class can have", "headroom"),
    ("quota", "Share of the processor that the class is given", "share"),
    ("drop_ratio", "Share of the input of the class that is shed now", "drop"),
    ("backlog_seconds", "Work that waits before operators of the class", "backlog_s"),
)


def load_families(host: EngineHost, loads: Mapping[ClassId, ClassLoad]) -> Iterator[Any]:
    """Yield a family for each of the values, by class."""
    known = [(name, loads[node.id]) for name, node in host.class_nodes.items() if node.id in loads]
    for name, words, field in _FAMILIES:
        family = GaugeMetricFamily(f"millstream_class_{name}", words, labels=["class"])
        for class_name, one in known:
            family.add_metric([class_name], getattr(one, field))
        yield family
