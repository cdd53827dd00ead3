"""BRT: rank (S / Cbar) W. In the example 1/4 · 6 = 1.5 and 1/8 · 10 = 1.25: A goes first; at 2 A has not waited yet: B goes."""

from tests.support.scheduler_worlds import ranks, two_queries


def test_rate_times_wait() -> None:
    assert ranks(two_queries("brt")) == [1.5, 1.25]
    assert ranks(two_queries("brt"), 2) == [0.0, 0.25]
