"""Takes the oldest rows of a log out of memory: the same trains, over arrays that lie in a file which the system maps.

So a reader that comes to them finds ordinary columns, in the same order and with the same watermarks, and nobody who reads knows of it.
Where the arrays go is the business of whoever calls this (`Place`): the engine opens no file. A node's own memory stays, some hundred bytes
for SPILLED_ROWS rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrivals import SteppedArrivals
from millstream.engine.data.chunks import Arrays, column_over, parts_of
from millstream.engine.data.train import Numbers, Train, concat_trains
from millstream.engine.data.watermarks import arrays_of, with_arrays
from millstream.engine.flow.cursors import compacted, train_of
from millstream.engine.flow.queues import OutputLog

Place = Callable[[Arrays], Sequence[Any] | None]
"""Returns the arrays as they lie in a file (None stands for None), or None where there is no room for them. It may raise OSError."""

AHEAD_ROWS = 65_536  # that the slowest reader takes next: to write them and read them at once would be waste
RACES_MAX = 8  # how often a reader may come between


def spill(log: OutputLog, place: Place, rows_kept: int, bytes_kept: int) -> int:
    """Take the oldest rows of a log out of memory until no more than this is left there; returns how many rows went.

    Raises what `place` does; what went before has gone.
    """
    gone = races = 0
    ahead = min(AHEAD_ROWS, rows_kept)
    while (log.rows_in_memory > rows_kept or log.bytes_in_memory > bytes_kept) and races < RACES_MAX:
        nodes = log.oldest_in_memory(ahead)
        if not nodes:
            break
        train = placed(compacted(concat_trains([train_of(node) for node in nodes])), place)
        if train is None:
            break
        if log.take_over(nodes, train):
            gone += train.rows
        else:
            races += 1
    return gone


def placed(train: Train, place: Place) -> Train | None:
    """Return a compact train whose arrays lie where `place` puts them; None where they cannot."""
    arrays: list[npt.NDArray[Any] | None] = []
    known: dict[int, int] = {}

    def add(part: Sequence[npt.NDArray[Any] | None]) -> list[int]:
        """Note arrays, one that is there already only once (W is often made of the event times); returns their places."""
        found = []
        for array in part:
            at = len(arrays) if array is None else known.setdefault(id(array), len(arrays))
            if at == len(arrays):
                arrays.append(array)
            found.append(at)
        return found

    columns = train.columns()
    parts = [parts_of(column) for column in columns]
    if any(part is None for part in parts):
        return None
    lie = [add(part or ()) for part in parts]
    seq, time, track = add(_array_of(train.seq)), add(_array_of(train.time)), add(arrays_of(train.track))
    arrival = add(() if train.arrival.is_constant else train.arrival.steps())
    views = place(arrays)
    if views is None:
        return None
    moved = train.replace_columns(
        train.schema, [column_over(column, [views[i] for i in at]) for column, at in zip(columns, lie, strict=True)]
    )
    moved.seq, moved.time = _over(train.seq, [views[i] for i in seq]), _over(train.time, [views[i] for i in time])
    moved.track = with_arrays(train.track, [views[i] for i in track])
    if arrival:
        moved.arrival = SteppedArrivals(views[arrival[0]], views[arrival[1]], distinct=True)
    if train.origin:  # a source's rows are their own origin
        moved.origin = (copy(moved),)
    return moved


def _array_of(numbers: Numbers) -> tuple[npt.NDArray[np.int64], ...]:
    return () if numbers.is_constant or numbers.is_range else (numbers.array(),)


def _over(numbers: Numbers, views: Sequence[npt.NDArray[np.int64]]) -> Numbers:
    return Numbers(numbers.rows, array=views[0]) if views else numbers
