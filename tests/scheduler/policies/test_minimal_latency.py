"""ML: rank -output_cost. In the example costs over outputs from there on: 4 / 1 and 2 / (1/4): -4 and -8, so A goes first."""

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_cheapest_output_goes_first() -> None:
    assert ranks(two_queries("ml")) == [-4.0, -8.0]
