"""LSF: rank W / T. In the example W_A = 6 over 4 and W_B = 10 over 2: 1.5 and 5, so B goes first."""

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_greatest_slowdown_so_far_goes_first() -> None:
    assert ranks(two_queries("lsf")) == [1.5, 5.0]


def test_the_order_turns_as_waits_grow() -> None:
    # At 16: W_A = 12, 12/4 = 3; W_B = 16, 16/2 = 8. The ratio goes to T_A / T_B = 2 and never turns; nothing waits less than 0.
    assert ranks(two_queries("lsf"), 16) == [3.0, 8.0]
    assert ranks(two_queries("lsf"), 2) == [0.0, 1.0]
