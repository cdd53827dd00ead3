"""Two levels (Aurora's RR, Sharaf 2007, 3.2) by hand: three queries with two tuples each go q0 q1 q2 q0 q1 q2, whatever their rates.

Inside a query the operator of the greatest rate goes first: with one tuple before each of a (rate 1/3) and b (rate 1/1) that is b.
"""

from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World


def test_queries_take_turns() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = [builder.query(f"q{index}", Box(1 + index, 1.0, source, label=f"q{index}")) for index in range(3)]
    world = World("rr", deltas, builder=builder)
    world.arrive(source, 0, rows=2)
    world.run()
    assert world.steps() == ["q0", "q1", "q2", "q0", "q1", "q2"]


def test_inside_a_query_the_greatest_rate_goes_first() -> None:
    builder = NetworkBuilder()
    source, other = builder.source("s"), builder.source("t")
    inner = Box(2, 1.0, source, label="a")
    world = World("rr:level=operator", [builder.query("q", Box(1, 1.0, inner, other, label="b"))], builder=builder)
    world.arrive(source, 0)
    world.arrive(other, 0)
    world.run()
    assert world.steps() == ["b", "a", "b"]
