"""Where a group goes, and who gets the next order when workers have operators of their own."""

from __future__ import annotations

from millstream.scheduler.placement import WorkerLoad, choose


def loads(*given: tuple[float, int]) -> list[WorkerLoad]:
    return [WorkerLoad(number, load, operators) for number, (load, operators) in enumerate(given, start=1)]


def test_a_group_goes_to_the_worker_that_has_part_of_it() -> None:
    assert choose(loads((0.9, 9), (0.0, 0)), beside=[1]).worker == 1


def test_while_nobody_is_busy_groups_are_spread_by_number() -> None:
    assert choose(loads((0.01, 4), (0.0, 3), (0.0, 3))).worker == 2


def test_a_busy_worker_is_spared() -> None:
    assert choose(loads((0.9, 2), (0.2, 5))).worker == 2


def test_operators_that_came_lately_count_before_they_were_measured() -> None:
    assert choose(loads((0.4, 4), (0.0, 9))).worker == 1


def test_a_class_that_is_pinned_stays_where_it_may() -> None:
    assert choose(loads((0.0, 0), (0.9, 9), (0.8, 9)), pinned=[2, 3]).worker == 3
