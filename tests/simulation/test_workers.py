"""Several workers in virtual time: each gets the best unit of its own, as if it were alone with its queries."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.events import Placed
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.simulate import placed
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import TrainShape

QUERIES = 6
# Whose ranks or turns also depend on the other units of the server: one turn for all, clusters, schedules, shares of classes.
TOGETHER = {
    "user",
    "round-robin",
    "weighted-round-robin",
    "bucketing",
    "bucketing-push-through",
    "bsd-uniform",
    "bsd-log",
    "bsd-naive",
    "cqc",
    "rr",
    "fas",
    "path-capacity",
    "simplified-segment",
    "segment",
    "superbox",
}


def network(seed: int, numbers: Sequence[int], source: str = "s") -> tuple[NetworkBuilder, list[object]]:
    builder = NetworkBuilder()
    stream = builder.source(source)
    deltas: list[object] = [stream]
    for number in numbers:
        choice = random.Random(f"{seed}/{number}")
        box = stream
        for place in range(choice.randint(1, 3)):
            box = Box(choice.randint(1, 40) * 1_000, 1.0, box, label=f"q{number}.{place}")  # type: ignore[assignment]
        asked = Asked(weight=choice.choice([1.0, 2.0, 5.0]), deadline_ns=choice.randint(1, 9) * 100_000)
        deltas.append(builder.query(f"q{number}", box, asked))  # type: ignore[arg-type]
    return builder, deltas


def order(policy: str, seed: int, numbers: Sequence[int], workers: int) -> tuple[list[str], dict[str, int]]:
    builder, (stream, *deltas) = network(seed, numbers)
    own = workers if workers > 1 else 0
    settings = CoreSettings(orders_max=workers, train=TrainShape(count=2), adapt=False, workers=own)
    world = World(policy, deltas, builder=builder, settings=settings)  # type: ignore[arg-type]
    worker_of = placed(deltas, workers)  # type: ignore[arg-type]
    if own:
        world.driver.post(Placed(tuple(worker_of.items())))
        world.run(0)
    choice, at_ns = random.Random(seed), 0
    for _ in range(40):
        at_ns += choice.randint(0, 60) * 1_000
        world.arrive(stream, at_ns, rows=choice.randint(1, 4))  # type: ignore[arg-type]
    world.run()
    labels = {world.core.network.node(world.core.network.operators.slot_of[one]).label: worker for one, worker in worker_of.items()}
    return world.steps(), labels


@pytest.mark.parametrize("policy", [name for name in CATALOG if name not in TOGETHER])
def test_a_worker_runs_its_queries_in_the_order_in_which_they_would_run_alone(policy: str, seed: int) -> None:
    together, worker_of = order(policy, seed, range(QUERIES), 2)
    assert set(worker_of.values()) == {1, 2}
    for worker in (1, 2):
        numbers = sorted({int(label[1:].partition(".")[0]) for label, found in worker_of.items() if found == worker})
        alone, _ = order(policy, seed, numbers, 1)
        assert [label for label in together if worker_of[label] == worker] == alone, (policy, seed, worker)
