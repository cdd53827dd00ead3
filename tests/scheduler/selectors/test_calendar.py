"""Calendar queue, by hand: FAS with α = 1, β = 1, S = 1 and costs 1 and 3 has ranks 1/N and 1/(3N).

With 4 tuples before the first and 1 before the second: 1/4 and 1/3, the second goes; with 2 and 1: 1/2 and 1/3, the first goes.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.policies.freshness_aware import FreshnessAware
from millstream.scheduler.selectors.calendar import CalendarSelector
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.view import View

from tests.support.scheduler_worlds import order_of


def queues(*rows: int) -> tuple[CalendarSelector, View]:
    builder = NetworkBuilder()
    sources = [builder.source(f"s{index}") for index in range(len(rows))]
    deltas = [builder.query(f"q{index}", Box(2 * index + 1, 1.0, source)) for index, source in enumerate(sources)]
    world = World("fas", deltas, builder=builder)
    view = world.core.view
    selector = CalendarSelector(FreshnessAware())
    selector.reset(view, 0)
    fill(selector, view, *rows)
    return selector, view


def fill(selector: CalendarSelector, view: View, *rows: int) -> None:
    view.units.rows[:] = rows
    view.units.available[:] = np.array(rows) > 0
    selector.changed(view, list(range(len(rows))), 0)


def test_the_first_bucket_that_holds_anything_is_served() -> None:
    selector, view = queues(4, 1)
    assert selector.pick(view, 0, 1) == [1]
    fill(selector, view, 2, 1)
    assert selector.pick(view, 0, 1) == [0]
    fill(selector, view, 2, 0)
    assert selector.pick(view, 0, 2) == [0]
    fill(selector, view, 0, 0)
    assert selector.pick(view, 0, 1) == []


def test_a_rank_of_nought_is_the_last() -> None:
    # Far below what a float can tell from 0: a selectivity of 1e-20 at two tuples, beside a query 10^6 times as dear as the best.
    builder = NetworkBuilder()
    sources = [builder.source(f"s{index}") for index in range(3)]
    boxes = [Box(1, 1e-20, sources[0]), Box(1e6, 1.0, sources[1]), Box(1, 1.0, sources[2])]
    view = World("fas", [builder.query(f"q{index}", box) for index, box in enumerate(boxes)], builder=builder).core.view
    selector = CalendarSelector(FreshnessAware())
    selector.reset(view, 0)
    fill(selector, view, 2, 1, 0)
    assert selector.pick(view, 0, 3) == [1, 0]


def test_what_a_decision_costs_follows_the_queues_that_moved() -> None:
    selector, view = queues(1, 1, 1, 1)
    ranked, moved = selector.evaluations, selector.moves
    for rows in (2, 3, 2, 1):
        view.units.rows[3] = rows
        selector.changed(view, [3], 0)
        selector.pick(view, 0, 1)
    assert selector.evaluations == ranked
    assert selector.moves == moved + 4


def test_a_long_queue_is_ranked_at_the_lengths_it_has() -> None:
    selector, view = queues(1, 1)
    before = selector.evaluations
    for rows in (800, 700, 600):
        fill(selector, view, rows, 1)
        assert selector.pick(view, 0, 1) == [1]
    fill(selector, view, 700, 1)
    assert selector.evaluations == before + 3
    selector.reset(view, 0)  # the estimates have moved
    assert selector.evaluations == before + 3 + 1 + 16


def test_a_long_queue_that_moves_by_single_tuples_is_ranked_ahead() -> None:
    selector, view = queues(1, 1)
    for rows in range(400, 360, -1):
        fill(selector, view, rows, 1)
    ranked = selector.evaluations
    for rows in range(360, 0, -1):
        fill(selector, view, rows, 1)
    assert selector.evaluations == ranked


def test_a_decision_costs_the_same_however_long_a_queue_is() -> None:
    selector, view = queues(1, 1, 1)
    ranked = selector.evaluations
    for rows in (10**6, 5 * 10**6, 10**9):
        fill(selector, view, rows, 2 * rows, 1)
        assert selector.pick(view, 0, 3) == [2, 0, 1]
    selector.reset(view, 0)
    assert selector.pick(view, 0, 3) == [2, 0, 1]
    assert selector.evaluations - ranked <= 2 * 4 + 16 * 3


def test_a_queue_that_grows_tuple_by_tuple_is_looked_up_to_a_bound() -> None:
    selector, view = queues(1, 1)
    ranked = selector.evaluations
    for rows in range(1, 6_000):
        fill(selector, view, rows, 1)
    assert selector.evaluations - ranked == 4_096 - 16 + (5_999 - 4_096)


def test_what_is_kept_of_a_queue_that_is_millions_long_is_bounded() -> None:
    selector, view = queues(1, 1)
    before = selector.evaluations
    for turn in range(5_000):
        view.units.rows[0] = 5_000_000 - turn
        selector.changed(view, [0], 0)
    assert selector.evaluations == before + 5_000
    assert len(selector._ranks[0]) + len(selector._alone[0]) <= 2 * 4_096
    assert selector.pick(view, 0, 2) == [1, 0]


def test_what_was_entered_long_ago_does_not_pile_up() -> None:
    selector, view = queues(1, 1, 1)
    for turn in range(2_000):
        view.units.rows[2] = 1 + turn % 7
        selector.changed(view, [2], 0)
    assert sum(map(len, selector._buckets)) < 200


def test_what_is_locked_is_passed_over_and_comes_back() -> None:
    selector, view = queues(1, 1)
    view.units.available[0] = False
    assert selector.pick(view, 0, 1) == [1]
    view.units.available[0] = True
    selector.changed(view, [0], 0)
    assert selector.pick(view, 0, 2) == [0, 1]


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_it_picks_what_the_scan_picks(beta: float, seed: int) -> None:
    assert order_of(f"fas:beta={beta}", seed)[0] == order_of(f"fas:beta={beta},selector=scan", seed)[0]
