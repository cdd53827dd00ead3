"""The merged order of inputs against the rule said row by row."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from millstream.server.run.order import merged_order


def by_the_rule(inputs: list[list[int]]) -> list[tuple[int, int]]:
    at, order = [0] * len(inputs), []
    while any(at[i] < len(inputs[i]) for i in range(len(inputs))):
        heads = [(inputs[i][at[i]], i) for i in range(len(inputs)) if at[i] < len(inputs[i])]
        _, source = min(heads)
        order.append((source, at[source]))
        at[source] += 1
    return order


@given(st.lists(st.lists(st.integers(-5, 5), max_size=8), min_size=1, max_size=4))
def test_the_merged_order_is_that_of_the_rule(inputs: list[list[int]]) -> None:
    merged = merged_order([np.array(i, dtype=np.int64) for i in inputs])
    assert merged.tolist() == [source for source, _ in by_the_rule(inputs)]
