"""EDF: rank -D. In the example A has SLIDE 8 and its head came at 4: D = 8. B has none: its head came at 0, D = 0 + 15."""

from millstream.scheduler.policies.earliest_deadline_first import EarliestDeadlineFirst

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_next_boundary_of_the_slide_or_the_querys_own_deadline() -> None:
    assert ranks(two_queries("edf")) == [-8.0, -15.0]


def test_one_unit_has_the_rank_that_the_column_holds() -> None:
    world = two_queries("edf")
    ranking = EarliestDeadlineFirst()
    world.core.view.units.head_ns[:] = [1_764_306_000_123_456_789, 7]
    assert [ranking.rank_one(world.core.view, unit) for unit in range(2)] == ranking.rank(world.core.view, 0).tolist()
