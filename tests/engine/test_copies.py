"""What is copied member by member, because `copy` takes long, is copied whole: a member that is added later is not forgotten."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.train import Numbers, Train, empty_train
from millstream.engine.data.types import BIGINT
from millstream.engine.data.watermarks import RowsTrack, constant_track

TRACK = RowsTrack(3, 9, 5, np.array([7, 8], dtype=np.int64), 1, first=4)


def train() -> Train:
    made = empty_train(Schema((Field("a", BIGINT),)), 3, 9, constant_track(3, 9, 5), arrival=ArrivalTimes(4, 1))
    made.seq, made.notes, made.flush = Numbers(2, start=4, step=1), {"gap": 1}, True
    return made


def members(thing: Any) -> dict[str, Any]:
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(thing, name) for name in names}


@pytest.mark.parametrize("thing", [train(), TRACK], ids=["train", "track"])
def test_a_copy_has_every_member(thing: Any) -> None:
    twin = copy.copy(thing)
    assert twin is not thing
    assert type(twin) is type(thing)
    found = members(twin)
    for name, value in members(thing).items():
        assert found[name] is value, name
