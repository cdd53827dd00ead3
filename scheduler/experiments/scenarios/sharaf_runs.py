"""Runs for Sharaf 2007, chapters 3 and 4. Each function takes plain values and returns plain values; the store keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from millstream.scheduler.experiments.oracle import OracleSelector
from millstream.scheduler.simulation import arrivals, generators
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.simulation.outcome import RunOutcome
from millstream.scheduler.simulation.path_outcomes import AttributeDraws
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.simulation.workloads import Workload, workload
from numpy.typing import NDArray

DEC_SCALE = 0.64
"""Brings DEC-PKT-1's 230 packets a second to the rate of LBL-PKT-4, which the thesis used."""

# Half a million tuples lie between the starts of different seeds' pieces of the trace.
_SKIP = 20_000


def traffic(kind: str, tuples: int, seed: int) -> arrivals.Times:
    """Return arrivals: the DEC or Bellcore trace from a place that the seed chooses, on/off sources or Poisson at the same rate."""
    if kind == "on-off":
        return arrivals.on_off(360.0, tuples, seed)
    if kind == "poisson":
        return arrivals.poisson(360.0, tuples, seed)
    skip = (seed - 1) * _SKIP % max(1, 200_000 - tuples)
    return arrivals.trace(kind, tuples, scale=DEC_SCALE if kind == "dec-pkt-1" else None, skip=skip)


def single_stream(
    load: float, seed: int, queries: int, tuples: int, kind: str, *, high: float = 1.0, classes: int = 5, shared: int = 1
) -> Workload:
    """Return the thesis's base workload at a utilisation."""
    builder = NetworkBuilder()
    source = builder.source("packets")

    def selectivity(chance: np.random.Generator) -> float:
        return generators.selectivities(1, chance, 0.1, high)[0]

    deltas = generators.select_join_project(builder, [source], queries, seed, selectivity=selectivity, cost_classes=classes, shared=shared)
    made = workload("select-join-project", builder, deltas, {source: traffic(kind, tuples, seed)})
    uniform = np.random.default_rng(seed + 7_919).integers(1, 101, (2, tuples)).astype(np.float64)
    return with_attributes(made, uniform).at_utilisation(load)


FORMS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "at most": lambda values: values,
    "at least": lambda values: 101.0 - values,
    "range": lambda values: 2.0 * np.abs(values - 50.5),
}
"""Forms of predicates, as what of an attribute must be at most the bound; each passes the same share of uniform attributes."""


def with_attributes(work: Workload, attributes: NDArray[np.float64], form: str = "at most") -> Workload:
    """Return the workload with two attributes on every packet that all queries' predicates are on (3.7).

    A select passes what has a first attribute of at most its selectivity in hundredths, a join what has such a second one; with another
    form, what is at least so great or lies in a range so wide around the middle.
    """
    attributes = FORMS[form](attributes)
    (log,) = work.arrivals
    predicates = {
        node.id: (0 if node.label.endswith("select") else 1, float(round(node.selectivity * 100.0)))
        for node in work.nodes
        if node.inputs and not node.label.endswith("project")
    }
    return replace(work, draws=lambda _: AttributeDraws({log: attributes}, predicates))


def grid(policy: str, load: float, seed: int, queries: int, tuples: int, traffic: str) -> dict[str, Any]:
    """One point of the grid that most of chapter 3 reads from."""
    work = single_stream(load, seed, queries, tuples, traffic)
    outcome = simulate(work, policy, seed=seed)
    return {**outcome.summary(), "classes": _classes(work, outcome)}


def _classes(work: Workload, outcome: RunOutcome) -> list[list[float]]:
    """Return [cost class, selectivity to the tenth, mean slowdown, results] of each class of queries."""
    cheapest = min(node.cost_ns for node in work.nodes if node.inputs)
    roots = {delta.query.name: delta.operators[1] for delta in work.deltas}
    kinds = [(round(np.log2(roots[one.name].cost_ns / cheapest)), min(9, int(roots[one.name].selectivity * 10))) for one in outcome.queries]
    sums: dict[tuple[int, int], list[float]] = {}
    total = np.bincount(outcome.query, weights=outcome.slowdown, minlength=len(kinds))
    count = np.bincount(outcome.query, minlength=len(kinds))
    for index, kind in enumerate(kinds):
        entry = sums.setdefault(kind, [0.0, 0.0])
        entry[0] += float(total[index])
        entry[1] += float(count[index])
    return [[float(cost), float(tenth), entry[0] / entry[1], entry[1]] for (cost, tenth), entry in sorted(sums.items()) if entry[1]]


def selectivity(policy: str, load: float, seed: int, queries: int, tuples: int, high: float, classes: int = 1) -> dict[str, Any]:
    """All operators cost the same, or fall into classes; selectivities up to `high`; `oracle-hr` and `oracle-hnr` know the future."""
    work = single_stream(load, seed, queries, tuples, "dec-pkt-1", high=high, classes=classes)
    if not policy.startswith("oracle-"):
        return simulate(work, policy, seed=seed).summary()
    normalized = policy.endswith("hnr")
    settings = RunSettings(selector=lambda lane: OracleSelector(lane, normalized=normalized))
    return simulate(work, "hnr" if normalized else "hr", seed=seed, settings=settings).summary()


