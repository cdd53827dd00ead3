"""What `measures` answers with: plain numbers, times in ms where the name says so."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.engine.data.graph import ClassId
from millstream.engine.data.records import dataclass


@dataclass(frozen=True, slots=True)
class OutputReport:
    """Measures of the outputs of one query, of a class, or of all."""

    outputs: int
    response_ms_mean: float
    response_ms_max: float
    response_ms_norm: float
    response_ms_p50: float
    response_ms_p95: float
    response_ms_p99: float
    slowdown_mean: float
    slowdown_max: float
    slowdown_norm: float
    tardiness_ms_mean: float
    tardiness_ms_max: float
    staleness: float
    utility: float
    missed_deadlines: int


@dataclass(frozen=True, slots=True)
class MeasuresReport:
    """All measures at one moment. `output` is about all outputs together: its utility is the average per tuple, its staleness that
    over queries. `scheduling_share` is the share of elapsed time spent deciding.
    """

    output: OutputReport
    staleness_weighted: float
    utility_per_application: float
    memory_bytes_mean: float
    memory_bytes_max: int
    throughput_mean: float
    throughput_deviation: float
    scheduling_share: float
    loss_share: Mapping[ClassId, float]
