"""Where the operators of a query go, and who gets the next order when workers have operators of their own."""

from __future__ import annotations

from millstream.scheduler.placement import WorkerLoad, choose


def loads(*given: tuple[float, int]) -> list[WorkerLoad]:
    return [WorkerLoad(number, load, operators) for number, (load, operators) in enumerate(given, start=1)]


def test_operators_go_to_the_worker_that_has_what_they_share() -> None:
    assert choose(loads((0.9, 9), (0.0, 0)), beside=[1]).worker == 1


def test_while_nobody_is_busy_queries_are_spread_by_number() -> None:
    assert choose(loads((0.01, 4), (0.0, 3), (0.0, 3))).worker == 2


def test_a_busy_worker_is_spared() -> None:
    assert choose(loads((0.9, 2), (0.2, 5))).worker == 2


def test_operators_that_came_lately_count_before_they_were_measured() -> None:
    assert choose(loads((0.4, 4), (0.0, 9))).worker == 1
