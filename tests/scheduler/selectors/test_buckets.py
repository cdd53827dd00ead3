"""Buckets (Carney 2005, 4.4.2) by hand: three chains of four boxes of cost 1, deadlines 6, 10 and 14, one gradient, seven slack buckets.

A bucket is 14 / 7 = 2 wide. The first boxes' slacks are 6 - 4 = 2, 6 and 10 (box by box: 5, 9 and 13 before the last boxes), so the
chains lie in different buckets and are served in the order of their deadlines.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.policies.slope_slack import SlopeSlack
from millstream.scheduler.selectors import buckets as buckets_module
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.scheduler_worlds import IN_ORDER, S, chains, order_of, schedule


def test_buckets_are_served_by_gradient_then_slack() -> None:
    assert schedule("bucketing:gradients=1,slacks=7")[0] == IN_ORDER
    assert schedule("bucketing-push-through:gradients=1,slacks=7") == (IN_ORDER, [4.0, 8.0, 12.0])


def test_one_bucket_is_first_in_first_out() -> None:
    assert schedule("bucketing:gradients=1,slacks=1")[0] == "b1 b5 b9 b2 b6 b10 b3 b7 b11 b8 b12 b4"


def test_boxes_move_between_buckets_by_the_calendar_alone() -> None:
    # The second query's box waits while the first, of ten tuples, runs; its slack shrinks from 13 to past 6 without an event of its own.
    builder = NetworkBuilder()
    busy, waiting = builder.source("busy"), builder.source("waiting")
    flat = Asked(qos=((0.0, 1.0), (12.0, 1.0), (12.0, 0.0)))
    later = Asked(qos=((0.0, 1.0), (14.0, 1.0), (14.0, 0.0)))
    deltas = [builder.query("a", Box(S, 1.0, busy, label="a"), flat), builder.query("b", Box(S, 1.0, waiting, label="b"), later)]
    world = World("bucketing:gradients=1,slacks=7", deltas, builder=builder)
    world.arrive(waiting, 0)
    world.arrive(busy, *[index * S for index in range(20)])
    world.run()
    # At 2 s: box a's newest tuple has slack 12 - 1 = 11 (bucket 5), box b's 14 - 2 - 1 = 11 (bucket 5 as well, and there first).
    assert world.steps().index("b") < 8
    assert world.steps().count("b") == 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows=st.lists(st.integers(0, 4), min_size=9, max_size=9), heads=st.lists(st.integers(0, 20 * S), min_size=9, max_size=9))
def test_one_unit_by_itself_is_as_urgent_as_in_a_column(rows: list[int], heads: list[int]) -> None:
    world = chains("bucketing", [2, 3, 4], [6, 10, 14])
    view, ranking = world.core.view, SlopeSlack()
    for unit, entry in enumerate(view.units.entries.tolist()):
        waiting = rows[unit]
        world.core.ledger.rows[entry] = view.units.rows[unit] = waiting
        view.units.head_ns[unit] = heads[unit] if waiting else 2**62
        world.core.ledger.newest_ns[entry] = heads[unit] + 7 * waiting
    from millstream.scheduler.limits import NEVER_NS

    view.units.head_ns[view.units.rows == 0] = NEVER_NS
    utility, slack = ranking.urgency(view, 25 * S)
    alone = [ranking.urgency_one(view, unit, 25 * S) for unit in range(view.units.count)]
    assert alone == list(zip(utility.tolist(), slack.tolist(), strict=True))
    assert np.isfinite(utility).all()


@pytest.mark.parametrize("seed", range(12))
def test_units_placed_one_by_one_lie_where_a_pass_over_columns_puts_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few = order_of("bucketing-push-through:gradients=4,slacks=5", seed)
    monkeypatch.setattr(buckets_module, "_ONE_BY_ONE_MAX", 0)
    assert order_of("bucketing-push-through:gradients=4,slacks=5", seed) == few
