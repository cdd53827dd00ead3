"""One shedder for all (Pham 2013, IV-A): it sees sums, and drops the same share everywhere."""

from __future__ import annotations

import pytest
from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import ClassCycle
from millstream.scheduler.load.shedders import CommonShedder

SHARES = {ClassId(1): 0.6, ClassId(2): 0.3, ClassId(3): 0.1}


def seen(number: int, load: float, response_ms: float, *, may_shed: bool = True, backlog_s: float = 0.0) -> ClassCycle:
    return ClassCycle(ClassId(number), load, backlog_s, response_ms * 1e6, 500e6, may_shed)


def test_one_late_class_makes_all_lose_alike() -> None:
    common = CommonShedder()
    common.begin(SHARES)
    said = common.decide([seen(1, 0.4, 3), seen(2, 0.4, 3), seen(3, 0.45, 510, backlog_s=0.17)])
    # 1.25 of load, 1 of headroom, and a backlog that one processor works off within a third of the target: a fifth is too much.
    assert said.drop == pytest.approx(dict.fromkeys(SHARES, 0.2))
    assert said.headroom == pytest.approx(SHARES)
    assert said.share == SHARES


def test_what_may_not_be_shed_is_made_up_for_by_the_others() -> None:
    common = CommonShedder()
    common.begin(SHARES)
    said = common.decide([seen(1, 0.5, 3, may_shed=False), seen(2, 0.5, 3), seen(3, 0.25, 510)])
    assert said.drop == pytest.approx({1: 0.0, 2: 0.25 / 0.75, 3: 0.25 / 0.75})


def test_nothing_is_dropped_while_every_class_is_in_time() -> None:
    common = CommonShedder()
    common.begin(SHARES)
    assert set(common.decide([seen(1, 2.0, 3), seen(2, 2.0, 499)]).drop.values()) == {0.0}


def test_without_classes_there_is_nothing_to_say() -> None:
    assert CommonShedder().decide([]).drop == {}
