"""Ties: whatever finds the best unit, of equal ranks it takes the one whose oldest tuple has waited longest (the plain rule, below).

By hand: three queries alike whose oldest tuples came at 7, 3 and 5 are served in the order 3, 5, 7.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.scheduler.contracts import Ranking, Selector
from millstream.scheduler.limits import NEVER_NS
from millstream.scheduler.policies.highest_rate import HighestRate
from millstream.scheduler.selectors.rank_order import RankOrder
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.quick_selectors import FactoredSelector, FixedPart, OrderSelector
from millstream.scheduler.simulation.world import World

NOW = 100
POLICIES = [
    *("srpt", "hr", "hr:selector=scan", "hnr", "rb", "ml", "chain", "path-capacity", "segment", "fixed-priority"),
    *("fcfs", "fcfs:selector=scan", "edf", "edf:selector=scan", "edf-hr", "edf-hr:selector=scan", "fas", "fas:selector=heap"),
    *("lsf", "lsf:selector=threshold", "brt", "brt:selector=threshold", "bsd-naive", "bsd-naive:selector=threshold"),
    "slope-slack",
]
ONLY = ClassNode(ClassId(1), "only")

State = list[tuple[int, int]]
"""Of each query the tuples that wait and when the oldest came."""


def world(policy: str, costs: list[int], periods: bool = False) -> World:
    builder = NetworkBuilder()
    asked = Asked(class_id=ONLY.id, period_ns=200 if periods else None)
    boxes = [Box(cost, 0.5, builder.source(f"s{number}"), label=f"q{number}") for number, cost in enumerate(costs)]
    made = World(policy, [builder.query(box.label, box, asked, (ONLY,)) for box in boxes], builder=builder)
    made.core.view  # noqa: B018 (cuts the network)
    return made


def show(made: World, selector: Selector, state: State, units: list[int]) -> None:
    shown = made.core.view.units
    for unit in units:
        rows, head_ns = state[unit]
        entry = int(shown.entries[unit])
        made.core.ledger.rows[entry] = shown.rows[unit] = rows
        shown.head_ns[unit] = head_ns if rows else NEVER_NS
        shown.ready[unit] = shown.available[unit] = rows > 0
        made.core.ledger.newest_ns[entry] = head_ns
    selector.changed(made.core.view, units, NOW)


def plain(made: World, ranking: Ranking) -> int:
    """The rule, as one reads it: the greatest rank, of these the oldest head, of these the lower unit."""
    view = made.core.view
    ranks = ranking.rank(view, NOW).tolist()
    waiting = np.flatnonzero(view.units.available).tolist()
    return min(waiting, key=lambda unit: (-ranks[unit], view.units.head_ns.item(unit), unit))


def check(made: World, selector: Selector, ranking: Ranking, states: list[State]) -> None:
    selector.reset(made.core.view, NOW)
    before: State = [(-1, -1)] * len(states[0])
    for state in states:
        show(made, selector, state, [unit for unit, one in enumerate(state) if one != before[unit]])
        before = state
        if any(rows for rows, _ in state):
            picked = selector.pick(made.core.view, NOW, 1)
            assert picked == [plain(made, ranking)]
            selector.changed(made.core.view, picked, NOW)


QUERIES = st.lists(st.sampled_from([1, 2]), min_size=2, max_size=7)


def histories(queries: int) -> st.SearchStrategy[list[State]]:
    one = st.tuples(st.integers(0, 2), st.integers(0, 12))
    return st.lists(st.lists(one, min_size=queries, max_size=queries), min_size=1, max_size=5)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), costs=QUERIES)
def test_of_equal_ranks_the_oldest_tuple_goes_first(policy: str, data: st.DataObject, costs: list[int]) -> None:
    made = world(policy, costs, periods=policy.startswith("edf") and data.draw(st.booleans()))
    assert made.core.ranking is not None
    check(made, made.core._policy.selector, made.core.ranking, data.draw(histories(len(costs))))


@pytest.mark.parametrize("policy", ["srpt", "hr", "chain", "lsf", "brt", "bsd-naive"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), costs=QUERIES)
def test_the_selectors_of_the_simulator_follow_the_same_rule(policy: str, data: st.DataObject, costs: list[int]) -> None:
    made = world(policy, costs)
    ranking = made.core.ranking
    assert ranking is not None
    selector = FactoredSelector(ranking) if isinstance(ranking, FixedPart) else OrderSelector(ranking)
    check(made, selector, ranking, data.draw(histories(len(costs))))


@pytest.mark.parametrize("policy", ["hr", "hnr", "lsf", "bsd-naive", "rr:level=operator", "cqc", "edf-hr", "slope-slack-push-through"])
def test_of_queries_alike_none_starves(policy: str) -> None:
    """Twice as many tuples come as can be served; before, the last query got none."""
    builder = NetworkBuilder()
    sources = [builder.source(f"s{number}") for number in range(4)]
    queries = [builder.query(f"q{number}", Box(10, 1.0, source, label=f"q{number}")) for number, source in enumerate(sources)]
    made = World(policy, queries, builder=builder)
    for place, source in enumerate(sources):
        made.arrive(source, *range(place, 4_000, 20))
    made.run(until_ns=4_000)
    served = [sum(label == f"q{number}" for label in made.steps()) for number in range(4)]
    assert min(served) >= max(served) - 2 > 90


def test_inside_a_query_the_older_of_equal_ranks_goes_first() -> None:
    builder = NetworkBuilder()
    sources = [builder.source("a"), builder.source("b")]
    leaves = [Box(1, 1.0, source, label=f"leaf {place}") for place, source in enumerate(sources)]
    made = World("rr:level=operator", [builder.query("q", Box(5, 1.0, *leaves, label="root"))], builder=builder)
    made.arrive(sources[0], 4)
    made.arrive(sources[1], 0, 2)
    made.run(until_ns=3)
    assert made.steps()[0] == "leaf 1"
    made.run()
    selector, view = made.core._policy.selector, made.core.view
    leaf = [unit for unit in range(view.units.count) if view.units.topology.is_leaf(int(view.units.entries[unit]))]
    view.units.rows[leaf], view.units.head_ns[leaf], view.units.available[leaf] = 1, [9, 3], True
    assert selector.pick(view, 20, 1) == [leaf[1]]


def test_several_are_taken_in_the_order_of_the_rule() -> None:
    made = world("hr", [1, 1, 1, 2])
    order = RankOrder(HighestRate().rank(made.core.view, 0))
    assert (order.first(), order.listed()) == (-1, [])
    for unit, head_ns in enumerate((7, 3, 5, 0)):
        order.put(unit, head_ns)
    assert (order.first(), order.listed()) == (1, [1, 2, 0, 3])
    order.drop(1)
    assert (order.first(), order.listed()) == (2, [2, 0, 3])
