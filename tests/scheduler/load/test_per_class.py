"""A load manager a class (Pham 2013, IV-B): only the class that is over its target sheds."""

from __future__ import annotations

import pytest
from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import ClassCycle
from millstream.scheduler.load.shedders import ClassShedders

ONE, THREE = ClassId(1), ClassId(3)


def shedders() -> ClassShedders:
    found = ClassShedders()
    found.begin({ONE: 0.6, ClassId(2): 0.3, THREE: 0.1})
    return found


def test_headrooms_begin_at_the_shares_of_the_priorities() -> None:
    assert {one: aloma.headroom for one, aloma in shedders().alomas.items()} == pytest.approx({1: 0.6, 2: 0.3, 3: 0.1})


def test_only_the_late_class_sheds_what_exceeds_its_own_headroom() -> None:
    said = shedders().decide([ClassCycle(ONE, 0.5, 0.0, 3e6, 300e6), ClassCycle(THREE, 0.16, 0.017, 510e6, 500e6)])
    assert said.drop == pytest.approx({ONE: 0.0, THREE: (0.16 - 0.1) / 0.16})


def test_a_class_that_is_never_shed_learns_its_headroom_and_drops_nothing() -> None:
    said = shedders().decide([ClassCycle(THREE, 0.16, 0.05, 510e6, 500e6, may_shed=False)])
    assert said.drop == {THREE: 0.0}


def test_a_class_keeps_what_it_learnt_when_another_comes() -> None:
    found = shedders()
    found.alomas[ONE].headroom = 0.8
    found.begin({ONE: 0.3, ClassId(2): 0.15, THREE: 0.05, ClassId(4): 0.5})
    assert found.alomas[ONE].headroom == pytest.approx(0.4)
    assert found.alomas[ClassId(4)].headroom == pytest.approx(0.5)
    found.begin({ONE: 1.0})
    assert set(found.alomas) == {ONE}
