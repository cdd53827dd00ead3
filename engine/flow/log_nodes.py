"""One train in the chain of a log (queues.py): its counts, and how trains without rows are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.train import Train, concat_trains
from millstream.engine.data.watermarks import thinned

if TYPE_CHECKING:
    from millstream.engine.flow.queues import OutputLog

STEP_BYTES = 16  # a seq and a watermark
STEPS_KEPT_MAX = 8_192  # of W in a stretch without rows
MERGES_MAX = 64  # of nodes without rows, until what they say of W is put together


class LogNode:
    """One train in the chain. `readers` have yet to pass it; `cut` once a reader took only a part of it.

    `controls` is 1 for a train without rows that must still be seen: a mark, or W moved (merged ones add up).
    """

    __slots__ = ("arrival_ns", "bytes", "controls", "cut", "merges", "next", "readers", "rows", "track_bytes", "train")

    def __init__(self, train: Train | None, log: OutputLog | None = None) -> None:
        self.train = train
        self.readers = 0
        self.cut = False
        self.next: LogNode | None = None
        self.rows = self.bytes = self.controls = self.merges = self.track_bytes = 0
        self.arrival_ns: int | None = None
        if train is None:
            return
        self.rows = train.rows
        if train.rows:
            self.bytes = train.nbytes() if log is None else log.bytes_of(train)
            arrival = train.arrival
            self.arrival_ns = arrival.start if arrival.is_constant else oldest_arrival(train)
        else:
            self.bytes = self.track_bytes = STEP_BYTES * train.track.step_count
            self.controls = int(train.is_mark or train.track.end > train.track.start)
        if train.tally is not None:
            self.bytes += train.tally.nbytes()

    def merge(self, following: LogNode) -> None:
        """Take up the node behind, neither of them having rows. What only says that W moved is put together and thinned now and then."""
        joined = concat_trains([train_of(self), train_of(following)])
        self.merges += 1
        if self.merges >= MERGES_MAX:
            self.merges = 0
            joined.track = thinned(joined.track, STEPS_KEPT_MAX)
        self.train = joined
        self.controls += following.controls
        tally = 0 if joined.tally is None else joined.tally.nbytes()
        self.track_bytes = STEP_BYTES * joined.track.step_count if self.merges == 0 else self.track_bytes + following.track_bytes
        self.bytes = self.track_bytes + tally


def train_of(node: LogNode) -> Train:
    """Return the train of a node that has one, as all have but the first of a log."""
    assert node.train is not None
    return node.train


def oldest_arrival(train: Train) -> int:
    """Return the arrival time of the oldest row, in ns."""
    return train.arrival.start if train.arrival.is_constant else int(train.arrival.array().min())
