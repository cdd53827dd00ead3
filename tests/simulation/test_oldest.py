"""The oldest of what waits before an edge whose log is out of order: what sorting gives, at a cost that does not grow with the queue."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from millstream.scheduler.simulation.executor import _Log, _Oldest

STEPS = st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=6), st.integers(0, 8), st.integers(1, 4)), max_size=30)


@given(STEPS)
def test_the_first_rows_are_those_that_sorting_gives(steps: list[tuple[list[int], int, int]]) -> None:
    log, oldest, cursor = _Log(), _Oldest(), 0
    for number, (arrivals, taken, count) in enumerate(steps):
        log.rows += [(arrival, 100 * number + place) for place, arrival in enumerate(arrivals)]
        assert oldest.first(log, cursor, log.end, count) == sorted(log.rows[cursor:])[:count]
        cursor = min(cursor + taken, log.end)


def test_looking_at_a_long_queue_compares_few_of_its_rows() -> None:
    compared = 0

    class Counted(tuple[int, int]):
        __slots__ = ()

        def __lt__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple.__lt__(self, other)  # type: ignore[operator]

    chance = random.Random(1)
    log, oldest = _Log(), _Oldest()
    log.rows += [Counted((chance.randrange(10**6), place)) for place in range(20_000)]
    oldest.first(log, 0, log.end, 1)
    compared = 0
    for cursor in range(1, 101):
        log.rows.append(Counted((10**6, 20_000 + cursor)))
        oldest.first(log, cursor, log.end, 1)
    assert compared < 100 * 100
