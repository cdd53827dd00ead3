"""Heap: ranks that do not drift, by hand: B (rank 1/2) and A (1/4) under SRPT come out B, A; what is locked meanwhile is passed over."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.policies.shortest_remaining_processing_time import ShortestRemainingProcessingTime
from millstream.scheduler.selectors.heap import HeapSelector

from tests.support.scheduler_worlds import order_of, two_queries


def test_the_greatest_rank_comes_first() -> None:
    view = two_queries("srpt").core.view
    selector = HeapSelector(ShortestRemainingProcessingTime())
    selector.reset(view, 10)
    assert selector.pick(view, 10, 2) == [1, 0]
    assert selector.pick(view, 10, 1) == []
    selector.changed(view, [0, 1], 10)
    view.units.available[1] = False
    assert selector.pick(view, 10, 2) == [0]


@pytest.mark.parametrize("policy", ["fcfs", "srpt", "hr", "hnr", "chain", "fas", "edf", "path-capacity", "segment", "fixed-priority"])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_heap_picks_what_the_scan_picks(policy: str, seed: int) -> None:
    assert order_of(f"{policy}:selector=heap", seed)[0] == order_of(f"{policy}:selector=scan", seed)[0]
