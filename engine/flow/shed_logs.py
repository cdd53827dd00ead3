"""The logs of the classes that may be shed, and the drop ratios asked for: what a network knows of shedding."""

from __future__ import annotations

from collections.abc import Callable

from millstream.engine.data.graph import ClassId
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.shedding import ShedKey, ShedLog, UtilityOrder
from millstream.engine.flow.sources import Ingress, Source


class ShedLogs:
    """One log per stream, class and way of choosing rows. All of it under the ingress lock. `when_full`: logs shed by themselves too."""

    def __init__(self, ingress: Ingress, *, when_full: bool) -> None:
        self._ingress = ingress
        self._when_full = when_full
        self._ratios: dict[tuple[str, ClassId], float] = {}

    def open(self, source: Source, key: ShedKey, make_log: Callable[[], OutputLog], utility: UtilityOrder | None) -> ShedLog:
        """Make the log of a class on a stream; it begins where the stream stands, at the ratio that was last asked for."""
        with self._ingress.lock:
            log = make_log()
            log.hi, log.watermark_us = source.log.hi, source.watermark_us
            log.producer = source
            log.idle, log.ended = source.idle, source.ended
            ratio = self._ratios.get((source.definition.name, key[0]), 0.0)
            shed = source.shed_logs[key] = ShedLog(log, ratio, when_full=self._when_full, utility=utility)
        return shed

    def set_ratio(self, source: Source, class_id: ClassId, ratio: float) -> None:
        """Shed this share of the stream's rows before the class, from the next chunk on."""
        with self._ingress.lock:
            self._ratios[source.definition.name, class_id] = ratio
            for shed in source.shed_logs_of(class_id):
                shed.ratio = ratio

    def press(self, source: Source, class_id: ClassId, ratio: float) -> None:
        """Shed at least this share because readers of the class's results are behind."""
        with self._ingress.lock:
            for shed in source.shed_logs_of(class_id):
                shed.pressure = ratio
