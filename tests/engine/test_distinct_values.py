"""Different values of integers are found by sorting: what NumPy's `unique` gives, without its hashing."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream import engine
from millstream.engine.data.arrays import distinct


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)))
def test_it_gives_what_unique_gives(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    before = array.copy()
    assert distinct(array).tolist() == np.unique(array).tolist()
    assert (array == before).all()


@pytest.mark.parametrize("dtype", [np.uint64, np.int32, np.uint8])
def test_it_keeps_the_type(dtype: type[np.integer]) -> None:
    found = distinct(np.array([3, 1, 3, 2], dtype=dtype))
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), [1, 2, 3])


def test_the_engine_asks_unique_only_for_places_and_counts() -> None:
    assert engine.__file__ is not None
    root = Path(engine.__file__).parent
    calls = [(path, line) for path in root.rglob("*.py") for line in path.read_text().splitlines() if re.search(r"np\.unique\(", line)]
    assert calls
    assert [(path.name, line) for path, line in calls if "return_" not in line] == []
