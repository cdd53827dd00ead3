"""What was measured of outputs, by query and by class, as of one moment: for SHOW, EXPLAIN QOS and the metrics port."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from millstream.engine.data.graph import ClassId
from millstream.scheduler.measures import Measures, MeasuresReport, OutputReport
from millstream.server.host.queries import Query


class Measured:
    """A copy of the scheduler's measures and the moment it was made; reports are made on the thread that asks."""

    def __init__(self, measures: Measures, now_ns: int) -> None:
        self._measures = measures
        self._now_ns = now_ns

    @cached_property
    def report(self) -> MeasuresReport:
        """Everything together."""
        return self._measures.report(self._now_ns)

    @cached_property
    def _queries(self) -> dict[Any, OutputReport]:
        return self._measures.of_queries(self._now_ns)

    @cached_property
    def _classes(self) -> dict[ClassId, OutputReport]:
        return self._measures.of_classes(self._now_ns)

    def of_query(self, query: Query) -> OutputReport | None:
        """Return the measures of a query's present or last run; None when it has none (any more)."""
        return self._queries.get(query.last_id)

    def of_class(self, class_id: ClassId) -> OutputReport | None:
        """Return the measures of a class, None when no query of it has run."""
        return self._classes.get(class_id)
