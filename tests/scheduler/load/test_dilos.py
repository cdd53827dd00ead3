"""DILoS by hand (Pham 2013, IV-C), with the condition of demand as it must be meant, and what must hold of every distribution."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import ClassCycle
from millstream.scheduler.load.dilos import Dilos, demands, recalled, redistributed, supplies

ONE, TWO, THREE = ClassId(1), ClassId(2), ClassId(3)
ORIGINAL = {ONE: 0.6, TWO: 0.3, THREE: 0.1}


def by_class(*values: float) -> dict[ClassId, float]:
    return dict(zip(ORIGINAL, values, strict=True))


def test_a_class_over_its_headroom_demands_and_one_under_it_supplies() -> None:
    usage = by_class(0.376 / 0.6, 0.376 / 0.3, 3.76)
    assert demands(usage, ORIGINAL) == pytest.approx(by_class(0.0, 0.076, 0.276))
    assert supplies(usage, ORIGINAL, ORIGINAL) == pytest.approx(by_class(0.6 - 0.376 - 0.03, 0.0, 0.0))


def test_five_percent_of_the_original_share_is_kept_back() -> None:
    shares = by_class(0.4, 0.4, 0.2)
    assert supplies(by_class(0.95, 0.97, 0.9), shares, ORIGINAL) == pytest.approx(by_class(0.0, 0.0, 0.02 - 0.005))


def test_demands_are_met_in_the_order_of_original_priority() -> None:
    found = redistributed(by_class(0.376 / 0.6, 0.376 / 0.3, 3.76), ORIGINAL, ORIGINAL)
    assert found == pytest.approx(by_class(0.406, 0.376, 0.218))


def test_a_class_whose_demand_is_not_met_gets_its_original_share_back_from_the_least_important_first() -> None:
    shares = by_class(0.406, 0.376, 0.218)
    usage = by_class(0.6 / 0.406, 1.0, 0.376 / 0.218)
    assert redistributed(usage, shares, ORIGINAL) == pytest.approx(ORIGINAL)
    some = redistributed(by_class(0.5 / 0.406, 1.0, 0.376 / 0.218), shares, ORIGINAL)  # class 1 lacks 0.094
    assert some == pytest.approx(by_class(0.5, 0.376, 0.124))


def test_what_is_left_goes_to_classes_under_their_original_share_highest_first() -> None:
    found = redistributed(by_class(0.5, 0.5, 0.5), by_class(0.406, 0.376, 0.218), ORIGINAL)
    assert found == pytest.approx(by_class(0.6, 0.286, 0.114))


def test_shares_and_headrooms_move_together_in_the_tenth_cycle_and_not_before() -> None:
    dilos = Dilos()
    dilos.begin(ORIGINAL)
    seen = [ClassCycle(one, 0.376, 0.0, 1e6, 3e8) for one in ORIGINAL]
    for one in (TWO, THREE):
        dilos.alomas[one].headroom = 0.376  # what a manager has learnt by itself
    for _ in range(9):
        assert dilos.decide(seen).share == ORIGINAL
    said = dilos.decide(seen)
    # Class 1 gives 0.6 - 0.376 - 0.03; nobody lacks anything, so all of it goes back to class 1, which is then under its original share.
    assert said.share == pytest.approx(ORIGINAL)
    dilos.alomas[THREE].headroom = 0.2
    for _ in range(9):
        dilos.alomas[THREE].headroom = 0.2
        dilos.decide(seen)
    dilos.alomas[THREE].headroom = 0.2
    said = dilos.decide(seen)
    assert said.share[THREE] > 0.1
    assert said.headroom[ONE] == pytest.approx(0.6 * said.share[ONE] / 0.6)
    assert sum(said.share.values()) == pytest.approx(1.0)


def test_a_late_class_gets_back_at_once_what_it_lent_and_sheds_nothing_for_it() -> None:
    assert recalled([ONE], by_class(0.406, 0.376, 0.218), ORIGINAL) == pytest.approx(ORIGINAL)
    assert recalled([TWO], by_class(0.7, 0.2, 0.1), ORIGINAL) == pytest.approx(ORIGINAL)
    assert recalled([ONE, TWO], by_class(0.5, 0.2, 0.3), ORIGINAL) == pytest.approx(ORIGINAL)
    dilos = Dilos()
    dilos.begin(ORIGINAL)
    dilos.shares = by_class(0.4, 0.4, 0.2)
    dilos.alomas[ONE].headroom = 0.4
    said = dilos.decide(
        [ClassCycle(ONE, 0.55, 0.2, 320e6, 300e6), ClassCycle(TWO, 0.3, 0.0, 4e6, 400e6), ClassCycle(THREE, 0.2, 0.0, 4e6, 500e6)]
    )
    assert said.share == pytest.approx(ORIGINAL)
    assert said.headroom[ONE] == pytest.approx(0.6)  # 0.4 by 0.6 / 0.4
    assert said.drop == {ONE: 0.0, TWO: 0.0, THREE: 0.0}
    late_again = dilos.decide([ClassCycle(ONE, 0.75, 0.25, 320e6, 300e6), ClassCycle(TWO, 0.3), ClassCycle(THREE, 0.2)])
    assert late_again.drop[ONE] > 0.0  # it has its own share, and its load exceeds that


shares_of = st.lists(st.floats(0.02, 1.0), min_size=2, max_size=5)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(shares_of, st.lists(st.lists(st.floats(0.0, 5.0), min_size=5, max_size=5), min_size=1, max_size=6))
def test_the_sum_is_constant_and_nobody_lacks_while_under_its_original_share(weights: list[float], rounds: list[list[float]]) -> None:
    original = {ClassId(number): weight / sum(weights) for number, weight in enumerate(weights)}
    shares = dict(original)
    for usages in rounds:
        usage = {one: usages[one] for one in original}
        lacking = demands(usage, shares)
        found = redistributed(usage, shares, original)
        assert sum(found.values()) == pytest.approx(1.0)
        for one, share in found.items():
            assert share > 0.0
            unmet = lacking[one] - (share - shares[one]) > 1e-9
            if lacking[one] > 0.0 and unmet:
                assert share >= original[one] - 1e-9
            # Who is less important gets nothing of the budget before this one has what it asked for.
            if lacking[one] > 0.0 and unmet:
                less = [other for other in original if original[other] < original[one]]
                assert all(found[other] <= max(shares[other], original[other]) + 1e-9 for other in less)
        shares = found
