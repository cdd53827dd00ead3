"""Two lists, by hand, on the example of test_rate_deadline_hybrid: D_A = 8, 12 to work off, rate 1/4; D_B = 15, 4 to work off, rate 1/8.

At 10 A is late and B timely, and A would end at 22, after 15: B. At 2 A would end at 14: A. At 12 both are late: A by rate.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.policies.rate_deadline_hybrid import RateDeadlineHybrid
from millstream.scheduler.selectors.two_lists import TwoListsSelector

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
