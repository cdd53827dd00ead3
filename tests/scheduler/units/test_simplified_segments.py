"""Simplified segments (Pajjuri 2004, 4.1.5) by hand: at most two a path, the first while mrc(next) / mrc(current) > γ.

Capacities 4, 3, 1, 9, 1: ratios 0.75 and 0.33, so with γ = 0.5 the first segment ends after 2, whatever follows. Where an operator gives no
memory back there is no ratio: from -1 the run goes on to 0 and to -1 and ends before -2; from 2 it ends before -1.
"""

import pytest
from millstream.scheduler.units.segments import cut_in_two


@pytest.mark.parametrize(
    ("capacities", "gamma", "segments"),
    [
        ((4.0, 3.0, 1.0, 9.0, 1.0), 0.5, [(1, 2), (3, 4, 5)]),
        ((4.0, 3.0), 0.5, [(1, 2)]),
        ((4.0, 3.0), 0.75, [(1,), (2,)]),
        ((2.0, -1.0, 5.0), 0.5, [(1,), (2, 3)]),
        ((-1.0, 0.0, 3.0, 2.0), 0.5, [(1, 2, 3, 4)]),
        ((-1.0, -1.0, -2.0), 0.5, [(1, 2), (3,)]),
        ((0.0, -1.0), 0.5, [(1,), (2,)]),
    ],
)
def test_where_a_path_is_cut(capacities: tuple[float, ...], gamma: float, segments: list[tuple[int, ...]]) -> None:
    path = tuple(range(1, len(capacities) + 1))
    assert cut_in_two(path, lambda slot: capacities[slot - 1], gamma) == segments
