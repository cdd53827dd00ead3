"""The source boxes of query classes (Pham 2013, III-A): what lets the rows of a class's streams in to its queries.

Source operators run only when the queues of all other operators of the class are empty. A source operator is the box that reads a stream
for its class, not the first box of a query. So rows wait before all queries of the class until its boxes run, and queries of little output
do not starve.

Here a box is a mark on the log that its readers share: how far rows have been let in. To run it costs nothing and is no step. The boxes
of a class run together, up to the newest row of all its streams, as arrival numbers are one order for the whole server and a join takes
its inputs in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.scheduler.ledger import single_values
from millstream.scheduler.view import View
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]

_NONE, _SEVERAL = -1, -2


class SourceBoxes:
    """Which units hold rows that have been let in, `open`, and how many. A unit whose entry reads no stream is always open."""

    def __init__(self) -> None:
        self.open: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._open_at: memoryview[int] = memoryview(self.open)  # type: ignore[arg-type]
        self._edges: list[tuple[int, ...]] = []  # of each unit those over which its entry reads streams
        self._edge: list[int] = []  # the one over which it reads anything, _NONE where it reads no stream, _SEVERAL where it reads more
        self._until: IntColumn = np.zeros(0, dtype=np.int64)  # by edge, rows that have ever been let in
        self._until_at = single_values(self._until)
        self.picked: list[int] = []
        """Units that orders were made for: they may hold nothing more afterwards."""
        self._version = -1

    def reset(self, view: View) -> None:
        """Follow a new cut. Where the network has changed, nothing is let in until the boxes run again."""
        network = view.ledger.network
        if self._version == network.version and len(self._edges) == view.units.count:
            return
        self._version = network.version
        self._until = np.zeros(len(view.ledger.edge_consumed), dtype=np.int64)
        self._until_at = single_values(self._until)
        self._edges, self._edge, self.picked = [], [], []
        for entry in view.units.entries.tolist():
            inputs = network.inputs[entry]
            edges = tuple(edge for edge in inputs if network.is_source(network.edge_producer[edge]))
            self._edges.append(edges)
            self._edge.append(_NONE if not edges else edges[0] if len(inputs) == 1 else _SEVERAL)
        self.open = np.array([not edges for edges in self._edges], dtype=np.bool_)
        self._open_at = memoryview(self.open)  # type: ignore[arg-type]

    def run(self, view: View, units: Sequence[int]) -> None:
        """Let in all that waits before these units."""
        consumed, rows = view.ledger.consumed_at, view.ledger.edge_rows_at
        for unit in units:
            self._open_at[unit] = True
            for edge in self._edges[unit]:
                self._until_at[edge] = consumed[edge] + max(0, rows[edge])

    def follow(self, view: View) -> None:
        """Close the units that have taken what had been let in."""
        locked, under_way = view.units.locked, []
        for unit in self.picked:
            if self._edge[unit] == _NONE:
                continue
            if self._left(view, unit) <= 0:
                self._open_at[unit] = False
            elif locked.item(unit):
                under_way.append(unit)
        self.picked = under_way

    def _left(self, view: View, unit: int) -> int:
        consumed, until, edge = view.ledger.consumed_at, self._until_at, self._edge[unit]
        if edge >= 0:
            return until[edge] - consumed[edge]
        return sum(max(0, until[one] - consumed[one]) for one in self._edges[unit])

    def rows(self, view: View, unit: int, waiting: int) -> int:
        """Return how many of the rows that wait at a unit's entry have been let in."""
        edge = self._edge[unit]
        if edge >= 0:
            left = self._until_at[edge] - view.ledger.consumed_at[edge]
            return left if left > 0 else 0
        outside = sum(max(0, view.ledger.edge_rows_at[one]) for one in self._edges[unit])
        return max(0, waiting - outside + self._left(view, unit))
