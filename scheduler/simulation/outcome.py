"""What a simulated run gave: every result with its times, memory samples, counts; and the papers' measures over them.

Measures are those of `scheduler.measures`, computed by the same functions (`scheduler.outputs`, `scheduler.qos`) but over the columns of a
whole run: quantiles are exact, and each measure can be had per result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from millstream.scheduler import outputs
from millstream.scheduler.outputs import FloatColumn, IntColumn
from millstream.scheduler.qos import late_from_ns, utilities
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SimulatedQuery:
    """What measures need of a query: T in ns, its graph, weight, class, relative deadline."""

    name: str
    ideal_ns: float
    qos: tuple[tuple[float, float], ...]
    weight: float
    class_id: int
    deadline_ns: int


@dataclass(frozen=True)
class RunOutcome:
    """One run. `query`, `arrival_ns` and `finished_ns` have one entry a result, in the order results left."""

    policy: str
    queries: tuple[SimulatedQuery, ...]
    query: IntColumn
    arrival_ns: IntColumn
    finished_ns: IntColumn
    sample_ns: IntColumn
    sample_bytes: IntColumn
    span_ns: int
    end_ns: int
    arrived: int
    decisions: int
    orders: int
    busy_ns: int
    scheduling_ns: int
    waiting: int = 0
    notes: dict[str, float] = field(default_factory=dict)

    # ---- columns

    @property
    def response_ns(self) -> IntColumn:
        """R of every result."""
        return outputs.responses_ns(self.arrival_ns, self.finished_ns)

    @property
    def slowdown(self) -> FloatColumn:
        """H of every result."""
        ideal = np.array([one.ideal_ns for one in self.queries])
        return outputs.slowdowns(self.response_ns, ideal[self.query])

    @property
    def utility(self) -> FloatColumn:
        """Utility of every result at its response time."""
        found = np.zeros(len(self.query))
        latencies = self.response_ns.astype(np.float64)
        graphs: dict[tuple[tuple[float, float], ...], list[int]] = {}
        for index, one in enumerate(self.queries):
            graphs.setdefault(one.qos, []).append(index)
        for points, members in graphs.items():
            mask = np.isin(self.query, members)
            found[mask] = utilities(points, latencies[mask])
        return found

    # ---- measures

    def average_by_application(self, column: FloatColumn) -> float:
        """Average first per query with results, then over queries."""
        sums = np.bincount(self.query, weights=column, minlength=len(self.queries))
        counts = np.bincount(self.query, minlength=len(self.queries))
        made = counts > 0
        return float((sums[made] / counts[made]).mean()) if made.any() else 0.0

    def missed(self) -> NDArray[np.bool_]:
        """Tell for every result whether it came after the point of its graph where utility begins to fall."""
        late_ns = np.array([late_from_ns(one.qos) for one in self.queries])
        return np.asarray(self.response_ns > late_ns[self.query], dtype=np.bool_)

    def staleness(self, *, weighted: bool = False) -> float:
        """Average over queries of the share of time in which a waiting tuple would make a result (Sharaf 2007, eq. 4.1–4.3)."""
        stale = outputs.stale_ns(self.query, self.arrival_ns, self.finished_ns, len(self.queries))
        weights = np.array([one.weight for one in self.queries]) if weighted else np.ones(len(self.queries))
        return float((stale / max(self.end_ns, 1) * weights).sum() / weights.sum()) if len(weights) else 0.0

    def memory(self) -> tuple[int, float]:
        """Return the greatest and the time-weighted average of the sampled bytes in queues."""
        if not len(self.sample_ns):
            return 0, 0.0
        if self.sample_ns[-1] == self.sample_ns[0]:
            return int(self.sample_bytes.max()), float(self.sample_bytes.mean())
        mean = np.trapezoid(self.sample_bytes, self.sample_ns) / (self.sample_ns[-1] - self.sample_ns[0])
        return int(self.sample_bytes.max()), float(mean)

    def per_second(self) -> IntColumn:
        """Return the results of every second from 0 on."""
        return np.bincount(self.finished_ns // 1_000_000_000)

    def summary(self) -> dict[str, float]:
        """Return every measure under its name with the unit last."""
        response, slowdown = self.response_ns / 1e6, self.slowdown
        memory_max, memory_mean = self.memory()
        seconds = max(self.end_ns, 1) / 1e9
        found: dict[str, float] = {"results": float(len(response))}
        for name, column in (("response_ms", response), ("slowdown", slowdown)):
            found.update(_spread(name, column))
        found["memory_bytes_max"], found["memory_bytes_mean"] = float(memory_max), memory_mean
        utility = self.utility
        found["utility_per_tuple"] = float(utility.mean()) if len(utility) else 0.0
        found["utility_per_application"] = self.average_by_application(utility)
        found["missed"] = float(self.missed().sum())
        found["throughput_per_s"] = len(response) / seconds
        found["throughput_deviation_per_s"] = float(self.per_second().std()) if len(response) else 0.0
        found["staleness"] = self.staleness()
        found["decisions"], found["orders"] = float(self.decisions), float(self.orders)
        found.update(self.notes)
        found["busy_share"] = self.busy_ns / max(self.end_ns, 1)
        found["decision_share"] = self.scheduling_ns / max(self.scheduling_ns + self.busy_ns, 1)
        return found


def _spread(name: str, column: NDArray[np.generic]) -> dict[str, float]:
    values = np.asarray(column, dtype=np.float64)
    if not len(values):
        return {f"{name}_{part}": 0.0 for part in ("mean", "max", "l2", "p50", "p95", "p99")}
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return {
        f"{name}_mean": float(values.mean()),
        f"{name}_max": float(values.max()),
        f"{name}_l2": float(np.sqrt((values * values).sum())),
        f"{name}_p50": float(p50),
        f"{name}_p95": float(p95),
        f"{name}_p99": float(p99),
    }
