"""Rows that wait for their end leave in order of arrival, and are copied a few times only, however few come at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data import buffered
from millstream.engine.data.buffered import BufferedRows, WaitingRows
from millstream.engine.data.column import Column
from millstream.engine.data.types import BIGINT
from millstream.engine.data.watermarks import TIME_MAX

END = st.integers(0, 30)
STEPS = st.lists(st.lists(END, min_size=1, max_size=5) | END, max_size=60)


def rows_of(ends: list[int], first: int) -> BufferedRows:
    places = np.arange(first, first + len(ends), dtype=np.int64)
    return BufferedRows([Column(BIGINT, np.array(ends, dtype=np.int64))], places, places, places)


def ends_of(rows: BufferedRows) -> Any:
    return rows.columns[0].values


@given(STEPS)
def test_those_leave_whose_end_is_reached(steps: list[list[int] | int]) -> None:
    waiting, expected, count = WaitingRows(rows_of([], 0)), list[tuple[int, int]](), 0
    for step in steps:
        if isinstance(step, list):
            rows = rows_of(step, count)
            waiting.add(rows, ends_of(rows))
            expected += list(zip(step, range(count, count + len(step)), strict=True))
            count += len(step)
        else:
            left = waiting.leave(step, ends_of)
            assert list(zip(ends_of(left).tolist(), left.ordinal.tolist(), strict=True)) == [one for one in expected if one[0] <= step]
            expected = [one for one in expected if one[0] > step]
        assert (len(waiting), waiting.least_end_us) == (len(expected), min((end for end, _ in expected), default=TIME_MAX))
    assert waiting.whole().ordinal.tolist() == [place for _, place in expected]


def test_rows_that_come_one_by_one_are_copied_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    copied, join = 0, buffered.concat_rows

    def counted(*parts: BufferedRows) -> BufferedRows:
        nonlocal copied
        made = join(*parts)
        copied += len(made)
        return made

    monkeypatch.setattr(buffered, "concat_rows", counted)
    waiting = WaitingRows(rows_of([], 0))
    for place in range(4_096):
        rows = rows_of([10], place)
        waiting.add(rows, ends_of(rows))
        assert len(waiting.leave(9, ends_of)) == 0
    assert copied <= 4_096 * 13
