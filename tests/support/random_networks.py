"""Random networks and arrivals from a seed: chains, trees, joins, unions and shared boxes. For checks over many shapes."""

from __future__ import annotations

import random

from millstream.engine.data.graph import GraphDelta
from millstream.engine.data.records import dataclass
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder, SimulatedSource


@dataclass(frozen=True, slots=True)
class RandomNetwork:
    """A network, its sources, and arrivals as (time in ns, source, tuples) in time order."""

    builder: NetworkBuilder
    deltas: tuple[GraphDelta, ...]
    sources: tuple[SimulatedSource, ...]
    arrivals: tuple[tuple[int, SimulatedSource, int], ...]


def random_network(seed: int, *, queries_max: int = 4, arrivals_max: int = 15, joins: bool = True) -> RandomNetwork:
    """Return a network of up to `queries_max` queries over one to three sources."""
    chance = random.Random(seed)
    builder = NetworkBuilder()
    sources = tuple(builder.source(f"s{index}") for index in range(chance.randint(1, 3)))
    boxes: list[Box] = []
    deltas = []
    for index in range(chance.randint(1, queries_max)):
        root = _tree(chance, sources, boxes, chance.randint(1, 4), joins)
        asked = Asked(weight=chance.choice((0.5, 1.0)), deadline_ns=chance.randint(10, 5_000))
        deltas.append(builder.query(f"q{index}", root, asked))
    read = [source for source in sources if _is_read(builder, source)]
    times = sorted(chance.randint(0, 2_000) for _ in range(chance.randint(1, arrivals_max)))
    arrivals = tuple((at_ns, chance.choice(read), chance.randint(1, 4)) for at_ns in times)
    return RandomNetwork(builder, tuple(deltas), sources, arrivals)


def _is_read(builder: NetworkBuilder, source: SimulatedSource) -> bool:
    try:
        builder.log(source)
    except KeyError:
        return False
    return True


def _tree(chance: random.Random, sources: tuple[SimulatedSource, ...], boxes: list[Box], depth: int, joins: bool) -> Box:
    if boxes and chance.random() < 0.2:
        return chance.choice(boxes)
    kind = chance.random()
    if depth > 1 and kind < 0.2 and joins:
        left, right = (_tree(chance, sources, boxes, depth - 1, joins) for _ in range(2))
        box = Box(chance.randint(1, 90), chance.uniform(0.05, 0.5), left, right, window_ns=chance.randint(0, 400), label="join")
    elif depth > 1 and kind < 0.3:
        left, right = (_tree(chance, sources, boxes, depth - 1, joins) for _ in range(2))
        box = Box(chance.randint(1, 90), chance.uniform(0.2, 1.0), left, right, label="union")
    else:
        below = chance.choice(sources) if depth == 1 else _tree(chance, sources, boxes, depth - 1, joins)
        box = Box(chance.randint(1, 90), chance.choice((0.0, 0.3, 0.7, 1.0, 1.6)), below, call_ns=chance.choice((0, 20)))
    boxes.append(box)
    return box
