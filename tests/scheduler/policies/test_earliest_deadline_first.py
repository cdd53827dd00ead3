"""EDF: rank -D. In the example A has SLIDE 8 and its head came at 4: D = 8. B has none: its head came at 0, D = 0 + 15."""

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_next_boundary_of_the_slide_or_the_querys_own_deadline() -> None:
    assert ranks(two_queries("edf")) == [-8.0, -15.0]
