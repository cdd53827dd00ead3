"""Turns, plain and by marks, by hand: of four units without the second, the turns go 0, 2, 3, 0, and three at once from there 2, 3, 0."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.events import QueryAdded
from millstream.scheduler.selectors.turns import TurnsSelector, random_order
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.quick_selectors import MarkedTurnsSelector
from millstream.scheduler.simulation.world import World


@pytest.mark.parametrize("selector", [TurnsSelector(), MarkedTurnsSelector()], ids=["turns", "marked"])
def test_turns_go_round(selector: TurnsSelector | MarkedTurnsSelector) -> None:
    class Units:
        available = np.array([True, False, True, True])
        count = 4

    class View:
        units = Units()

    selector.reset(View(), 0)  # type: ignore[arg-type]
    assert [selector.pick(View(), 0, 1)[0] for _ in range(4)] == [0, 2, 3, 0]  # type: ignore[arg-type]
    assert selector.pick(View(), 0, 3) == [2, 3, 0]  # type: ignore[arg-type]


def boxes(count: int, policy: str) -> tuple[World, NetworkBuilder]:
    builder = NetworkBuilder()
    queries = [builder.query(f"q{number}", Box(1, 1.0, builder.source(f"s{number}"), label=f"q{number}")) for number in range(count)]
    world = World(policy, queries, builder=builder)
    world.core.view  # noqa: B018 (cuts the network)
    return world, builder


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), count=st.integers(1, 9), seed=st.integers(0, 1_000))
def test_a_random_order_is_drawn_once_and_then_kept(data: st.DataObject, count: int, seed: int) -> None:
    """Aurora's rule, plainly: go round one fixed order and take what is runnable."""
    world, _ = boxes(count, f"round-robin:order=random,seed={seed}")
    view = world.core.view
    order = random_order(seed)(view).tolist()
    assert sorted(order) == list(range(count))
    selectors = [world.core._policy.selector, MarkedTurnsSelector(random_order(seed))]
    last = -1
    for selector in selectors:
        selector.reset(view, 0)
    for _ in range(6):
        view.units.available[:] = runnable = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
        wanted = data.draw(st.integers(1, 3))
        round_ = [unit for unit in order[last + 1 :] + order[: last + 1] if runnable[unit]][:wanted]
        for selector in selectors:
            selector.changed(view, list(range(count)), 0)
            assert selector.pick(view, 0, wanted) == round_
        last = order.index(round_[-1]) if round_ else last


def test_orders_differ_by_seed_and_are_not_the_cuts() -> None:
    world, _ = boxes(12, "round-robin")
    orders = [tuple(random_order(seed)(world.core.view).tolist()) for seed in range(20)]
    assert len(set(orders)) == 20
    assert tuple(range(12)) not in orders
    firsts = [random_order(seed)(world.core.view).tolist()[0] for seed in range(600)]
    assert all(25 <= firsts.count(unit) <= 80 for unit in range(12))  # 50 expected of each


def test_a_query_that_comes_leaves_the_order_of_the_others() -> None:
    world, builder = boxes(6, "round-robin:order=random,seed=4")
    before = random_order(4)(world.core.view).tolist()
    world.driver.add_query(QueryAdded(builder.query("new", Box(1, 1.0, builder.source("new")))))
    after = random_order(4)(world.core.view).tolist()
    assert len(after) == 7
    assert [unit for unit in after if unit < 6] == before
