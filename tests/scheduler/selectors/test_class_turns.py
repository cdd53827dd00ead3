"""Inside a class of CQC: the inner rank, among what its source boxes (test_source_boxes.py) have let in."""

from __future__ import annotations

import random

import numpy as np
import pytest
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.events import QueryAdded
from millstream.scheduler.policies.class_quota import ClassQuotas
from millstream.scheduler.policies.highest_rate import HighestRate
from millstream.scheduler.selectors.class_turns import ClassTurnsSelector
from millstream.scheduler.selectors.scan import best_of
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import TrainShape

MS = 1_000_000
ONLY = ClassNode(ClassId(1), "only")


def test_the_inner_rank_decides_inside_a_class() -> None:
    def steps(policy: str) -> list[str]:
        builder = NetworkBuilder()
        source = builder.source("s")
        dear, cheap = Box(5 * MS, 1.0, source, label="dear"), Box(2 * MS, 0.2, source, label="cheap")
        deltas = [builder.query(box.label, box, Asked(class_id=ONLY.id), (ONLY,)) for box in (dear, cheap)]
        world = World(policy, deltas, builder=builder)
        world.arrive(source, 0, rows=2)
        world.run()
        return world.steps()

    assert steps("cqc") == ["dear", "dear", "cheap", "cheap"]  # by rate: 1/5 against 0.2/2
    assert steps("cqc:inner=srpt") == ["cheap", "cheap", "dear", "dear"]
    assert steps("cqc:inner=fcfs") == steps("fcfs:selector=scan")


@pytest.mark.parametrize("inner", ["round-robin", "cqc", "user", "best"])
def test_only_a_policy_that_ranks_can_be_inside(inner: str) -> None:
    with pytest.raises(PolicyError, match=f"inner={inner} is not a policy that ranks"):
        World(f"cqc:inner={inner}", [])


def test_what_reads_a_stream_waits_for_what_is_further_in() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    # The leaf has the better rate by far (1 tuple out per 1 ms and 2 ms), the inner operator the worse.
    leaf = Box(MS, 1.0, source, label="leaf")
    slow = builder.query("slow", Box(50 * MS, 0.1, leaf, label="inner"), Asked(class_id=ONLY.id), (ONLY,))
    quick = builder.query("quick", Box(MS, 1.0, source, label="other leaf"), Asked(class_id=ONLY.id), (ONLY,))
    world = World("cqc:level=operator", [slow, quick], builder=builder)
    world.arrive(source, 0, rows=2)
    world.run()
    steps = world.steps()
    assert steps == ["other leaf", "other leaf", "leaf", "inner", "leaf", "inner"]


def test_units_given_out_together_are_no_more_than_the_credit_pays_for() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = [
        builder.query(f"q{number}", Box(4 * MS, 1.0, source, label=f"q{number}"), Asked(class_id=ONLY.id), (ONLY,)) for number in range(6)
    ]
    settings = CoreSettings(train=TrainShape(count=1), schedule=6, adapt=False)
    world = World("cqc:k=10", deltas, builder=builder, settings=settings)
    world.arrive(source, 0)
    world.run(until_ns=1)
    assert world.core.statistics().orders == 1
    assert len(world.order) == 3  # 4 + 4 + 4 ms: the third begins while credit is left
    world.run()
    assert len(world.order) == 6


@pytest.mark.parametrize("seed", range(20))
def test_a_rank_that_stays_is_looked_up_and_gives_what_ranking_anew_gives(seed: int) -> None:
    chance, builder = random.Random(seed), NetworkBuilder()
    source, classes = builder.source("s"), [ClassNode(ClassId(number), f"c{number}") for number in (3, 5)]
    leaf = Box(1, 1.0, source)
    boxes = [Box(chance.choice([1, 2, 4]), chance.choice([0.25, 0.5, 1.0]), chance.choice([source, leaf])) for _ in range(12)]
    asked = [Asked(class_id=chance.choice(classes).id) for _ in boxes]
    deltas = [builder.query(f"q{n}", box, one, tuple(classes)) for n, (box, one) in enumerate(zip(boxes, asked, strict=True))]
    view = World("cqc:level=operator", deltas, builder=builder).core.view
    selector, units, network = ClassTurnsSelector(HighestRate(), ClassQuotas(1e12)), view.units, view.ledger.network
    selector.reset(view, 0)
    for now_ns in range(10):
        units.available[:] = [chance.random() < 0.6 for _ in range(units.count)]
        units.available[chance.randrange(units.count)] = True
        units.rows[:] = [chance.randint(1, 5) for _ in range(units.count)]
        count = chance.choice([1, 2, 5, 40])
        selector._sources.follow(view)
        let_in = selector._sources.open.copy()
        picked = selector.pick(view, now_ns, count)
        entries = units.entries.tolist()
        turn = network.node(entries[picked[0]]).class_id
        own = [u for u in np.flatnonzero(units.available).tolist() if network.node(entries[u]).class_id == turn]
        inner = [u for u in own if let_in[u]]
        assert picked == best_of(HighestRate(), view, np.array(inner or own), now_ns, count)


def test_a_paused_or_new_class_does_not_stop_the_others() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    first = ClassNode(ClassId(5), "first", 2.0)
    world = World("cqc", [builder.query("q", Box(MS, 1.0, source, label="q"), Asked(class_id=first.id), (first,))], builder=builder)
    world.arrive(source, 0, rows=3)
    world.run()
    delta = builder.query("r", Box(MS, 1.0, source, label="r"), Asked(class_id=ONLY.id), (ONLY,))
    world.driver.add_query(QueryAdded(delta))
    world.arrive(source, world.driver.now_ns, rows=2)
    world.run()
    assert sorted(world.steps()) == ["q"] * 5 + ["r"] * 2
