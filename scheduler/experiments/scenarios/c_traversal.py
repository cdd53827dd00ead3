"""Superbox traversals (Carney 2005, 3.4.3, figures 3.7 and 3.8; the example tree of 3.3.1.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, mean, ordered
from millstream.scheduler.simulation.plots import Line, Panel

_WALKS = ("min-cost", "min-latency", "min-memory")
_RATIOS: dict[Scale, tuple[float, ...]] = {
    "reduced": (0.05, 0.22, 2.0),
    "medium": (0.02, 0.1, 0.2, 0.25, 0.5, 2.0),
    "full": (0.02, 0.05, 0.1, 0.15, 0.18, 0.2, 0.22, 0.24, 0.26, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0),
}
_TUPLES: dict[Scale, int] = {"reduced": 800, "medium": 4_000, "full": 20_000}


def _example(walk: str, ratio: float) -> ExperimentCase:
    return ExperimentCase("carney_walks:example_tree", {"walk": walk, "ratio": ratio})


def _memory(walk: str, seed: int, leaf_tuples: int = 1) -> ExperimentCase:
    return ExperimentCase("carney_walks:memory", {"walk": walk, "tuples": _LEAVES * leaf_tuples, "seed": seed})


def _loaded(scale: Scale, walk: str, cost_us: float) -> ExperimentCase:
    return ExperimentCase("carney_walks:loaded", {"walk": walk, "cost_us": cost_us, "tuples": _TUPLES[scale], "seed": 1})


_LEAVES = 27
_TREES = range(1, 31)
"""Trees are drawn, so the means of thirty are compared."""
_COSTS = (1.0, 500.0)
"""µs: 0.06 and 31 times the call of 16 µs, on either side of the example tree's crossing at 0.22."""


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [
        *(_example(walk, ratio) for walk in _WALKS[:2] for ratio in _RATIOS[scale]),
        *(_memory(walk, seed) for walk in _WALKS for seed in _TREES),
        *(_memory(walk, 1, 100) for walk in _WALKS),
        *(_loaded(scale, walk, cost) for walk in _WALKS[:2] for cost in _COSTS),
    ]


def _loaded_claim(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Claim:
    cost, quick = ([float(results(_loaded(scale, walk, one))["response_ms_mean"]) for one in _COSTS] for walk in _WALKS[:2])
    listed = ", ".join(f"{one:g} µs: min-cost {a:.4g}, min-latency {b:.4g} ms" for one, a, b in zip(_COSTS, cost, quick, strict=True))
    text = "one tree under load 0.5: min-cost wins at small box cost, min-latency at large"
    return Claim(text, "cross-over", listed, cost[0] < quick[0] and quick[1] < cost[1])


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    ratios = _RATIOS[scale]
    latency = {walk: [float(results(_example(walk, ratio))["latency"]) for ratio in ratios] for walk in _WALKS[:2]}
    cost, quick = latency["min-cost"], latency["min-latency"]
    # Both are straight lines in the ratio, so two points give where they cross.
    slope = ((quick[-1] - cost[-1]) - (quick[0] - cost[0])) / (ratios[-1] - ratios[0])
    crossing = ratios[0] - (quick[0] - cost[0]) / slope
    memory = {walk: results(_memory(walk, 1)) for walk in _WALKS}
    order = ("min-memory", "min-cost", "min-latency")
    means = [mean([float(results(_memory(walk, seed))["byte_s"]) for seed in _TREES]) for walk in order]
    full = ", ".join(f"{walk} {float(results(_memory(walk, 1, 100))['byte_s']):.4g}" for walk in order)
    claims = [
        Claim(
            "example tree: the traversals cross where cost over call overhead is near 0.22",
            "0.22",
            f"{crossing:.3f}",
            0.2 <= crossing <= 0.24,
        ),
        Claim(
            "example tree: min-cost wins below, min-latency above",
            "min-cost below, min-latency above",
            f"at {ratios[0]}: {cost[0]:.3g} against {quick[0]:.3g}; at {ratios[-1]}: {cost[-1]:.3g} against {quick[-1]:.3g} overheads",
            cost[0] < quick[0] and quick[-1] < cost[-1],
        ),
        _loaded_claim(scale, results),
        ordered(
            "over time (bytes times seconds) min-memory needs the least memory, min-latency the most",
            ["min-memory", "min-cost", "min-latency"],
            means,
            note=f"with a hundred tuples at each leaf, which is no load of one half: {full}",
        ),
    ]
    rows: list[Row] = [
        {"walk": walk, "cost_over_overhead": ratio, "latency_in_overheads": value}
        for walk, found in latency.items()
        for ratio, value in zip(ratios, found, strict=True)
    ]
    rows += [{"walk": walk, "byte_s": found["byte_s"]} for walk, found in memory.items()]
    return Findings(rows, claims, _panels(ratios, latency, memory))


def _panels(ratios: Sequence[float], latency: Mapping[str, Sequence[float]], memory: Mapping[str, Result]) -> list[Panel]:
    return [
        Panel(
            "Example tree",
            "box cost over call overhead",
            "average latency, overheads",
            [Line(walk, ratios, found) for walk, found in latency.items()],
            x_log=True,
            y_log=True,
        ),
        Panel(
            "Memory while a superbox runs",
            "ms",
            "bytes in queues",
            [Line(walk, memory[walk]["at_ms"], memory[walk]["bytes"]) for walk in _WALKS],
            kind="step",
        ),
    ]


SCENARIO = Scenario(
    "c-traversal",
    "Carney 2005, fig. 3.7, 3.8",
    "superbox traversals",
    "The thesis's tree of six boxes with a tuple at each; one tree of fan-out 3 and depth 5 at half of the ideal capacity, "
    "box costs 1 and 500 µs, 16 µs a call; "
    "thirty trees of depth 4 with selectivities 0.4 to 1 and a tuple at each leaf, emptied by one superbox run.",
    _cases,
    _judge,
)
