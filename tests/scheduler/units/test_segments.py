"""Segments (Pajjuri 2004, 4.1.4) by hand.

Capacities along a path 1, 3, 2, 5, 5: the release grows from 1 to 3, falls to 2, grows to 5, does not grow to 5: (1 2) (3 4) (5).
Pruning over paths, in the order found: (2 3), (4), (4) again, (1 2 3), (3): the second (4) equals a listed one, (1 2 3) contains and
replaces (2 3), (3) lies inside it: left are (4) and (1 2 3).
"""

from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.units.segments import cut_path, is_inside, prune

from tests.support.scheduler_worlds import ranks, unit_labels


def test_a_path_is_cut_where_the_release_does_not_grow() -> None:
    capacities = {1: 1.0, 2: 3.0, 3: 2.0, 4: 5.0, 5: 5.0}
    assert cut_path((1, 2, 3, 4, 5), capacities.__getitem__) == [(1, 2), (3, 4), (5,)]


def test_negative_releases_are_compared_like_others() -> None:
    # From giving 2 to taking 1, to taking 3, to taking 2 (which is more than -3).
    capacities = {1: 2.0, 2: -1.0, 3: -3.0, 4: -2.0}
    assert cut_path((1, 2, 3, 4), capacities.__getitem__) == [(1,), (2,), (3, 4)]


def test_pruning_keeps_the_longest() -> None:
    assert is_inside((2, 3), (1, 2, 3))
    assert not is_inside((1, 3), (1, 2, 3))
    assert prune([(2, 3), (4,), (4,), (1, 2, 3), (3,)]) == [(4,), (1, 2, 3)]


def test_the_segments_of_two_queries() -> None:
    # Sizes 10 everywhere. mrc(l1) = (10 - 5)/2 = 2.5, mrc(l2) = (10 - 10)/4 = 0: two segments. mrc(r1) = mrc(r2) = 0: two more.
    builder = NetworkBuilder()
    left, right = builder.source("left"), builder.source("right")
    first = builder.query("left", Box(4, 1.0, Box(2, 0.5, left, label="l1", size=10), label="l2", size=10))
    second = builder.query("right", Box(2, 1.0, Box(3, 1.0, right, label="r1", size=10), label="r2", size=10))
    world = World("segment", [first, second], builder=builder)
    assert unit_labels(world) == [["l1"], ["l2"], ["r1"], ["r2"]]
    assert ranks(world, 0) == [2.5, 0.0, 0.0, 0.0]


def test_paths_that_share_their_end_share_its_segment() -> None:
    # Both paths end in "shared", whose release (10 - 1)/1 = 9 is above a's (10 - 9)/1 = 1 and b's (10 - 5)/1 = 5: (a shared), (b shared).
    # A third path on which c, (10 - 0.1)/0.5 = 19.8, comes before it has (c) and (shared), which lies inside the listed ones.
    builder = NetworkBuilder()
    a, b, c = (builder.source(name) for name in "abc")
    leaves = [
        Box(1, 0.9, a, size=10, label="a"),
        Box(1, 0.5, b, size=10, label="b"),
        Box(0.5, 0.01, c, size=10, label="c"),
    ]
    world = World("segment", [builder.query("q", Box(1, 0.1, *leaves, size=10, label="shared"))], builder=builder)
    assert unit_labels(world) == [["a", "shared"], ["b", "shared"], ["c"]]
