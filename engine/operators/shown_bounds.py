"""The bounds that the last '+' of each group showed, so that its '-' takes back the very same row."""

from __future__ import annotations

import numpy as np
from millstream.engine.data.train import Int64Array
from millstream.engine.operators.sliding_events import Events


class ShownBounds:
    """Per group id, window_start and window_end of its last '+'."""

    def __init__(self) -> None:
        self._bounds: Int64Array = np.zeros((2, 1), dtype=np.int64)

    def taken_back(self, events: Events, minus: Int64Array, plus: Int64Array, starts: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the bounds for the events `minus`, given that the events `plus` show `starts` and their instants."""
        size = int(events.group.max()) + 1
        if size > self._bounds.shape[1]:
            self._bounds = np.concatenate((self._bounds, np.zeros((2, size), dtype=np.int64)), axis=1)
        order = np.lexsort((events.order, events.group))
        group = events.group[order]
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order), dtype=np.int64)
        shows = np.full(len(order), -1, dtype=np.int64)
        shows[rank[plus]] = rank[plus]
        # For each event the last one before it that showed anything, if that was of the same group.
        last = np.concatenate((np.full(1, -1, dtype=np.int64), np.maximum.accumulate(shows)[:-1]))[rank[minus]]
        own = (last >= 0) & (group[np.maximum(last, 0)] == events.group[minus])
        shown = order[np.maximum(last, 0)]
        found = self._bounds[:, events.group[minus]]
        answer = np.where(own, starts[shown], found[0]), np.where(own, events.instant[shown], found[1])
        in_order = order[np.flatnonzero(shows >= 0)]
        self._bounds[0, events.group[in_order]] = starts[in_order]
        self._bounds[1, events.group[in_order]] = events.instant[in_order]
        return answer
