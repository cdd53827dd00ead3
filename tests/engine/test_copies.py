"""Trains and tracks are copied by hand, member by member: no member may be forgotten."""

from __future__ import annotations

import copy

import numpy as np
from millstream.engine.train import Numbers, Train
from millstream.engine.types import BIGINT
from millstream.engine.watermarks import RowsTrack

from tests.support.engine_run import columns_of, schema_of


def track() -> RowsTrack:
    made = RowsTrack(3, 9, -5, np.array([4, 6, 8], dtype=np.int64), 2, first=5)
    assert made.in_order
    assert made.after(np.array([6], dtype=np.int64)).tolist() == [4]
    return made


def test_a_copied_track_has_every_member_and_goes_its_own_way() -> None:
    first = track()
    second = copy.copy(first)
    names = [name for kind in type(first).__mro__ for name in getattr(kind, "__slots__", ())]
    assert {name: getattr(second, name) for name in names} == {name: getattr(first, name) for name in names}
    wider = first.over(1, 12)
    assert (wider.lo, wider.hi, first.lo, first.hi) == (1, 12, 3, 9)
    assert [a.tolist() for a in wider.steps()] == [a.tolist() for a in first.steps()]


def test_a_copied_train_has_every_member_and_shares_its_columns() -> None:
    schema = schema_of(a=BIGINT)
    train = Train(
        schema,
        columns_of(schema, [(1,), (2,), (3,)]),
        rows=3,
        lo=3,
        hi=9,
        seq=Numbers(3, start=5, step=1),
        time=Numbers(3, array=np.array([4, 6, 8], dtype=np.int64)),
        arrival=Numbers(3, start=7),
        track=track(),
        ended=True,
        idle=False,
        flush=True,
        notes={"gap": 1},
    )
    train.origin = (train,)
    second = copy.copy(train)
    assert all(getattr(second, name) is getattr(train, name) for name in Train.__slots__)
    other = schema_of(b=BIGINT)
    changed = train.replace_columns(other, train.slots)
    assert changed.schema is other
    assert changed.slots is not train.slots
    assert all(getattr(changed, name) is getattr(train, name) for name in Train.__slots__ if name not in ("schema", "slots"))
