"""Threshold pruning (Sharaf 2007, 3.7.2) by hand: forty queries in five cost classes are served as by a scan, with fewer ranks computed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.policies.balance_response_time import BalanceResponseTime
from millstream.scheduler.selectors.threshold import ThresholdSelector

from tests.support.scheduler_worlds import many_queries, order_of, two_queries


def test_the_search_ends_when_nothing_unread_can_be_better() -> None:
    # BRT at 10: fixed parts 1/4 (A) and 1/8 (B), heads 4 and 0. The lists begin with A and with B: ranks 1.5 and 1.25, and nothing unread
    # can be above 1/4 · 10 = 2.5, so the second row is read too.
    view = two_queries("brt").core.view
    selector = ThresholdSelector(BalanceResponseTime())
    selector.reset(view, 10)
    assert selector.pick(view, 10, 1) == [0]
    assert selector.evaluations == 2


def test_pruning_ranks_fewer_units_than_a_scan() -> None:
    scan, pruned = many_queries("bsd-naive"), many_queries("bsd-naive:selector=threshold")
    assert scan.order == pruned.order
    assert pruned.core.statistics().evaluations < scan.core.statistics().evaluations


@pytest.mark.parametrize("policy", ["lsf", "brt", "bsd-naive"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_threshold_picks_what_the_scan_picks(policy: str, seed: int) -> None:
    assert order_of(f"{policy}:selector=threshold", seed)[0] == order_of(policy, seed)[0]
