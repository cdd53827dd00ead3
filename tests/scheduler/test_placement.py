"""Where the operators of a query go, and who gets the next order when workers have operators of their own."""

from __future__ import annotations

from millstream.scheduler.placement import LOOKS, MOVED_BYTES_MAX, REST_LOOKS, Balance, GroupLoad, WorkerLoad, choose, helps_most


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


def groups(*given: tuple[int, float] | tuple[int, float, tuple[int, ...]]) -> list[GroupLoad]:
    return [GroupLoad(name, *one) for name, one in enumerate(given, start=10)]


def test_a_class_names_workers_and_one_that_is_not_there_is_no_reason_to_refuse() -> None:
    assert choose(loads((0.0, 1), (0.0, 9), (0.0, 5)), pinned=(2, 3)).worker == 3
    assert choose(loads((0.0, 1), (0.0, 9)), pinned=(2,)).why == "in worker 2, which its class names"
    assert choose(loads((0.0, 1), (0.0, 9)), pinned=(7,)).worker == 1


def test_the_group_moves_that_lessens_the_greatest_load_most() -> None:
    move = helps_most(loads((0.95, 4), (0.15, 1)), groups((1, 0.1), (1, 0.4), (1, 0.8), (2, 0.15)))
    assert move is not None
    assert (move.names, move.worker) == ((11,), 2)
    assert move.why == "in worker 2, as worker 1 had 95% to do and this one 15%"


def test_many_small_groups_move_together() -> None:
    small = [(1, 0.04)] * 20
    move = helps_most(loads((0.8, 20), (0.2, 5)), groups(*small, (2, 0.2)))
    assert move is not None, "one of them alone would not be worth it"
    assert len(move.names) == 7, "0.8 - 7 * 0.04 and 0.2 + 7 * 0.04 are as even as it gets"


def test_no_more_state_moves_at_once_than_orders_may_wait_for() -> None:
    large = [GroupLoad(name, 1, 0.2, state_bytes=MOVED_BYTES_MAX // 2) for name in range(4)]
    move = helps_most(loads((0.8, 4), (0.0, 0), (0.3, 1)), large)
    assert move is not None
    assert (move.names, move.worker) == ((0, 1), 2)
    assert helps_most(loads((0.8, 1), (0.0, 0)), [GroupLoad(1, 1, 0.4, state_bytes=MOVED_BYTES_MAX + 1)]) is None


def test_nothing_moves_where_that_would_help_nobody() -> None:
    assert helps_most(loads((0.95, 1), (0.05, 1)), groups((1, 0.95), (2, 0.05))) is None, "one group is all that it has to do"
    assert helps_most(loads((0.6, 4), (0.4, 4)), groups((1, 0.1), (1, 0.5))) is None, "they are nearly alike"
    assert helps_most(loads((0.9, 2), (0.1, 1)), groups((1, 0.4, (1,)), (1, 0.5, (1, 3)))) is None, "classes name workers"


def test_a_move_is_due_when_several_looks_find_one_and_then_there_is_a_rest() -> None:
    balance, busy, own = Balance(), loads((0.9, 2), (0.1, 1)), groups((1, 0.4), (1, 0.5))
    assert [balance.look(busy, own) for _ in range(LOOKS - 1)] == [None] * (LOOKS - 1)
    assert balance.look(loads((0.5, 2), (0.5, 1)), own) is None, "it was over"
    found = [balance.look(busy, own) for _ in range(LOOKS + REST_LOOKS + LOOKS)]
    assert [number for number, move in enumerate(found, start=1) if move is not None] == [LOOKS, LOOKS + REST_LOOKS + LOOKS]
