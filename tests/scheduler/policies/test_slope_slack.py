"""Slope-slack by the example of Carney 2005, 4.5: three chains of four boxes of cost 1, deadlines 6, 10 and 14, one tuple each.

size 1  b1 … b12 in order, all deadlines met
size 2  b1 b5 b2 b6 b3 b7 b8 b9 b10 b4 b11 b12: at 6 b4 can only end at 7, its utility is gone and it goes after the others
size 3  b1 b5 b9 b2 b6 b10 b7 b11 b3 b12 b4 b8
"""

import numpy as np
import pytest
from millstream.scheduler.policies.slope_slack import expected_completion_ns

from tests.support.scheduler_worlds import IN_ORDER, chains, schedule


def test_a_schedule_of_one_box_meets_all_deadlines() -> None:
    assert schedule("slope-slack") == (IN_ORDER, [4.0, 8.0, 12.0])


def test_a_schedule_of_two_puts_off_what_is_too_late() -> None:
    order, finished = schedule("slope-slack:schedule=2")
    assert order == "b1 b5 b2 b6 b3 b7 b8 b9 b10 b4 b11 b12"
    assert finished == [10.0, 7.0, 12.0]


def test_a_schedule_of_three_misses_two() -> None:
    assert schedule("slope-slack:schedule=3")[0] == "b1 b5 b9 b2 b6 b10 b7 b11 b3 b12 b4 b8"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_push_through_meets_all_deadlines_at_any_size(size: int) -> None:
    assert schedule(f"slope-slack-push-through:schedule={size}") == (IN_ORDER, [4.0, 8.0, 12.0])


def test_a_few_units_expect_the_completion_that_they_expect_among_all() -> None:
    world = chains("slope-slack-push-through", [3, 5, 1, 4, 4, 7], [4, 8, 5, 9, 7, 6])
    view = world.core.view
    view.ledger.rows[: len(view.estimates.cost_ns)] = np.arange(len(view.estimates.cost_ns)) % 5
    whole = expected_completion_ns(view)
    assert len(whole) == 24
    for unit in range(len(whole)):
        assert expected_completion_ns(view.only(np.array([unit]))).tolist() == [whole[unit]]
