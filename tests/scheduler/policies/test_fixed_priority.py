"""Fixed priority by the examples of Carney 2005, 4.2.1 and 4.5; boxes are numbered from the leaf on here.

Two chains of three boxes of cost 1, deadlines 4 and 8: slacks 1 2 3 and 5 6 7, so the order is b1 b2 b3 b4 b5 b6. Three chains of four,
deadlines 6, 10, 14: a schedule of one box meets all, of two runs b1 b5 b2 b6 b3 b7 b4 b8 b9 …, and b4 ends at 7, after its deadline.
"""

import pytest

from tests.support.scheduler_worlds import IN_ORDER, S, chains, ranks, schedule


def test_slack_is_the_deadline_less_the_cost_to_the_end() -> None:
    world = chains("fixed-priority", [3, 3], [4, 8])
    assert [-rank / S for rank in ranks(world, 0)] == [1.0, 2.0, 3.0, 5.0, 6.0, 7.0]
    world.run()
    assert world.steps() == ["b1", "b2", "b3", "b4", "b5", "b6"]


def test_slacks_follow_what_boxes_are_measured_to_cost() -> None:
    world = chains("fixed-priority", [3, 3], [4, 8])
    assert ranks(world, 0)[0] == -S
    estimates = world.core.estimates
    estimates.cost_ns[world.core.view.units.entries[1]] = 2 * S
    estimates.version += 1
    assert [-rank / S for rank in ranks(world, 0)] == [0.0, 1.0, 3.0, 5.0, 6.0, 7.0]


def test_a_schedule_of_one_box_meets_all_deadlines() -> None:
    assert schedule("fixed-priority") == (IN_ORDER, [4.0, 8.0, 12.0])


def test_a_schedule_of_two_is_late_with_the_first() -> None:
    order, finished = schedule("fixed-priority:schedule=2")
    assert order == "b1 b5 b2 b6 b3 b7 b4 b8 b9 b10 b11 b12"
    assert finished == [7.0, 8.0, 12.0]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_push_through_meets_all_deadlines_at_any_size(size: int) -> None:
    assert schedule(f"fixed-priority-push-through:schedule={size}") == (IN_ORDER, [4.0, 8.0, 12.0])
