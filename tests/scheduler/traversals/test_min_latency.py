"""Min-latency (Carney 2005, 3.3.1.2) on the thesis's tree, a tuple at each box, cost p, call overhead o.

b1 | b2 b1 | b6 b1 | b4 b2 b1 | b3 b2 b1 | b5 b3 b2 b1: total 15p + 15o, average latency (43/6)(p + o). Ties go by post-order: b4 before b3.
"""

import pytest

from tests.scheduler.traversals.runs import O, P, run_example


def test_every_tuple_is_brought_out_at_once() -> None:
    world, steps = run_example("min-latency")
    assert " ".join(steps) == "b1 b2 b1 b6 b1 b4 b2 b1 b3 b2 b1 b5 b3 b2 b1"
    assert world.driver.now_ns == 15 * P + 15 * O
    times = [time for _, time in world.responses_ns()]
    assert sum(times) / 6 == pytest.approx(43 / 6 * (P + O))
