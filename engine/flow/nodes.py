"""The nodes of a log's chain: each holds a train that waits, or lies in a file, and counts who has yet to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.column import Column
from millstream.engine.data.train import Numbers, Train, concat_trains
from millstream.engine.data.watermarks import compact_track, thinned

if TYPE_CHECKING:
    from millstream.engine.flow.queues import OutputLog

STEP_BYTES = 16  # a seq and a watermark
STEPS_KEPT_MAX = 8_192  # of W in a stretch without rows
MERGES_MAX = 64  # of nodes without rows, until what they say of W is put together


class LogNode:
    """One train in the chain. `readers` have yet to pass it; `cut` once a reader took only a part of it, `spilled` when it lies in a file.

    `controls` is 1 for a train without rows that must still be seen: a mark, or W moved (merged ones add up).
    """

    __slots__ = ("arrival_ns", "bytes", "controls", "cut", "merges", "next", "readers", "rows", "spilled", "track_bytes", "train")

    def __init__(self, train: Train | None, log: OutputLog | None = None) -> None:
        self.train = train
        self.readers = 0
        self.cut = self.spilled = False
        self.next: LogNode | None = None
        self.rows = self.bytes = self.controls = self.merges = self.track_bytes = 0
        self.arrival_ns: int | None = None
        if train is None:
            return
        self.rows = train.rows
        if train.rows:
            self.bytes = train.nbytes() if log is None else log.bytes_of(train)
            arrival = train.arrival
            self.arrival_ns = arrival.start_ns if arrival.is_constant else train.oldest_arrival()
        else:
            self.bytes = self.track_bytes = progress_bytes(train)
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
            joined.arrival = _arrivals_of_steps(joined)
        self.train = joined
        self.controls += following.controls
        tally = 0 if joined.tally is None else joined.tally.nbytes()
        self.track_bytes = progress_bytes(joined) if self.merges == 0 else self.track_bytes + following.track_bytes
        self.bytes = self.track_bytes + tally


def progress_bytes(train: Train) -> int:
    """Return the bytes of a train without rows: what it says of W, and of when that came."""
    return STEP_BYTES * (train.track.step_count + train.arrival.step_count)


def _arrivals_of_steps(train: Train) -> ArrivalTimes:
    """Return when the items arrived that moved W, and the last one: without rows nothing else can cause a result."""
    return train.arrival.only(distinct(np.append(train.track.steps()[0], train.hi - 1)))


def train_of(node: LogNode) -> Train:
    """Return the train of a node that has one, as all have but the first of a log."""
    assert node.train is not None
    return node.train


def compacted(train: Train) -> Train:
    """Return a train made of many small ones that holds its rows in arrays, and nothing of the parts."""
    seqs = train.seq.array()
    if int(seqs[-1]) - int(seqs[0]) == len(seqs) - 1:
        train.seq = Numbers(train.rows, start=int(seqs[0]), step=1)
    train.arrival = train.arrival.only(seqs) if not train.arrival.is_constant else train.arrival
    train.track = compact_track(train.track)
    train.slots = [Column(c.type, c.values, c.valid) for c in train.columns()]
    return train


def is_mergeable(first: LogNode, second: LogNode) -> bool:
    """Whether two neighbours only carry progress, for the same readers, and the first one no mark."""
    return (
        first.train is not None
        and first.rows == 0
        and second.rows == 0
        and first.readers == second.readers
        and not first.cut
        and not second.cut
        and not first.train.is_mark
    )
