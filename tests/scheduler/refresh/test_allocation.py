"""Perceived freshness (Carney 2005, table 2.1): five copies that change 1 to 5 times a period, five polls.

Asked for alike: 1.15 1.36 1.35 1.14 0. By 1 to 5: .33 .67 1 1.33 1.67. By 5 to 1: 1.69 1.83 1.49 0 0 (the thesis prints 1.68).
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.refresh.allocation import (
    POLICIES,
    Column,
    Copies,
    general_polls,
    perceived_polls,
    uniform_polls,
)
from millstream.scheduler.refresh.freshness import distinct_gain, freshness, perceived, polls_for, ratio_of
from millstream.scheduler.refresh.partitions import KEYS, partitioned_polls

RISING = np.arange(1.0, 6.0)
ONES = np.ones(5)


@pytest.mark.parametrize(
    ("access", "polls"),
    [(ONES, [1.15, 1.36, 1.35, 1.14, 0.0]), (RISING, [0.33, 0.67, 1.0, 1.33, 1.67]), (RISING[::-1], [1.69, 1.83, 1.49, 0.0, 0.0])],
)
def test_the_thesis_s_example(access: Column, polls: list[float]) -> None:
    found = perceived_polls(Copies(access, RISING, ONES), 5.0)
    assert found.round(2).tolist() == polls
    assert found.sum() == pytest.approx(5.0)


def test_general_ignores_who_reads_and_uniform_ignores_all() -> None:
    copies = Copies(RISING[::-1], RISING, ONES)
    assert general_polls(copies, 5.0).round(2).tolist() == [1.15, 1.36, 1.35, 1.14, 0.0]
    assert uniform_polls(Copies(ONES, RISING, 2.0 * ONES), 5.0).tolist() == [0.5] * 5


def test_freshness_by_hand() -> None:
    # Two changes between two polls: (1 - e^-2) / 2; never polled 0; never changing 1.
    found = freshness(np.array([1.0, 0.0, 3.0]), np.array([2.0, 2.0, 0.0]))
    assert found.tolist() == pytest.approx([(1.0 - np.exp(-2.0)) / 2.0, 0.0, 1.0])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ratio=st.one_of(st.floats(1e-6, 30.0), st.floats(-80.0, -6.0).map(lambda power: 10.0**power)))
def test_the_inverse_of_the_gain(ratio: float) -> None:
    gain = distinct_gain(np.array([ratio]))
    assert distinct_gain(ratio_of(gain))[0] == pytest.approx(gain[0], rel=1e-9)


@pytest.mark.parametrize("changes", [10.0**-power for power in (0, 5, 8, 9, 10, 12, 16, 24, 29, 31, 100, 308, 320)])
def test_copies_that_hardly_ever_change_have_a_plan(changes: float) -> None:
    alone = perceived_polls(Copies(np.array([changes]), np.array([changes]), np.ones(1), np.full(1, 0.1)), 5.0)
    assert alone.tolist() == pytest.approx([5.0 if changes > 1e-30 else 0.1])
    pair = perceived_polls(Copies(np.array([changes, 1.0]), np.array([changes, 0.1]), np.ones(2), np.full(2, 0.1)), 5.0)
    assert pair.sum() == pytest.approx(5.0)


COPIES = st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.01, 20.0), st.floats(0.1, 8.0)), min_size=2, max_size=12)


@settings(max_examples=30, deadline=None, derandomize=True)
@example(rows=[(1.0, 4.0, 4.0), (1.0, 16.0, 1.0)], share=0.0625, seed=0)  # equal worth, and a budget too small for a price of its own
@example(rows=[(0.88, 10.74, 7.66), (0.97, 9.03, 7.64), (0.5, 9.0, 7.0)], share=0.0625, seed=1)
@given(rows=COPIES, share=st.floats(0.05, 5.0), seed=st.integers(0, 1_000))
def test_no_other_way_to_spend_the_budget_is_perceived_as_fresher(rows: list[tuple[float, float, float]], share: float, seed: int) -> None:
    copies = Copies(*(np.array(column) for column in zip(*rows, strict=True)))
    budget = share * float(copies.sizes.sum())
    best = perceived_polls(copies, budget)
    assert (best >= 0.0).all()
    assert float((best * copies.sizes).sum()) == pytest.approx(budget)
    most = perceived(copies.access, best, copies.changes)
    chance = np.random.default_rng(seed)
    for _ in range(30):
        moved = best * chance.uniform(0.5, 1.5, len(best)) + chance.uniform(0.0, 0.1, len(best))
        moved *= budget / float((moved * copies.sizes).sum())
        assert perceived(copies.access, moved, copies.changes) <= most + 1e-9
    others = [policy(copies, budget) for policy in POLICIES.values()] + [partitioned_polls(copies, budget, 3, key) for key in KEYS]
    assert all(perceived(copies.access, polls, copies.changes) <= most + 1e-9 for polls in others)


@pytest.mark.parametrize("fixed_bandwidth", [False, True])
@pytest.mark.parametrize("key", list(KEYS))
def test_partitions_spend_the_budget_and_come_near_the_best_as_they_grow(key: str, fixed_bandwidth: bool) -> None:
    chance = np.random.default_rng(3)
    copies = Copies(1.0 / np.arange(1, 501), chance.gamma(4.0, 0.5, 500), chance.uniform(0.5, 2.0, 500))
    found = [partitioned_polls(copies, 250.0, count, key, fixed_bandwidth=fixed_bandwidth) for count in (1, 10, 500)]
    assert [float((polls * copies.sizes).sum()) for polls in found] == pytest.approx([250.0] * 3)
    reached = [perceived(copies.access, polls, copies.changes) for polls in found]
    best = perceived(copies.access, perceived_polls(copies, 250.0), copies.changes)
    assert reached[0] < best
    assert reached[2] == pytest.approx(best)


def test_half_a_million_copies_are_solved_exactly() -> None:
    chance = np.random.default_rng(1)
    copies = Copies(1.0 / np.arange(1, 500_001), chance.gamma(2.0, 1.0, 500_000), chance.pareto(1.5, 500_000) + 0.5)
    polls = perceived_polls(copies, 250_000.0)
    assert float((polls * copies.sizes).sum()) == pytest.approx(250_000.0)
    polled = polls > 1e-3
    price = copies.access[polled] * distinct_gain(copies.changes[polled] / polls[polled]) / (copies.changes[polled] * copies.sizes[polled])
    assert float(price.max() / price.min()) == pytest.approx(1.0, abs=1e-4)  # one μ for all


def test_what_makes_no_sense_is_refused() -> None:
    copies = Copies(ONES, RISING, ONES)
    for budget in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PolicyError, match="refresh budget"):
            perceived_polls(copies, budget)
    with pytest.raises(PolicyError, match="unknown key 'size'"):
        partitioned_polls(copies, 5.0, 2, "size")
    with pytest.raises(PolicyError, match="0 partitions"):
        partitioned_polls(copies, 5.0, 0)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(wanted=st.floats(0.01, 0.99), changes=st.floats(0.01, 50.0))
def test_polls_for_a_freshness_give_that_freshness(wanted: float, changes: float) -> None:
    polls = polls_for(np.array([wanted]), np.array([changes]))
    assert freshness(polls, np.array([changes]))[0] == pytest.approx(wanted, rel=1e-6)
    assert polls_for(np.zeros(1), np.array([changes]))[0] == 0.0


def test_a_least_freshness_is_kept_and_the_rest_goes_where_it_is_perceived_most() -> None:
    # The fifth would get nothing (table 2.1); a third of the time fresh costs it some 1.8 polls, which the others lack.
    floor = polls_for(np.array([0.0, 0.0, 0.0, 0.0, 1.0 / 3.0]), RISING)
    found = perceived_polls(Copies(ONES, RISING, ONES, floor), 5.0)
    assert freshness(found, RISING)[4] == pytest.approx(1.0 / 3.0)
    assert found.sum() == pytest.approx(5.0)
    rest = perceived_polls(Copies(ONES[:4], RISING[:4], ONES[:4]), 5.0 - floor[4])
    assert found[:4] == pytest.approx(rest)
    # More than there is: each gets the same part of its least.
    scarce = perceived_polls(Copies(ONES, RISING, ONES, RISING), 5.0)
    assert scarce == pytest.approx(RISING / 3.0)


def test_k_means_mends_partitions() -> None:
    chance = np.random.default_rng(3)
    copies = Copies(1.0 / np.arange(1, 501), chance.gamma(4.0, 0.5, 500), np.ones(500))

    def reached(iterations: int) -> float:
        return perceived(copies.access, partitioned_polls(copies, 250.0, 10, iterations=iterations), copies.changes)

    assert reached(0) < reached(1) < reached(10) < perceived(copies.access, perceived_polls(copies, 250.0), copies.changes)
