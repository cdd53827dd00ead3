"""Growable vectors in one arena against lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.state.decoding import decode
from millstream.engine.state.encoding import encode
from millstream.engine.windows.vectors import Vectors

IDS = 6
STEP = st.tuples(st.sampled_from(["append", "append", "append", "drop", "restart"]), st.lists(st.integers(0, IDS - 1), max_size=12))


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_vectors_hold_what_lists_would(steps: list[Any]) -> None:
    vectors = Vectors([np.int64, np.float64])
    vectors.reserve_ids(IDS)
    held: list[list[int]] = [[] for _ in range(IDS)]
    for number, (what, drawn) in enumerate(steps):
        ids = np.array(sorted(drawn), dtype=np.int64)
        if what == "append":
            values = number * 100 + np.arange(len(ids), dtype=np.int64)
            positions = vectors.append(ids, [values, values / 2])
            assert vectors.columns[0][positions].tolist() == values.tolist()
            for i, value in zip(ids.tolist(), values.tolist(), strict=True):
                held[i].append(value)
        elif what == "drop":
            some = np.unique(ids)
            counts = np.array([len(held[i]) // 2 + len(held[i]) % 2 for i in some.tolist()], dtype=np.int64)
            vectors.drop_front(some, counts)
            for i, count in zip(some.tolist(), counts.tolist(), strict=True):
                del held[i][:count]
        else:
            vectors = decode(encode(vectors))
        at = vectors.positions(np.arange(IDS, dtype=np.int64))
        assert vectors.columns[0][at].tolist() == [value for one in held for value in one]
        assert vectors.columns[1][at].tolist() == [value / 2 for one in held for value in one]
        assert vectors.live == sum(map(len, held))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_vector_that_keeps_its_size_keeps_its_place(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, ids, rewritten = Vectors([np.int64]), np.arange(100, dtype=np.int64), []
    vectors.reserve_ids(100)
    rewrite = Vectors._rewrite
    monkeypatch.setattr(Vectors, "_rewrite", lambda self, *grown: (rewritten.append(len(rewritten)), rewrite(self, *grown)))
    for number in range(1_000):
        vectors.append(ids, [np.full(100, number)])
        if number >= size:
            vectors.drop_front(ids, np.ones(100, dtype=np.int64))
    assert len(rewritten) <= 8  # while it grows, and not again
    assert len(vectors.columns[0]) <= 100 * 4 * (size + 2)


@pytest.mark.timeout(20)
def test_vectors_that_grow_together_do_not_take_room_from_each_other() -> None:
    """Some could go back to the begin of their room and some must move, in an arena that is full: one new arena has room for all."""
    fields = {
        "columns": [np.zeros(64, dtype=np.int64)],
        "start": np.array([0, 12, 24, 24, 38, 42]),
        "size": np.array([1, 0, 0, 0, 1, 0]),
        "room": np.array([12, 12, 0, 14, 4, 0]),
        "used": 42,
        "live": 2,
    }
    vectors = Vectors.from_state(fields)
    ids = np.repeat(np.arange(6), [4, 5, 6, 6, 6, 7])
    vectors.append(ids, [np.arange(len(ids))])
    assert vectors.size.tolist() == [5, 5, 6, 6, 7, 7]
    kept = vectors.columns[0][vectors.positions(np.arange(6))]
    assert sorted(kept.tolist()) == sorted([0, 0, *range(len(ids))])
