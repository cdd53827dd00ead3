"""Load management in the core, in virtual time: what the monitors see, what is put in force, and that an idle core sleeps."""

from __future__ import annotations

import io

import numpy as np
import pytest
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.flow.shedding import uniform_of
from millstream.scheduler.core import CoreSettings, SchedulerCore
from millstream.scheduler.events import Arrived
from millstream.scheduler.hashing import uniform
from millstream.scheduler.instructions import SetClassShare, SetDropRatio
from millstream.scheduler.ledger import validate
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.load.control import MANAGERS
from millstream.scheduler.measures import Measures
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.simulation.world import World
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.story import Story, chrome_trace
from millstream.scheduler.trains import TrainShape

MS = 1_000_000
GOLD, LOW = ClassNode(ClassId(1), "gold", 3.0, 300 * MS), ClassNode(ClassId(2), "low", 1.0, 300 * MS, may_shed=True)


class Two:
    """Two classes with a stream and a query of 1.6 ms a tuple each; gold gets 250 tuples a second, low `rows` times as many."""

    def __init__(self, load: str | None, *, policy: str = "cqc", rows: int = 2, seconds: int = 5, low: ClassNode = LOW) -> None:
        self.builder = NetworkBuilder()
        self.sources = [self.builder.source(name) for name in ("a", "b")]
        deltas = [
            self.builder.query(node.name, Box(1_600_000, 1.0, source, label=node.name), Asked(class_id=node.id), (node,))
            for node, source in zip((GOLD, low), self.sources, strict=True)
        ]
        self.settings = CoreSettings(train=TrainShape(count=10), adapt=False, load=load, record=True, measure=True)
        self.world = World(policy, deltas, builder=self.builder, settings=self.settings)
        for at in range(0, seconds * 1_000, 4):
            self.arrive(self.sources[0], 1, at)
            self.arrive(self.sources[1], rows, at)

    def arrive(self, source: SimulatedSource, rows: int, at_ms: int) -> None:
        self.world.driver.post(Arrived(self.builder.log(source), rows, rows, at_ms * MS), at_ms * MS)

    def at(self, ms: int) -> dict[int, ClassLoad]:
        self.world.run(until_ns=ms * MS)
        assert self.world.core.load is not None
        return {int(one): standing for one, standing in self.world.core.load.standings.items()}

    @property
    def measures(self) -> Measures:
        assert self.world.core.measures is not None
        return self.world.core.measures


def test_the_monitor_sees_rate_times_cost_backlog_and_the_age_of_what_waits() -> None:
    seen = Two("none").at(2_000)
    assert seen[1].load == pytest.approx(0.4, abs=0.01)
    assert seen[2].load == pytest.approx(0.8, abs=0.01)
    assert seen[2].backlog_s == pytest.approx(1.95 * 0.2, abs=0.03)  # 1.2 s of work a second come, 1 s is done
    assert seen[2].response_ns == pytest.approx(1.95 * 0.25 * 1e9, rel=0.1)
    assert seen[1].response_ns is not None
    assert seen[1].response_ns < 20 * MS


def test_no_shedder_watches_and_sheds_nothing() -> None:
    two = Two("none")
    two.world.run()
    assert two.measures.report(1).loss_share == {1: 0.0, 2: 0.0}
    assert two.world.emissions[-1].finished_ns > 5_900 * MS


@pytest.mark.parametrize("load", ["class", "dilos"])
def test_only_the_class_in_overload_sheds_and_it_is_near_its_target(load: str) -> None:
    two = Two(load, seconds=12)
    seen = two.at(11_900)
    loss = two.measures.report(1).loss_share
    assert loss[ClassId(1)] == 0.0
    assert loss[ClassId(2)] == pytest.approx(0.25, abs=0.06)  # 0.2 s of work a second too much, of 0.8
    assert seen[2].response_ns is not None
    assert 50 * MS < seen[2].response_ns <= 300 * MS
    assert seen[1].response_ns == pytest.approx(8 * MS, abs=8 * MS)


