"""Min-cost (Carney 2005, 3.3.1.2) on the thesis's tree, a tuple at each box, cost p, call overhead o.

Post-order b4 b5 b3 b2 b6 b1: total 15p + 6o, average output latency 12.5p + 6o.
"""

from tests.scheduler.traversals.runs import O, P, run_example


def test_min_cost_calls_every_box_once() -> None:
    world, steps = run_example("min-cost")
    assert steps == ["b4", "b5", "b3", "b2", "b6", "b1"]
    assert world.driver.now_ns == 15 * P + 6 * O
    times = [time for _, time in world.responses_ns()]
    assert len(times) == 6
    assert sum(times) / 6 == 12.5 * P + 6 * O
