"""ALoMa by hand (Pham 2013, III-B), each branch, and against a queue that has a capacity."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.aloma import Aloma, raised
from millstream.scheduler.load.contract import ClassCycle

from tests.support.plant import Plant

MS = 1e6
TARGET = 300 * MS


def seen(load: float, response_ms: float | None, backlog_s: float = 0.0) -> ClassCycle:
    return ClassCycle(ClassId(1), load, backlog_s, None if response_ms is None else response_ms * MS, TARGET)


@pytest.mark.parametrize(
    ("headroom", "load", "found"),
    [
        (0.5, 0.505, 0.505),  # k = 1: log2(2)/1 = 1, all of the gap
        (0.5, 0.501, 0.501),  # 0.2% over: k would be 0.2 and is 1
        (0.8, 0.824, 0.816),  # k = 3: log2(4)/3 = 2/3 of 0.024
        (0.4, 0.46, 0.416),  # k = 15: log2(16)/15 = 4/15 of 0.06
        (0.1, 0.73, 0.1 + 0.63 * 9.3015 / 630),  # k = 630: log2(631) = 9.3015
    ],
)
def test_headroom_rises_boldly_over_a_small_gap_and_carefully_over_a_wide_one(headroom: float, load: float, found: float) -> None:
    assert raised(headroom, load) == pytest.approx(found, rel=1e-5)


def test_overload_without_a_late_response_raises_headroom_and_drops_nothing() -> None:
    one = Aloma(0.8)
    one.decide(seen(0.824, response_ms=4))
    assert (one.headroom, one.drop) == (pytest.approx(0.816), 0.0)


def test_both_monitors_agree_on_overload_and_what_exceeds_headroom_is_dropped() -> None:
    one = Aloma(0.6)
    one.decide(seen(0.8, response_ms=310, backlog_s=0.063))  # 0.6 x 0.35 x 0.3 s = 0.063 s of work may wait
    assert one.headroom == 0.6
    assert one.drop == pytest.approx((0.8 - 0.6) / 0.8)


def test_a_backlog_beyond_the_target_counts_as_load() -> None:
    one = Aloma(0.6)
    one.decide(seen(0.8, response_ms=700, backlog_s=0.213))  # 0.15 s of work too much, to go within 1.5 s: 0.1 a second
    assert one.drop == pytest.approx((0.8 + 0.1 - 0.6) / 0.8)


def test_however_great_the_backlog_a_tenth_of_headroom_is_let_in() -> None:
    one = Aloma(0.6)
    one.decide(seen(0.8, response_ms=9_000, backlog_s=60.0))
    assert one.drop == pytest.approx((0.8 + 0.54 - 0.6) / 0.8)


def test_a_late_response_under_headroom_lowers_it_to_98_percent_of_the_load_and_the_next_cycle_sheds() -> None:
    one = Aloma(0.6)
    one.decide(seen(0.5, response_ms=400))
    assert (one.headroom, one.drop) == (pytest.approx(0.49), 0.0)
    one.decide(seen(0.5, response_ms=410))
    assert (one.headroom, one.drop) == (pytest.approx(0.49), pytest.approx(0.02))


def test_headroom_is_believed_while_the_backlog_shrinks() -> None:
    one = Aloma(0.6)
    one.decide(seen(0.5, response_ms=100, backlog_s=0.06))
    one.decide(seen(0.5, response_ms=400, backlog_s=0.05))
    assert (one.headroom, one.drop) == (0.6, 0.0)


def test_a_growing_backlog_is_shed_before_its_responses_are_late() -> None:
    one = Aloma(0.6)
    one.decide(seen(1.2, response_ms=20, backlog_s=0.09))  # 0.6 a second were worked off, which is what H was
    assert one.headroom == pytest.approx(0.6)
    assert one.drop == pytest.approx((1.2 + (0.09 - 0.063) / 1.5 - 0.6) / 1.2)


def test_what_was_worked_off_at_the_onset_of_overload_is_believed() -> None:
    one = Aloma(0.2)
    one.decide(seen(1.2, response_ms=20, backlog_s=0.09))  # of 1.2 a second 0.6 did not add to the backlog: three times the share
    assert one.headroom == pytest.approx(0.6)
    held = one.headroom
    one.decide(seen(1.2, response_ms=60, backlog_s=0.08))  # something is dropped: what was worked off is what was let in
    assert one.headroom == held


def test_headroom_has_a_floor() -> None:
    one = Aloma(0.6)
    for _ in range(3):
        one.decide(seen(0.001, response_ms=400))
    assert one.headroom == pytest.approx(0.15)


def test_what_fits_again_is_given_back_at_once() -> None:
    one = Aloma(0.6)
    one.decide(seen(0.8, response_ms=310, backlog_s=0.08))
    one.decide(seen(0.5, response_ms=200, backlog_s=0.04))
    assert (one.headroom, one.drop) == (0.6, 0.0)


def test_shedding_with_a_good_response_makes_headroom_rise_until_the_backlog_grows() -> None:
    one = Aloma(0.6)
    one.decide(seen(0.8, response_ms=310, backlog_s=0.18))
    one.decide(seen(0.8, response_ms=5))
    assert one.headroom == pytest.approx(raised(0.6, 0.8))
    assert one.drop == pytest.approx(1.0 - one.headroom / 0.8)
    held = one.headroom
    one.decide(seen(0.8, response_ms=90, backlog_s=0.06))
    assert one.headroom == held


def test_without_a_target_nothing_is_ever_shed() -> None:
    one = Aloma(0.1)
    for cycle in range(50):
        one.decide(ClassCycle(ClassId(1), 3.0, float(cycle), 1e12, None))
    assert one.drop == 0.0


@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.floats(1.1, 5.0), st.floats(0.1, 1.0), st.floats(0.1, 2.0), st.sampled_from([100.0, 300.0, 1000.0]))
def test_headroom_converges_to_the_capacity_on_a_constant_load(load: float, capacity: float, began: float, target_ms: float) -> None:
    plant = Plant(Aloma(began * capacity), target_ms * MS, capacity)
    for _ in range(200):
        plant.cycle(load * capacity)
    for _ in range(60):
        plant.cycle(load * capacity)
        assert 0.9 * capacity <= plant.aloma.headroom <= 1.1 * capacity
        assert plant.response_s <= 1.1 * target_ms / 1e3 + 0.05
    assert plant.dropped_share == pytest.approx(1.0 - 1.0 / load, abs=0.03)


@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.lists(st.floats(0.3, 4.0), min_size=2, max_size=4))
def test_steps_of_the_load_are_followed_without_swinging(steps: list[float]) -> None:
    """Bounds: 150 cycles (22 s) after a step H swings by no more than a fifth; 20 cycles (3 s) after an end of overload nothing is shed."""
    plant = Plant(Aloma(1.0), TARGET, 1.0)
    for load in steps:
        headrooms = []
        for cycle in range(220):
            plant.cycle(load)
            if cycle >= 150:
                headrooms.append(plant.aloma.headroom)
            if load < 0.8 and cycle >= 20:
                assert plant.aloma.drop == 0.0
        assert max(headrooms) <= 1.2 * min(headrooms)
        assert plant.response_s <= 1.1 * 0.3 + 0.05
