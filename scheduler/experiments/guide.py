"""The pictures of the documents: one of each policy, and one of each way to manage load.

Policies: the measure that a policy is for, over the load, between the best and the worst of all. One workload for all: queries of a
select, a join with a stored relation and a projection on bursty traffic, cheap and dear ones, each with a deadline; every policy meets
the same tuples and the same fates.

Load managers: the set-up of the experiments on Pham 2013, eleven queries a class under `cqc`. Class 3 rises from 600 to 3,000 tuples a
second on each of its streams through the middle third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millstream.engine.data.graph import QueryNode
from millstream.scheduler import catalog
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.experiments.scenarios.pham import TARGETS_MS
from millstream.scheduler.experiments.scenarios.pham_runs import classes
from millstream.scheduler.names import LOADS
from millstream.scheduler.simulation.arrivals import on_off
from millstream.scheduler.simulation.generators import select_join_project
from millstream.scheduler.simulation.networks import NetworkBuilder
from millstream.scheduler.simulation.simulate import simulate
from millstream.scheduler.simulation.workloads import Workload, workload

UTILISATIONS = (0.5, 0.7, 0.9, 0.97)
SEED = 1
_QUERIES = 16
_TUPLES = 500
_RATE = 40.0
_DEADLINES_MS = (50.0, 400.0)

Summaries = Mapping[str, Sequence[Mapping[str, float]]]
"""By policy, a summary a utilisation."""


@dataclass(frozen=True)
class Measure:
    """What a picture shows: a name in `Outcome.summary`, words for it, and whether it is drawn on a logarithmic scale."""

    name: str
    words: str
    log: bool = True


_AVERAGE = Measure("response_ms_mean", "average latency, ms")
_WORST = Measure("response_ms_max", "worst latency, ms")
_SLOWDOWN = Measure("slowdown_mean", "average slowdown")
_WORST_SLOWDOWN = Measure("slowdown_max", "worst slowdown")
_BALANCE = Measure("slowdown_l2", "slowdown, l2 norm")
_MEMORY = Measure("memory_bytes_mean", "memory in queues, bytes")
_UTILITY = Measure("utility_per_application", "utility", log=False)
_MISSED = Measure("missed", "missed deadlines")

MEASURES: Mapping[str, Measure] = {
    "round-robin": _WORST, "weighted-round-robin": _WORST, "superbox": _WORST, "fcfs": _WORST,
    "path-capacity": _AVERAGE, "srpt": _AVERAGE, "rb": _AVERAGE, "ml": _AVERAGE, "hr": _AVERAGE,
    "segment": _MEMORY, "simplified-segment": _MEMORY, "chain": _MEMORY,
    "rr": _SLOWDOWN, "hnr": _SLOWDOWN, "lsf": _WORST_SLOWDOWN,
    "brt": Measure("response_ms_l2", "latency, l2 norm, ms"),
    "bsd-naive": _BALANCE, "bsd-uniform": _BALANCE, "bsd-log": _BALANCE,
    "cqc": _AVERAGE,
    "fas": Measure("staleness", "staleness", log=False),
    "edf": _MISSED, "edf-hr": _MISSED,
    "fixed-priority": _UTILITY, "fixed-priority-push-through": _UTILITY,
    "slope-slack": _UTILITY, "slope-slack-push-through": _UTILITY,
    "bucketing": _UTILITY, "bucketing-push-through": _UTILITY,
}  # fmt: skip
"""The measure that each policy is for."""


def guide_workload(utilisation: float) -> Workload:
    """Return the workload at a load."""
    builder = NetworkBuilder()
    source = builder.source("packets")
    deltas = select_join_project(builder, [source], _QUERIES, SEED, cost_classes=5)
    deltas = [replace(delta, query=_with_deadline(delta.query, number)) for number, delta in enumerate(deltas)]
    return workload("guide", builder, deltas, {source: on_off(_RATE, _TUPLES, SEED)}).at_utilisation(utilisation)


def _with_deadline(query: QueryNode, number: int) -> QueryNode:
    """Every other query is in a hurry; utility falls from its deadline to nothing at twice that."""
    at_ms = _DEADLINES_MS[number % 2]
    return replace(query, qos=((0.0, 1.0), (at_ms / 1e3, 1.0), (2 * at_ms / 1e3, 0.0)), deadline_ns=round(at_ms * 1e6))


def run_all(policies: Sequence[str], progress: Callable[[str], None]) -> Summaries:
    """Run the policies at every utilisation."""
    works = [guide_workload(one) for one in UTILISATIONS]
    found: dict[str, list[dict[str, float]]] = {}
    for policy in policies:
        progress(policy)
        found[policy] = [simulate(work, policy, seed=SEED).summary() for work in works]
    return found


def draw_all(found: Summaries, folder: Path) -> Iterator[Path]:
    """Draw a picture a policy; the band spans what all policies gave."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as problem:
        raise SimulationError("a plot needs matplotlib", hint="install millstream[experiments]") from problem
    folder.mkdir(parents=True, exist_ok=True)
    for policy in found:
        with mpl.rc_context({"font.size": 7}):
            figure, axis = pyplot.subplots(figsize=(2.6, 1.7), layout="constrained")
            _picture(axis, policy, found)
            path = folder / f"{policy}.png"
            figure.savefig(path, dpi=96, metadata={"Software": None})
            pyplot.close(figure)
        yield path