def joins(policy: str, load: float, seed: int, queries: int, tuples: int, gap_s: float) -> dict[str, Any]:
    """Two Poisson streams, select both, join over 1 to 10 s, project."""
    builder = NetworkBuilder()
    left, right = builder.source("left"), builder.source("right")
    deltas = generators.window_joins(builder, left, right, queries, seed)
    times = {left: arrivals.poisson(1 / gap_s, tuples, 2 * seed), right: arrivals.poisson(1 / gap_s, tuples, 2 * seed + 1)}
    work = workload("window-join", builder, deltas, times).at_utilisation(load)
    # What a join lets through per tuple depends on window and rates; the scheduler measures it.
    return simulate(work, policy, seed=seed, settings=RunSettings(adapt=True)).summary()


def sharing(policy: str, load: float, seed: int, queries: int, tuples: int, group: int) -> dict[str, Any]:
    """Groups of queries share their select."""
    work = single_stream(load, seed, queries, tuples, "dec-pkt-1", shared=group)
    return simulate(work, policy, seed=seed).summary()


def adaptive(
    policy: str,
    load: float,
    seed: int,
    queries: int,
    tuples: int,
    deviation: float,
    adapt: bool,
    window: int = 100,
    aging: float = 0.175,
    form: str = "at most",
) -> dict[str, Any]:
    """Attributes drift: in the i-th of 100 intervals of tuples they are Gaussian around 50 + i. `aging` is the weight of the newest window.

    The static scheduler believes that attributes are uniform on 1 to 100, which is what the declared selectivities say.
    """
    work = single_stream(load, seed, queries, tuples, "dec-pkt-1")
    chance = np.random.default_rng(seed + 7_919)
    means = 50.0 + np.arange(tuples) * 100 // tuples
    drawn = with_attributes(work, np.stack([chance.normal(means, deviation) for _ in range(2)]), form)
    return simulate(drawn, policy, seed=seed, settings=RunSettings(adapt=adapt, window=window, aging=aging)).summary()


def fresh(
    policy: str,
    load: float,
    seed: int,
    queries: int,
    tuples: int,
    bursty: int,
    skew: float = 0.0,
    classes: int = 3,
    streams: int = 10,
    keep: bool = False,
) -> dict[str, Any]:
    """Chapter 4: queries over ten Poisson streams, some of which send ten tuples at a time. `keep` counts filtered tuples as well."""
    builder = NetworkBuilder()
    sources = [builder.source(f"s{index}") for index in range(streams)]
    deltas = generators.select_join_project(builder, sources, queries, seed, selectivity=_zipf(skew), cost_classes=classes, unit_ns=1_000.0)
    times: dict[SimulatedSource, arrivals.Times] = {}
    for index, source in enumerate(sources):
        made = arrivals.poisson(100.0, tuples, seed * 1_000 + index)
        times[source] = arrivals.gather(made, 10) if index < bursty else made
    work = workload("freshness", builder, deltas, times).at_utilisation(load)
    outcome = simulate(work, policy, seed=seed, settings=RunSettings(keep_dropped=keep))
    calm = outcome.query % streams >= bursty  # queries go to the streams in turn
    of_kind = {name: float(outcome.response_ns[kind].mean() / 1e6) for name, kind in (("bursty", ~calm), ("calm", calm)) if kind.any()}
    return {
        **outcome.summary(),
        "response_ms_by_query": outcome.average_by_application(outcome.response_ns / 1e6),
        **{f"response_ms_{name}": value for name, value in of_kind.items()},
    }


def _zipf(skew: float) -> Callable[[np.random.Generator], float]:
    """Draw from 0.1, 0.2 … 1.0 with weights 1 / rank^skew, the first rank at 1.0."""
    values = np.arange(10, 0, -1) / 10
    weights = 1.0 / np.arange(1, 11) ** skew
    return lambda chance: float(chance.choice(values, p=weights / weights.sum()))


def tardiness(policy: str, load: float, seed: int, queries: int, tuples: int) -> dict[str, Any]:
    """Windowed aggregates with random SLIDE: how late the result of each boundary is.

    A query selects and aggregates; the result of a boundary is made when the last tuple that came before it is worked off.
    """
    builder = NetworkBuilder()
    source = builder.source("packets")
    chance = np.random.default_rng(seed)
    deltas = []
    slides: list[int] = []
    for index in range(queries):
        cost = 1_000.0 * 2.0 ** int(chance.integers(0, 5))
        share = generators.selectivities(1, chance)[0]
        slides.append(round(float(chance.uniform(1.0, 10.0)) * 1e9))
        select = Box(cost, share, source)
        deltas.append(builder.query(f"q{index}", Box(cost, 1.0, select), Asked(period_ns=slides[-1], deadline_ns=slides[-1])))
    work = workload("aggregates", builder, deltas, {source: traffic("dec-pkt-1", tuples, seed)}).at_utilisation(load)
    outcome = simulate(work, policy, seed=seed, settings=RunSettings(keep_dropped=True))
    return {**_tardiness(outcome, np.array(slides)), "results": float(len(outcome.query))}


def _tardiness(outcome: RunOutcome, slides: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any]:
    slide = slides[outcome.query]
    boundary = outcome.arrival_ns // slide + 1
    place = outcome.query * (int(boundary.max()) + 1) + boundary
    _, inverse = np.unique(place, return_inverse=True)
    last = np.zeros(int(inverse.max()) + 1, dtype=np.int64)
    np.maximum.at(last, inverse, outcome.finished_ns)
    due = np.zeros(len(last), dtype=np.int64)
    due[inverse] = boundary * slide
    late_ms = np.maximum(0, last - due) / 1e6
    return {"tardiness_ms_mean": float(late_ms.mean()), "tardiness_ms_max": float(late_ms.max()), "late": float((late_ms > 0).mean())}
