"""HNR: rank S / (Cbar T). In the example 1 / (4 · 4) and (1/4) / (2 · 2): 1/16 each. The thesis's table 3.1 stands in test_highest_rate."""

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_rate_is_divided_by_the_ideal_time() -> None:
    assert ranks(two_queries("hnr")) == [1 / 16, 1 / 16]
