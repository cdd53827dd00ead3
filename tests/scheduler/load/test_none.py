"""No shedder: whatever is seen, nothing is done."""

from __future__ import annotations

import pytest
from millstream.engine.data.graph import ClassId
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.load.contract import ClassCycle
from millstream.scheduler.load.control import MANAGERS, load_manager
from millstream.scheduler.load.shedders import NoShedder


def test_no_overload_makes_it_drop_anything() -> None:
    manager = NoShedder()
    manager.begin({ClassId(1): 1.0})
    said = manager.decide([ClassCycle(ClassId(1), 9.0, 100.0, 1e12, 1e6)])
    assert (said.drop, said.share, said.headroom) == ({1: 0.0}, {1: 1.0}, {1: 1.0})


def test_managers_are_known_by_name_and_no_other_name_is() -> None:
    assert [load_manager(name).name for name in MANAGERS] == ["none", "common", "class", "dilos"]
    with pytest.raises(PolicyError, match="unknown load manager 'ration'"):
        load_manager("ration")
