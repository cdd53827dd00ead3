"""Arrival time follows the system's clock by its rule, whatever is done to that clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from tests.support.clocks import BEGAN, Clocks, S

DAY = 86_400 * S


def test_it_is_the_systems_clock_while_nobody_sets_that() -> None:
    clocks = Clocks()
    for _ in range(100):
        clocks.passes(0.05)
        assert clocks.now == clocks.right
    assert clocks.told == []


def test_a_day_ahead_for_four_seconds_changes_nothing() -> None:
    clocks = Clocks()
    clocks.passes(1)
    clocks.is_set(86_400)
    clocks.passes(4, steps=80)
    assert clocks.now == 5
    clocks.is_set(-86_400)
    clocks.passes(1)
    assert clocks.now == clocks.right == 6
    assert clocks.told == ["clock_jumped", "clock_right_again"]


def test_a_jump_forward_that_stands_for_ten_seconds_is_taken_at_once() -> None:
    clocks = Clocks()
    clocks.is_set(3_600)
    clocks.passes(0.001)
    clocks.passes(9.99, steps=10)
    assert clocks.now < 10
    clocks.passes(0.02)
    assert clocks.now == clocks.right > 3_600
    assert clocks.told == ["clock_jumped", "clock_followed"]


def test_after_a_jump_back_that_stands_it_runs_ten_percent_slow_until_the_clocks_meet() -> None:
    clocks = Clocks()
    clocks.is_set(-60)
    clocks.passes(0.001)
    clocks.passes(10, steps=10)
    before = clocks.now
    assert abs(before - 10) < 0.2
    clocks.passes(100, steps=7)
    assert abs(clocks.now - before - 90) < 1e-6
    assert clocks.told == ["clock_jumped", "clock_slowed"]
    clocks.passes(600, steps=11)
    assert clocks.now == clocks.right
    assert clocks.told[2:] == ["clocks_met"]


def test_a_small_correction_is_caught_up_with_at_ten_percent() -> None:
    for by_s, sign in ((0.5, 1), (-0.5, -1)):
        clocks = Clocks()
        clocks.is_set(by_s)
        clocks.passes(1)
        assert abs(clocks.now - (1 + sign * 0.1)) < 1e-6
        clocks.passes(4)
        assert clocks.now == clocks.right
        assert clocks.told == []


def test_a_second_jump_during_the_wait_begins_the_wait_anew() -> None:
    clocks = Clocks()
    clocks.is_set(3_600)
    clocks.passes(9)
    clocks.is_set(3_600)
    clocks.passes(9, steps=3)
    assert clocks.now == 18
    clocks.passes(5, steps=4)
    assert clocks.now == clocks.right
    assert clocks.told == ["clock_jumped", "clock_jumped", "clock_followed"]


def test_it_begins_no_earlier_than_it_is_told_and_then_waits_for_the_clock() -> None:
    clocks = Clocks()
    clocks.clock.begin_no_earlier((BEGAN + 30 * S) // 1_000)
    assert clocks.now == 30
    clocks.passes(10, steps=3)
    assert abs(clocks.now - 39) < 1e-6
    clocks.passes(300, steps=9)
    assert clocks.now == clocks.right
    assert clocks.told == ["clock_behind", "clocks_met"]
    again = Clocks()
    again.clock.begin_no_earlier((BEGAN - S) // 1_000)
    assert again.now == 0
    assert again.told == []


@given(some.lists(some.tuples(some.integers(0, 20 * S), some.integers(-2 * DAY, 2 * DAY)), max_size=40))
def test_it_never_runs_back_and_only_a_believed_jump_forward_makes_it_run_more_than_ten_percent_fast(steps: list[tuple[int, int]]) -> None:
    clocks = Clocks()
    for passed, by in steps:
        before, told = clocks.clock.now_us(), len(clocks.told)
        clocks.is_set(by / S)
        clocks.monotonic += passed
        clocks.system += passed
        ran_us = clocks.clock.now_us() - before
        assert ran_us >= passed * 9 // 10_000 - 1
        if "clock_followed" not in clocks.told[told:]:
            assert ran_us <= passed * 11 // 10_000 + 1
