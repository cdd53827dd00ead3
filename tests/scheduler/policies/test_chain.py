"""Chain (Babcock et al. 2003) by its example: O1 cost 1, s 0.2, then O2 cost 1, s 0; one tuple of size 1 at t = 0, 1, 2 …

Memory just after the arrival at t = 0 … 7: Chain 1.0 1.2 1.4 1.6 1.8 2.0 2.2 2.4, FIFO 1.0 1.2 2.0 2.2 3.0 3.2 4.0 4.2.
"""

import pytest
from millstream.scheduler.events import Arrived
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World


def memory(policy: str) -> list[float]:
    builder = NetworkBuilder()
    source = builder.source("s")
    # "Selectivity 0.2" of the paper: what is left of a tuple is a fifth of its size; the second operator takes the rest away.
    second = Box(1_000, 1e-9, Box(1_000, 1.0, source, size=10, size_out=2, label="O1"), size=2, label="O2")
    world = World(policy, [builder.query("q", second)], builder=builder)
    world.executor.outcomes[builder.operator(second)] = (0,) * 8
    found = []
    for step in range(8):
        world.driver.post(Arrived(builder.log(source), 1, 10, step * 1_000), step * 1_000)
        world.run(step * 1_000)
        # What is being worked on since this moment is still there.
        found.append(world.core.ledger.bytes_waiting / 10)
    return found


def test_chain_keeps_less_in_memory_than_first_come() -> None:
    assert memory("chain") == pytest.approx([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4])
    assert memory("fcfs:level=operator") == pytest.approx([1.0, 1.2, 2.0, 2.2, 3.0, 3.2, 4.0, 4.2])


def test_operators_below_the_envelope_are_merged() -> None:
    # Sizes 10 -> 9 (cost 1), 9 -> 1 (cost 1), 1 -> 0 (cost 2): descents 1, then 4.5 to the second point: one segment of slope 4.5.
    builder = NetworkBuilder()
    source = builder.source("s")
    first = Box(1, 1.0, source, size=10, size_out=9)
    second = Box(1, 1.0, first, size=9, size_out=1)
    world = World("chain", [builder.query("q", Box(2, 1.0, second, size=1))], builder=builder)
    assert world.core.ranking is not None
    assert world.core.ranking.rank(world.core.view, 0).tolist() == pytest.approx([4.5, 4.5, 0.5])
