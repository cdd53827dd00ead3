"""Turns, plain and by marks, by hand: of four units without the second, the turns go 0, 2, 3, 0, and three at once from there 2, 3, 0."""

import numpy as np
import pytest
from millstream.scheduler.selectors.turns import TurnsSelector
from millstream.scheduler.simulation.quick_selectors import MarkedTurnsSelector


@pytest.mark.parametrize("selector", [TurnsSelector(), MarkedTurnsSelector()], ids=["turns", "marked"])
def test_turns_go_round(selector: TurnsSelector | MarkedTurnsSelector) -> None:
    class Units:
        available = np.array([True, False, True, True])
        count = 4

    class View:
        units = Units()

    selector.reset(View(), 0)  # type: ignore[arg-type]
    assert [selector.pick(View(), 0, 1)[0] for _ in range(4)] == [0, 2, 3, 0]  # type: ignore[arg-type]
    assert selector.pick(View(), 0, 3) == [2, 3, 0]  # type: ignore[arg-type]