def test_a_common_shedder_takes_from_all_that_may_be_shed() -> None:
    both = Two("common", seconds=8, low=LOW)
    both.at(7_900)
    assert both.measures.report(1).loss_share[ClassId(1)] == 0.0  # gold may not be shed
    assert both.measures.report(1).loss_share[ClassId(2)] > 0.1


@pytest.mark.parametrize("load", ["common", "class", "dilos"])
def test_a_class_that_is_never_shed_loses_no_row_whatever_the_overload(load: str) -> None:
    two = Two(load, low=ClassNode(ClassId(2), "low", 1.0, 300 * MS, may_shed=False), seconds=3)
    two.world.run()
    assert two.measures.report(1).loss_share == {1: 0.0, 2: 0.0}
    assert len(two.world.responses_ns()) == 3 * 750


def test_what_fits_is_given_back_within_two_seconds_of_the_end_of_overload() -> None:
    two = Two("class", seconds=5)
    assert two.at(4_900)[2].drop > 0.0
    for at in range(5_000, 8_000, 4):
        two.arrive(two.sources[1], 1, at)
    assert two.at(7_000)[2].drop == 0.0
    assert two.at(7_900)[2].backlog_s < 0.02


def test_dilos_moves_shares_to_the_class_that_lacks_and_tells_both() -> None:
    two = Two("dilos", seconds=12)
    seen = two.at(11_900)
    assert seen[1].share == pytest.approx(0.4 + 0.05 * 0.75, abs=0.01)
    assert seen[1].share + seen[2].share == pytest.approx(1.0)
    assert two.world.core.story is not None
    told = [one for entry in two.world.core.story for one in entry.instructions]
    assert {one.class_id for one in told if isinstance(one, SetClassShare)} == {1, 2}
    assert {one.log for one in told if isinstance(one, SetDropRatio)} <= {two.builder.log(two.sources[1])}
    counters = {event["name"] for event in chrome_trace(two.world.core.story)["traceEvents"] if event["ph"] == "C"}
    assert {"share of class 1", "share of class 2", f"dropped before log {two.builder.log(two.sources[1])}"} == counters


@pytest.mark.parametrize("load", list(MANAGERS))
def test_a_core_that_has_nothing_to_do_sleeps_and_a_story_replays(load: str) -> None:
    two = Two(load, seconds=2)
    two.world.run()
    assert two.world.core.next_wake_ns() is None
    validate(two.world.core.ledger)
    story = two.world.core.story
    assert story is not None
    text = io.StringIO()
    story.save(text)
    again = SchedulerCore(PolicySpec("cqc"), two.settings)
    for entry in Story.load(text.getvalue().splitlines()):
        assert tuple(again.handle(entry.events, entry.now_ns)) == entry.instructions


@pytest.mark.parametrize("policy", ["fcfs", "round-robin", "hnr"])
def test_load_is_managed_under_a_policy_without_quotas_too(policy: str) -> None:
    two = Two("class", policy=policy, seconds=6)
    two.at(5_900)
    assert two.measures.report(1).loss_share[ClassId(1)] == 0.0
    assert two.measures.report(1).loss_share[ClassId(2)] > 0.1


def test_the_simulator_drops_what_the_engine_would() -> None:
    for seed in (0, 1, 12345):
        numbers = np.arange(200, dtype=np.int64)
        assert [uniform(number, seed) for number in range(200)] == uniform_of(numbers, seed).tolist()


def test_a_log_that_another_class_reads_is_not_shed() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = [builder.query(node.name, Box(2 * MS, 1.0, source), Asked(class_id=node.id), (node,)) for node in (GOLD, LOW)]
    world = World("cqc", deltas, builder=builder, settings=CoreSettings(adapt=False, load="class"))
    world.arrive(source, *range(0, 2_000 * MS, MS))
    world.run(until_ns=2_000 * MS)
    assert world.core.load is not None
    assert world.core.load.standings[LOW.id].drop > 0.0
    assert world.core.load.totals[LOW.id].shed == 0
