"""FCFS: rank -A of the head, the greatest wait first. In the example A's head came at 4, B's at 0: ranks -4 and 0, so B goes first."""

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_oldest_head_goes_first() -> None:
    assert ranks(two_queries("fcfs")) == [-4.0, 0.0]


def test_it_takes_tuples_in_the_order_they_came() -> None:
    world = two_queries("fcfs")
    view = world.core.view
    assert world.core._policy.selector.pick(view, 10, 2) == [1, 0]
