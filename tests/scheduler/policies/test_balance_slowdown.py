"""BSD: rank (S / (Cbar T)) (W / T) = Φ W with Φ = S / (Cbar T²). In the example Φ_A = 1 / (4 · 16) = 1/64 and Φ_B = (1/4) / (2 · 4) = 1/32,

times the waits 6 and 10: 0.09375 and 0.3125, so B goes first.
"""

import pytest

from tests.support.scheduler_worlds import ranks, two_queries


@pytest.mark.parametrize("policy", ["bsd-naive", "bsd-uniform", "bsd-log"])
def test_the_fixed_part_times_the_wait(policy: str) -> None:
    assert ranks(two_queries(policy)) == pytest.approx([0.09375, 0.3125])
