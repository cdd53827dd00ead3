"""The arrival order of stored rows and the watermark before each, found from maxima of the event time.

The order is that of `millstream run`: by the greatest event time so far in the row's input, then by the order of inputs, then by place in
the input. The greatest time so far is a step function of the place; W before a row is that function, less the stream's delay. With one
input, the maxima of blocks are all that is needed. With several, each must know the others' step functions (Steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN

STEPS_MAX = 50_000_000
"""Of all inputs together that a query with several may have: 16 bytes each, once in the driver and once in each Python worker."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The greatest event time so far of one input: from row `places[i]` on it is `values_us[i]` (both rise); `rows` in all.

    `start_us` is the greatest before the first of these rows, TIME_MIN where they are the first of all.
    """

    values_us: Int64Array
    places: Int64Array
    rows: int
    delay_us: int
    start_us: int = TIME_MIN

    def before(self, keys_us: Int64Array, or_equal: bool) -> tuple[Int64Array, Int64Array]:
        """Return for each key how many rows have a greatest time so far below it (or equal to it), and W after those."""
        at = np.searchsorted(self.values_us, keys_us, side="right" if or_equal else "left")
        counts = np.append(self.places, self.rows)[at]
        watermarks = np.append(last_watermark(self.start_us, self.delay_us), self.values_us - self.delay_us)[at]
        return counts, watermarks


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows of one block in the order of all: their places from 1, and W of each stream before each row."""

    places: Int64Array
    watermarks_us: dict[str, Int64Array]


def reached(times_us: Int64Array, before_us: int) -> Int64Array:
    """Return the greatest time so far at each row, `before_us` being the greatest before the first."""
    running: Int64Array = np.maximum.accumulate(np.maximum(times_us, before_us)) if len(times_us) else times_us
    return running


def place_rows(
    stream: str, times_us: Int64Array, first: int, before_us: int, delay_us: int, streams: Sequence[str], steps: Mapping[str, Steps]
) -> Placed:
    """Return where the rows of a block stand. `first` is the place of its first row in its input, from 0; `streams` are all, in order."""
    keys = reached(times_us, before_us)
    places = np.arange(first + 1, first + 1 + len(keys), dtype=np.int64)
    own = np.concatenate((np.array([before_us], dtype=np.int64), keys[:-1])) if len(keys) else keys
    watermarks = {stream: np.where(own == TIME_MIN, TIME_MIN, own - delay_us)}
    mine = streams.index(stream)
    for number, other in enumerate(streams):
        if other != stream:
            counts, watermarks[other] = steps[other].before(keys, number < mine)
            places = places + counts
    return Placed(places, watermarks)


def steps_of(times_us: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the values and places at which the greatest time so far rises within a block."""
    running = reached(times_us, TIME_MIN)
    rises = np.flatnonzero(np.concatenate((running[:1] > TIME_MIN, running[1:] > running[:-1])))
    return running[rises], rises


def joined_steps(blocks: Sequence[tuple[Int64Array, Int64Array, int]], delay_us: int, start_us: int = TIME_MIN) -> Steps:
    """Return the steps of an input from those of its blocks: (values, places in the block, rows) each."""
    values: list[Int64Array] = []
    places: list[Int64Array] = []
    rows, greatest = 0, start_us
    for found, at, count in blocks:
        above = found > greatest
        values.append(found[above])
        places.append(at[above] + rows)
        rows += count
        greatest = max(greatest, int(found[-1])) if len(found) else greatest
    empty = np.empty(0, dtype=np.int64)
    return Steps(np.concatenate(values) if values else empty, np.concatenate(places) if places else empty, rows, delay_us, start_us)


def moves_of(stream: str, streams: Sequence[str], steps: Mapping[str, Steps]) -> tuple[Int64Array, Int64Array]:
    """Return how W of one input moves in the order of all: after the row at a place (from 1), to a value."""
    mine = streams.index(stream)
    own = steps[stream]
    places = own.places + 1
    for number, other in enumerate(streams):
        if other != stream:
            places = places + steps[other].before(own.values_us, number < mine)[0]
    return places, own.values_us - own.delay_us


def least_moves(moves: Sequence[tuple[Int64Array, Int64Array]], steps: Sequence[Steps]) -> tuple[Int64Array, Int64Array]:
    """Return how the least of several watermarks moves."""
    if len(moves) == 1:
        return moves[0]
    places = np.unique(np.concatenate([at for at, _ in moves]))
    starts = [last_watermark(own.start_us, own.delay_us) for own in steps]
    stood = [np.append(start, values)[np.searchsorted(at, places, "right")] for start, (at, values) in zip(starts, moves, strict=True)]
    return places, np.minimum.reduce(stood)


def last_watermark(greatest_us: int, delay_us: int) -> int:
    """Return W behind the last row of an input."""
    return TIME_MIN if greatest_us == TIME_MIN else min(greatest_us - delay_us, TIME_MAX - 1)
