"""Memory release capacity (Pajjuri 2004, 4.1.4): C_seg (in_bytes - S_seg out_bytes).

Sizes 10: an operator of cost 2 that passes 0.9 has mrc (10 - 9)/2 = 0.5, one of cost 1 that passes 0.2 has (10 - 2)/1 = 8: one segment of
C = 1 / (2 + 0.9 · 1) that gives back 10 - 0.18 · 10 = 8.2 of a tuple: 8.2 / 2.9. A segment that only makes tuples grow ranks below 0.
"""

import pytest
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.scheduler_worlds import ranks, unit_labels


def test_a_segment_is_ranked_as_a_whole() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    world = World("segment", [builder.query("q", Box(1, 0.2, Box(2, 0.9, source, size=10), size=10))], builder=builder)
    assert world.core.view.units.count == 1
    assert ranks(world, 0) == pytest.approx([8.2 / 2.9])


def test_a_segment_that_makes_tuples_grow_ranks_below_one_that_does_nothing() -> None:
    # Grow: 10 in, 1 · 15 out, cost 5: (10 - 15) / 5 = -1.
    builder = NetworkBuilder()
    deltas = [
        builder.query("q", Box(5, 1.0, builder.source("a"), size=10, size_out=15, label="grow")),
        builder.query("r", Box(5, 1.0, builder.source("b"), size=10, label="keep")),
    ]
    world = World("segment", deltas, builder=builder)
    assert unit_labels(world) == [["grow"], ["keep"]]
    assert ranks(world, 0) == [-1.0, 0.0]
