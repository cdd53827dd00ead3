"""Two lists, by hand, on the example of test_rate_deadline_hybrid: D_A = 8, 12 to work off, rate 1/4; D_B = 15, 4 to work off, rate 1/8.

At 10 A is late and B timely, and A would end at 22, after 15: B. At 2 A would end at 14: A. At 12 both are late: A by rate.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.policies.rate_deadline_hybrid import RateDeadlineHybrid
from millstream.scheduler.selectors.scan import ScanSelector
from millstream.scheduler.selectors.two_lists import TwoListsSelector
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.scheduler_worlds import order_of, two_queries


@pytest.mark.parametrize(("now", "order"), [(10, [1, 0]), (2, [0, 1]), (12, [0, 1]), (-4, [0, 1])])
def test_which_list_is_served(now: int, order: list[int]) -> None:
    view = two_queries("edf-hr").core.view
    selector = TwoListsSelector(RateDeadlineHybrid())
    selector.reset(view, now)
    assert selector.pick(view, now, 1) == order[:1]
    assert selector.pick(view, now, 2) == order
    view.units.available[order[0]] = False
    selector.changed(view, order[:1], now)
    assert selector.pick(view, now, 1) == order[1:]
    view.units.available[order[1]] = False
    selector.changed(view, order, now)
    assert selector.pick(view, now, 1) == []


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_it_picks_what_the_scan_picks(seed: int) -> None:
    assert order_of("edf-hr", seed)[0] == order_of("edf-hr:selector=scan", seed)[0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_many_at_once_are_those_that_the_scan_picks_whatever_is_locked(seed: int) -> None:
    chance, builder = random.Random(seed), NetworkBuilder()
    source = builder.source("s")
    boxes = [Box(chance.choice([5, 10, 20]), chance.choice([0.5, 1.0]), source) for _ in range(12)]
    deltas = [builder.query(f"q{n}", box, Asked(deadline_ns=chance.choice([300, 500]))) for n, box in enumerate(boxes)]
    view = World("edf-hr", deltas, builder=builder).core.view
    ours, scan, units = TwoListsSelector(RateDeadlineHybrid()), ScanSelector(RateDeadlineHybrid()), view.units
    ours.reset(view, 0)
    for now_ns in range(0, 1_500, 75):
        changed = chance.sample(range(12), 5)
        for unit in changed:
            units.rows[unit], units.head_ns[unit] = chance.randint(1, 20), max(0, now_ns - chance.randint(0, 400))
            units.available[unit] = chance.random() < 0.8
        ours.changed(view, changed, now_ns)
        count = chance.choice([1, 2, 3, 8, 12])
        assert ours.pick(view, now_ns, count) == scan.pick(view, now_ns, count)
        locked = [unit for unit in range(12) if units.available[unit]][:2]
        units.available[locked] = False
        ours.changed(view, locked, now_ns)
        assert ours.pick(view, now_ns, count) == scan.pick(view, now_ns, count)
        units.available[locked] = True
        ours.changed(view, locked, now_ns)


def test_what_many_cost_follows_how_many_are_asked_for() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    world = World("edf-hr", [builder.query(f"q{n}", Box(5, 1.0, source)) for n in range(50)], builder=builder)
    view, selector = world.core.view, TwoListsSelector(RateDeadlineHybrid())
    view.units.rows[:], view.units.head_ns[:], view.units.available[:] = 1, 0, True
    selector.reset(view, 0)
    before = selector.evaluations
    assert selector.pick(view, 0, 4) == [0, 1, 2, 3]
    assert selector.evaluations == before + 4
