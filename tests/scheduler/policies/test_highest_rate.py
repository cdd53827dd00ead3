"""HR and HNR by the example of Sharaf 2007, table 3.1.

Q1: one operator, 5 ms, selectivity 1. Q2: one operator, 2 ms, selectivity 0.33. Three tuples wait at time 0, Q2 emits the second.
HR ranks Q1 1/5 = .2 over Q2 .33/2 = .165; results at 5, 10, 15 and 19 ms. HNR ranks Q2 .165/2 = .0825 over Q1 .2/5 = .04;
results at 4, 11, 16 and 21 ms.
"""

import pytest
from millstream.engine.data.graph import OperatorId
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

MS = 1_000_000


def run(policy: str) -> tuple[list[float], list[float], World]:
    builder = NetworkBuilder()
    stream = builder.source("s")
    first, second = Box(5 * MS, 1.0, stream, label="Q1"), Box(2 * MS, 0.33, stream, label="Q2")
    world = World(policy, [builder.query("Q1", first), builder.query("Q2", second)], builder=builder)
    world.executor.outcomes[builder.operator(second)] = (0, 1, 0)
    world.arrive(stream, 0, rows=3)
    world.run()
    ideal = {builder.operator(first): 5.0, builder.operator(second): 2.0}
    responses = [(operator, time / MS) for operator, time in world.responses_ns()]
    return [time for _, time in responses], [time / ideal[operator] for operator, time in responses], world


def ranks(world: World, policy_rank: str) -> list[float]:
    view = world.core.view
    assert world.core.ranking is not None, policy_rank
    return [rank * MS for rank in world.core.ranking.rank(view, 0).tolist()]


def test_hr_ranks_by_output_per_cost_and_gives_the_thesis_times() -> None:
    responses, slowdowns, world = run("hr")
    assert ranks(world, "hr") == pytest.approx([0.2, 0.165])
    assert responses == [5.0, 10.0, 15.0, 19.0]
    assert sum(responses) / 4 == 12.25
    assert sum(slowdowns) / 4 == pytest.approx(3.875)


def test_hnr_weighs_by_ideal_time_and_gives_the_thesis_times() -> None:
    responses, slowdowns, world = run("hnr")
    assert [rank * MS for rank in ranks(world, "hnr")] == pytest.approx([0.04, 0.0825])
    assert responses == [4.0, 11.0, 16.0, 21.0]
    assert sum(responses) / 4 == 13.0
    assert sum(slowdowns) / 4 == pytest.approx(2.9)


@pytest.mark.parametrize("policy", ["hr", "hnr"])
def test_scan_picks_what_the_heap_picks(policy: str) -> None:
    assert run(policy)[2].order == run(f"{policy}:selector=scan")[2].order


def test_level_operator_stops_after_every_operator() -> None:
    builder = NetworkBuilder()
    stream = builder.source("s")
    inner = Box(MS, 1.0, stream, label="a")
    # After one tuple of a, b (rate 1/1) beats a (rate 1/2): the tuple goes on at once, as with level=query; with the
    # reverse costs of a longer tail the second tuple of a would wait just so.
    world = World("hr:level=operator", [builder.query("q", Box(MS, 1.0, inner, label="b"))], builder=builder)
    world.arrive(stream, 0, rows=2)
    world.run()
    assert world.steps() == ["a", "b", "a", "b"]
    assert world.order[0] == (OperatorId(2), 1)