def _picture(axis: Any, policy: str, found: Summaries) -> None:
    measure = MEASURES[policy]
    values = {one: [summary[measure.name] for summary in summaries] for one, summaries in found.items()}
    columns = list(zip(*values.values(), strict=True))
    axis.fill_between(
        UTILISATIONS, [min(c) for c in columns], [max(c) for c in columns], color="#d8dde6", linewidth=0, label="all policies"
    )
    if policy != "fcfs" and "fcfs" in values:
        axis.plot(UTILISATIONS, values["fcfs"], color="#4d4d4d", linewidth=0.9, linestyle="--", label="fcfs")
    axis.plot(UTILISATIONS, values[policy], color="#1f5fa8", linewidth=1.6, marker="o", markersize=2.5, label=policy)
    if measure.log and min(map(min, columns)) > 0:
        axis.set_yscale("log")
    axis.set_title(measure.words, fontsize=7)
    axis.set_xlabel("load", fontsize=7)
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=5.5)


def known_policies() -> list[str]:
    """Return the names that have a picture: all but one's own."""
    return [name for name in catalog.CATALOG if name != "user"]


SECONDS = 30.0
SLOW = 8.0
"""Divides the rates and multiplies the costs, so that a picture takes seconds to compute."""

RATES = ((600.0, 600.0, 600.0), (600.0, 600.0, 600.0), (600.0, 3_000.0, 600.0))
_COLOURS = ("#1f5fa8", "#2f8f5b", "#c8452f")

Told = Sequence[Mapping[str, Any]]
"""What `pham_runs.classes` tells of each class."""


def run_modes(progress: Callable[[str], None], seconds: float = SECONDS, slow: float = SLOW) -> dict[str, Told]:
    """Run every load manager."""
    found: dict[str, Told] = {}
    for name in LOADS:
        progress(name)
        found[name] = classes(name, RATES, seconds, slow)["classes"]
    return found


def draw_modes(found: Mapping[str, Told], folder: Path) -> Iterator[Path]:
    """Draw a picture a load manager: response time and what is dropped, over the time of arrival."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as problem:
        raise SimulationError("a plot needs matplotlib", hint="install millstream[experiments]") from problem
    folder.mkdir(parents=True, exist_ok=True)
    for name, told in found.items():
        with mpl.rc_context({"font.size": 7}):
            figure, axes = pyplot.subplots(1, 2, figsize=(5.4, 1.9), layout="constrained")
            _responses(axes[0], told)
            _drops(axes[1], told)
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=96, metadata={"Software": None})
            pyplot.close(figure)
        yield path


def _responses(axis: Any, told: Told) -> None:
    for place, one in enumerate(told):
        points = [(second, value) for second, value in enumerate(one["by_second"]["response_ms"]) if value]
        label = f"class {place + 1}, target {TARGETS_MS[place]:.0f} ms"
        axis.step([second for second, _ in points], [value for _, value in points], color=_COLOURS[place], linewidth=1.0, label=label)
    axis.set_yscale("log")
    axis.set_title("response time, ms", fontsize=7)
    axis.legend(fontsize=5.5)
    _finish(axis)


def _drops(axis: Any, told: Told) -> None:
    for place, one in enumerate(told):
        values = [100.0 * value for value in one["by_second"]["drop"]]
        label = f"class {place + 1}: {100.0 * one['loss']:.1f}% in all"
        axis.step(range(len(values)), values, color=_COLOURS[place], linewidth=1.0, label=label)
    axis.set_ylim(-3, 103)
    axis.set_title("dropped, % of input", fontsize=7)
    axis.legend(fontsize=5.5)
    _finish(axis)


def _finish(axis: Any) -> None:
    axis.set_xlabel("time of arrival, s", fontsize=7)
    axis.grid(visible=True, alpha=0.3)
