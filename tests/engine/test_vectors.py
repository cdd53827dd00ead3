"""Growable vectors in one arena against lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine import windows
from millstream.engine.state.decoding import decode
from millstream.engine.state.encoding import encode
from millstream.engine.windows.vectors import Vectors

IDS = 20
STEP = st.tuples(
    st.sampled_from(["append", "append", "append", "drop", "restart"]),
    st.lists(st.tuples(st.integers(0, IDS - 1), st.sampled_from([1, 1, 2, 40])), max_size=IDS),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=40), st.sampled_from([1, 64]))
def test_vectors_hold_what_lists_would(steps: list[Any], arena: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows.vectors, "ARENA_MIN", arena)
        _run(steps)


def _run(steps: list[Any]) -> None:
    vectors = Vectors([np.int64, np.float64])
    vectors.reserve_ids(IDS)
    held: list[list[int]] = [[] for _ in range(IDS)]
    for number, (what, drawn) in enumerate(steps):
        ids = np.array(sorted(i for i, count in drawn for _ in range(count)), dtype=np.int64)
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
@pytest.mark.parametrize("seed", range(10))
def test_vectors_that_need_room_at_once_do_not_take_it_from_each_other(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 30))
    vectors, held = Vectors([np.int64]), [0] * count
    vectors.reserve_ids(count)
    for number in range(30):
        ids = np.sort(draw.integers(0, count, int(draw.choice([3, 50, 400]))))
        positions = vectors.append(ids, [np.full(len(ids), number)])
        assert len(set(positions.tolist())) == len(ids)
        held = [h + int(np.count_nonzero(ids == i)) for i, h in enumerate(held)]
        some = np.unique(draw.integers(0, count, count))
        gone = (vectors.size[some] * draw.choice([0, 0.5, 1.0])).astype(np.int64)
        vectors.drop_front(some, gone)
        for i, less in zip(some.tolist(), gone.tolist(), strict=True):
            held[i] -= less
        assert vectors.size[:count].tolist() == held


def test_an_arena_of_ever_more_vectors_becomes_longer_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = Vectors([np.int64, np.object_])
    rewritten: list[int] = []
    rewrite = Vectors._rewrite
    monkeypatch.setattr(Vectors, "_rewrite", lambda self, *grown: (rewritten.append(1), rewrite(self, *grown)))
    seen = vectors.columns[0][:1]  # somebody looks at it: it must not be taken from under him
    for number in range(200):
        ids = np.arange(10 * number, 10 * number + 10)
        vectors.reserve_ids(10 * number + 10)
        vectors.append(ids, [ids, np.array([str(i) for i in ids], dtype=np.object_)])
        if number % 50 == 20:
            vectors = decode(encode(vectors))
    assert not rewritten
    assert seen.tolist() == [0]
    at = vectors.positions(np.arange(2_000))
    assert vectors.columns[0][at].tolist() == list(range(2_000))
    assert vectors.columns[1][at].tolist() == [str(i) for i in range(2_000)]
    assert len(vectors.columns[0]) <= 2 * 2_000 * 4
    for _ in range(3):  # all but a few go, and what is left behind is given up when room is wanted
        vectors.drop_front(np.arange(1_900), np.minimum(vectors.size[:1_900], 1))
        vectors.append(np.arange(1_900, 2_000).repeat(60), [np.zeros(6_000, dtype=np.int64), np.zeros(6_000, dtype=np.object_)])
    assert rewritten
