"""EDF-HR: A = queries with now + C_i <= D_i by deadline, B = the others by rate; the head of B goes if now + C_B < D_A.

In the example D_A = 8, C_A = 3 · 4 = 12, D_B = 15, C_B = 2 · 2 = 4.

    at 10  A is late (10 + 12 > 8), B timely (14 <= 15). A would end at 22, not before 15: B goes.
    at 2   A is late (14 > 8), B timely. A would end at 14 < 15: A goes, though B could be first.
    at 12  both are late (16 > 15): by rate, 1/4 against 1/8: A goes.
    at -4  both are timely (8 <= 8): by deadline, 8 before 15: A goes.
"""

import pytest

from tests.support.scheduler_worlds import ranks, two_queries


@pytest.mark.parametrize(("now", "goes"), [(10, 1), (2, 0), (12, 0), (-4, 0)])
def test_which_query_goes(now: int, goes: int) -> None:
    found = ranks(two_queries("edf-hr"), now)
    assert found.index(max(found)) == goes
