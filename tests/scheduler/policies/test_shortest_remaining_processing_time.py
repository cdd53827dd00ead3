"""SRPT: rank 1 / T. In the example T_A = 4 and T_B = 2: 1/4 and 1/2, so B goes first."""

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_least_ideal_time_goes_first() -> None:
    assert ranks(two_queries("srpt")) == [1 / 4, 1 / 2]
