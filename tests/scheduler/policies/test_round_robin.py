"""Round-robin (Pajjuri 2004, 4.1.1): operators in turn, bottom-up, equal quanta.

Six tuples before a, then b behind it, two at a time: a takes 2, b takes 2, three times. With a quantum of 4 ns, a of cost 2 takes two at
a time and b of cost 1 four, of which two are there.
"""

from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World


def run(policy: str, first: float = 1, second: float = 1) -> list[tuple[str, int]]:
    builder = NetworkBuilder()
    source = builder.source("s")
    world = World(policy, [builder.query("q", Box(second, 1.0, Box(first, 1.0, source, label="a"), label="b"))], builder=builder)
    world.arrive(source, 0, rows=6)
    world.run()
    network = world.core.network
    return [(network.node(network.operators.slot_of[operator]).label, rows) for operator, rows in world.order]


def test_every_operator_has_the_same_quantum_of_tuples() -> None:
    assert run("round-robin:train=2") == [("a", 2), ("b", 2)] * 3


def test_a_quantum_of_time_lets_a_cheap_operator_take_more() -> None:
    # 4 ns: two tuples of a, four of b; then 1 ns: less than a tuple of a, which takes one all the same.
    assert run("round-robin:quantum=4e-6", 2, 1) == [("a", 2), ("b", 2)] * 3
    assert run("round-robin:quantum=4e-6", 1, 2) == [("a", 4), ("b", 2), ("a", 2), ("b", 2), ("b", 2)]
    assert run("round-robin:quantum=1e-6", 2, 1) == [("a", 1), ("b", 1)] * 6


def test_an_operator_inside_a_path_has_its_own_quantum_and_what_is_left_over_is_not_lost() -> None:
    # a takes four of six, b behind it two of these; the path runs on until its inner queue is empty.
    assert run("path-capacity:quantum=4e-6", 1, 2) == [("a", 4), ("b", 2), ("a", 2), ("b", 2), ("b", 2)]
