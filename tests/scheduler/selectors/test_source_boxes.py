"""Source boxes of a class (Pham 2013, III-A): rows are let in to all queries of a class together, when nothing else of it waits.

By hand: two queries of 1 and 3 ms a row, both of selectivity 1, so by HR the first is the better. A row comes each 2 ms from 0 on. The
row of 0 is let in: the first takes it until 1, the second until 4. Now the rows of 2 and 4 are let in, and so on. Without the boxes the
first would take each row as it comes and leave the second half of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.events import QueryAdded
from millstream.scheduler.ledger import validate
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import TrainShape

MS = 1_000_000
ONLY = ClassNode(ClassId(1), "only")

Ran = tuple[str, int, int]
"""Label of a box, rows it took, when it ended (ns)."""


@dataclass
class Plain:
    """The rule as the paper has it, for boxes that read one stream each: a queue of their own before each, filled by the source box."""

    costs: dict[str, int]
    train: int | None
    queues: dict[str, list[int]] = field(default_factory=dict)

    def run(self, arrivals: list[int]) -> list[Ran]:
        self.queues = {name: [] for name in self.costs}
        outside, now, ran = sorted(arrivals), 0, []
        while outside or any(self.queues.values()):
            waiting = [name for name, rows in self.queues.items() if rows]
            if waiting:
                # HR: outputs by cost, so the least cost; of equal ones the oldest row.
                best = min(waiting, key=lambda name: (self.costs[name], self.queues[name][0], list(self.costs).index(name)))
                taken = self.queues[best][: self.train]
                del self.queues[best][: len(taken)]
                now += self.costs[best] * len(taken)
                ran.append((best, len(taken), now))
            else:
                now = max(now, outside[0])
                let_in = [at for at in outside if at <= now]
                outside = outside[len(let_in) :]
                for rows in self.queues.values():
                    rows += let_in
        return ran


def world(costs: dict[str, int], train: int | None, policy: str = "cqc") -> tuple[World, object, list[Ran]]:
    builder = NetworkBuilder()
    source = builder.source("s")
    queries = [builder.query(name, Box(cost, 1.0, source, label=name), Asked(class_id=ONLY.id), (ONLY,)) for name, cost in costs.items()]
    shape = TrainShape(share=1.0) if train is None else TrainShape(count=train)
    made = World(policy, queries, builder=builder, settings=CoreSettings(train=shape, adapt=False))
    return made, source, []


def played(costs: dict[str, int], train: int | None, arrivals: list[int]) -> list[Ran]:
    made, source, ran = world(costs, train)
    network = made.core.network
    told = made.driver._on_receipt

    def receipt(one) -> None:  # type: ignore[no-untyped-def]
        assert told is not None
        told(one)
        for step in one.each_step():
            rows = sum(count.rows for count in step.consumed)
            ran.append((network.node(network.operators.slot_of[step.operator]).label, rows, one.finished_ns))

    made.driver._on_receipt = receipt
    made.arrive(source, *arrivals)  # type: ignore[arg-type]
    made.run()
    validate(made.core.ledger)
    return ran


def test_rows_are_let_in_together_by_hand() -> None:
    ran = played({"quick": MS, "slow": 3 * MS}, None, [0, 2 * MS, 4 * MS, 6 * MS])
    assert [(name, rows, end // MS) for name, rows, end in ran] == [
        ("quick", 1, 1), ("slow", 1, 4), ("quick", 2, 6), ("slow", 2, 12), ("quick", 1, 13), ("slow", 1, 16),
    ]  # fmt: skip


@pytest.mark.parametrize("train", [None, 1, 3])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    costs=st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=5),
    arrivals=st.lists(st.integers(0, 60), min_size=1, max_size=25, unique=True),
)
def test_the_paper_s_rule_runs_the_same_boxes_on_the_same_rows(train: int | None, costs: list[int], arrivals: list[int]) -> None:
    named = {f"q{number}": cost for number, cost in enumerate(costs)}
    assert played(named, train, sorted(arrivals)) == Plain(named, train).run(arrivals)


def test_under_overload_no_query_of_a_class_starves_for_another() -> None:
    """A row a millisecond where 1 + 3 ms are needed: every query has served the same rows but for those let in last."""
    made, source, _ = world({"quick": MS, "slow": 3 * MS}, 5)
    made.arrive(source, *range(0, 400 * MS, MS))  # type: ignore[arg-type]
    made.run(until_ns=400 * MS)
    steps = [(made.core.network.node(made.core.network.operators.slot_of[one]).label, rows) for one, rows in made.order]
    served = {name: sum(rows for label, rows in steps if label == name) for name in ("quick", "slow")}
    assert served["slow"] > 60
    assert served["quick"] > 60
    alone, source, _ = world({"quick": MS, "slow": 3 * MS}, 5, "hr")
    alone.arrive(source, *range(0, 400 * MS, MS))  # type: ignore[arg-type]
    alone.run(until_ns=400 * MS)
    assert alone.steps().count("slow") < 3


def test_a_join_takes_what_the_boxes_of_both_streams_let_in() -> None:
    builder = NetworkBuilder()
    left, right = builder.source("l"), builder.source("r")
    join = Box(MS, 1.0, left, right, window_ns=1_000 * MS, label="join")
    dear = Box(10 * MS, 1.0, left, label="dear")
    queries = [builder.query(box.label, box, Asked(class_id=ONLY.id), (ONLY,)) for box in (join, dear)]
    made = World("cqc:train=all", queries, builder=builder)
    made.arrive(left, 0, 5 * MS)
    made.arrive(right, 0, 6 * MS, 7 * MS)
    made.run()
    labels = [made.core.network.node(made.core.network.operators.slot_of[one]).label for one, _ in made.order]
    assert list(zip(labels, [rows for _, rows in made.order], strict=True)) == [("join", 2), ("dear", 1), ("join", 3), ("dear", 1)]


def test_a_query_that_comes_meanwhile_is_served_and_no_row_is_lost() -> None:
    made, source, _ = world({"q0": 4 * MS}, 2)
    made.arrive(source, *range(0, 40 * MS, MS))  # type: ignore[arg-type]
    made.run(until_ns=11 * MS)
    assert made.builder is not None
    made.driver.add_query(QueryAdded(made.builder.query("q1", Box(MS, 1.0, source, label="q1"), Asked(class_id=ONLY.id), (ONLY,))))  # type: ignore[arg-type]
    made.run()
    validate(made.core.ledger)
    assert made.core.statistics().rows_waiting == 0
    steps = [(made.core.network.node(made.core.network.operators.slot_of[one]).label, rows) for one, rows in made.order]
    assert sum(rows for label, rows in steps if label == "q0") == 40
    assert sum(rows for label, rows in steps if label == "q1") >= 25
