"""The nodes of a log's chain, and the cursors that walk it: what waits before a reader, and how that is taken: joined, cut, or in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from millstream.engine.data import limits
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.column import Column
from millstream.engine.data.graph import EdgeId
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Int64Array, Numbers, Train, concat_trains, empty_train
from millstream.engine.data.watermarks import compact_track, constant_track, thinned

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


@dataclass(slots=True)
class Portion:
    """A train taken from an edge with its share of the log's counts.

    `controls` may be -1: rows were taken without the mark behind them, which waits by itself from now on. `parts`: several trains that
    were taken together and not joined (`take_parts`); `train` then is the last of them, and the counts are of all.
    """

    train: Train
    rows: int
    bytes: int
    controls: int
    parts: tuple[Train, ...] = ()


Place = tuple[LogNode, Train | None, int, int, int]


class Cursor:
    """One reader of a log. `position` is the arrival number up to which it has read; used by one thread at a time.

    `sealed_at`: it takes nothing from this arrival number on, as if nothing had come (handover.py).
    """

    __slots__ = (
        "_noted",
        "_rest",
        "controls_taken",
        "edge",
        "from_seq",
        "log",
        "node",
        "position",
        "rows_before",
        "rows_taken",
        "sealed_at",
    )

    def __init__(self, log: OutputLog, edge: EdgeId, node: LogNode, position: int, from_seq: int) -> None:
        self.log = log
        self.edge = edge
        self.node = node  # the last node passed
        self.position = position
        self.from_seq = from_seq
        self.rows_before = log.rows_total
        self.rows_taken = 0
        self.controls_taken = 0
        self.sealed_at: int | None = None
        self._noted: tuple[int, ...] = ()
        self._rest: Train | None = None  # what is left of node.next once a part of it was taken

    def forget(self) -> None:
        """Let go of what follows: nodes point forward, so whoever still knows a cursor that is closed would keep all that ever comes."""
        self.node = LogNode(None)
        self._rest = None

    @property
    def is_pending(self) -> bool:
        """Something waits: rows, or progress."""
        return self.node.next is not None

    @property
    def watermark_us(self) -> int:
        """W as it stands before the next train that waits."""
        with self.log._lock:
            node = self.node.next
            if node is None:
                return self.log.watermark_us
            return (self._rest if self._rest is not None else train_of(node)).track.start

    def first_work(self) -> int | None:
        """Return the seq at or above which the first waiting row or control item lies; None when only bare progress waits."""
        with self.log._lock:
            node = self.node.next
            while node is not None:
                rest = self._rest if node is self.node.next else None
                if node.controls or (node.rows and (rest is None or rest.rows or _left_over(node, rest))):
                    first = max(train_of(node).lo if rest is None else rest.lo, self.position)
                    return None if self.sealed_at is not None and first >= self.sealed_at else first
                node = node.next
        return None

    def pending_rows(self) -> int:
        """Count the rows that wait, by walking the chain (so that it can check the counters)."""
        return sum([train.rows for train in self.waiting()])

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes wait in memory, by count: rows not taken, each as large as the log's are on average."""
        log = self.log
        rows = log.rows_total - self.rows_before - self.rows_taken
        if log.rows_spilled:
            rows = min(rows, log.rows_in_memory)
        if rows <= 0:
            return 0
        held = log.rows_in_memory
        return rows * (log.bytes_in_memory // held if held > 0 else log.row_bytes)

    @property
    def spilled_bytes(self) -> int:
        """About how many bytes of what waits lie in files, by count: the oldest that the log holds do."""
        log = self.log
        spilled = log.rows_spilled
        rows = log.rows_total - self.rows_before - self.rows_taken - log.rows_in_memory
        return rows * log.bytes_spilled // spilled if rows > 0 and spilled > 0 else 0

    def head_arrival_ns(self) -> int | None:
        """Return the arrival of the oldest row that waits, or None."""
        with self.log._lock:
            node = self.node.next
            if node is not None and self._rest is not None:
                if self._rest.rows:
                    return self._rest.oldest_arrival()
                node = node.next
            while node is not None:
                if node.rows:
                    return node.arrival_ns
                node = node.next
        return None

    def reach(self) -> tuple[int, bool]:
        """Return the seq up to which one train can be taken, and whether a mark stands there (nothing may be merged past it)."""
        with self.log._lock:
            node = self.node.next
            while node is not None:
                train = train_of(node)
                if train.is_mark and train.hi > self.from_seq:
                    return train.hi, True
                node = node.next
            return self.log.hi, False

    def seqs_below(self, upto: int, rows_max: int) -> Int64Array:
        """Return the arrival numbers of the first waiting rows below `upto`, about `rows_max` of them, to find where to cut."""
        parts: list[Int64Array] = []
        total = 0
        for train in self.waiting():
            if train.lo >= upto or total > rows_max:
                break
            if train.rows:
                seqs = train.seq.array()
                parts.append(seqs[: int(np.searchsorted(seqs, upto))])
                total += len(parts[-1])
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def waiting(self) -> list[Train]:
        """Return the trains that wait, what is left of a cut one first."""
        with self.log._lock:
            trains: list[Train] = []
            node = self.node.next
            if node is not None and self._rest is not None:
                trains.append(self._rest)
                node = node.next
            while node is not None:
                trains.append(train_of(node))
                node = node.next
        return trains

    def take(self, rows_max: int, upto: int | None = None) -> Portion | None:
        """Take the next train: at most `rows_max` rows (more where rows share a seq), nothing at or beyond `upto`.

        Small trains are joined (up to JOINED_ROWS_MAX, without `upto`), a big one is cut, never past a mark. Without `upto` None
        when nothing waits; with it always a train that reaches exactly `upto`, which must not lie beyond the edge's frontier.
        """
        if upto is None and (alone := self._take_alone(rows_max)) is not None:
            return alone
        parts, rows, taken_bytes, controls = self._gathered(rows_max, upto, limits.JOINED_ROWS_MAX)
        if not parts:
            return None
        return Portion(self._joined(parts, rows, controls, upto), rows, taken_bytes, controls)

    def take_parts(self, rows_max: int) -> Portion | None:
        """Take what waits, at most `rows_max` rows and nothing past a mark, in parts: whoever computes with them joins them."""
        parts, rows, taken_bytes, controls = self._gathered(rows_max, None, rows_max)
        if not parts:
            return None
        parts = self._fitted(parts, rows, controls)
        self.position = parts[-1].hi
        return Portion(parts[-1], rows, taken_bytes, controls, tuple(parts))

    def _gathered(self, rows_max: int, upto: int | None, joined_max: int) -> tuple[list[Train], int, int, int]:
        parts: list[Train] = []
        rows, taken_bytes, controls = 0, 0, 0
        limit = upto if self.sealed_at is None else self.sealed_at if upto is None else min(upto, self.sealed_at)
        with self.log._lock:
            while (node := self.node.next) is not None:
                train = self._rest if self._rest is not None else train_of(node)
                if (train.rows and rows >= rows_max) or (limit is not None and train.lo >= limit):
                    break
                if upto is None and rows and rows + train.rows > joined_max:
                    break
                part, rest = _cut(train, max(0, rows_max - rows), limit)
                parts.append(part)
                rows += part.rows
                if node.rows:  # parts of one train add up to its bytes, whatever they are rounded to
                    left = 0 if rest is None else rest.rows
                    taken_bytes += node.bytes * train.rows // node.rows - node.bytes * left // node.rows
                if rest is not None or self._rest is not None:
                    controls += _left_over(node, self._rest) - _left_over(node, rest)
                self._rest = rest
                if rest is not None:
                    node.cut = True
                    break
                controls += node.controls
                self.node = node
                self.log._passed(node)
                if part.is_mark and part.hi > self.from_seq:
                    break
            if not parts and upto is not None:
                parts.append(self._nothing(upto))
        return parts, rows, taken_bytes, controls

    def place(self) -> Place:
        """Return where it stands, for `put_back`."""
        self._noted = (id(self.node), 0 if self._rest is None else id(self.node.next))
        return self.node, self._rest, self.position, self.rows_taken, self.controls_taken

    def kept_in_place(self) -> tuple[int, ...]:
        """Return the identities of the nodes that must not become parts of others: what it has begun, and where it may be put back to.

        Not the nodes themselves: they would stay as long as it is known where it stood, with all that follows them.
        """
        return self._noted if self._rest is None else (*self._noted, id(self.node.next))

    def put_back(self, place: Place) -> None:
        """Stand where it stood before a train was taken, which nobody has seen; what was pushed since stays behind it."""
        with self.log._lock:
            upto = self.node.next
            self.node, self._rest, self.position, self.rows_taken, self.controls_taken = place
            node = self.node.next
            while node is not None and node is not upto:
                if node.readers == 0:
                    self.log._count(node, 1)
                node.readers += 1
                node = node.next

    def _take_alone(self, rows_max: int) -> Portion | None:
        """Take a train that waits by itself and can be taken whole, as most of a quiet stream's can; None where it is not so."""
        with self.log._lock:
            node = self.node.next
            if node is None or node.next is not None or self._rest is not None or self.sealed_at is not None:
                return None
            train, rows = node.train, node.rows
            if train is None or rows > rows_max or train.lo < self.position or train.lo < self.from_seq:
                return None
            self.node = node
            self.log._passed(node)
        if train.lo > self.position:  # a log that keeps no bare progress leaves gaps, see `_joined`
            train = train.over(self.position, train.hi)
        self.position = train.hi
        self.rows_taken += rows
        self.controls_taken += node.controls
        return Portion(train, rows, node.bytes if rows else 0, node.controls)

    def _nothing(self, upto: int) -> Train:
        """Return the train that says that nothing came up to `upto`: W stands, and after the end it stays ended."""
        waiting = self._rest if self._rest is not None else None if self.node.next is None else self.node.next.train
        watermark = self.log.watermark_us if waiting is None else waiting.track.start
        ended = self.log.ended and waiting is None
        return empty_train(self.log.schema, self.position, upto, constant_track(self.position, upto, watermark), ended=ended)

    def _fitted(self, parts: list[Train], rows: int, controls: int) -> list[Train]:
        """Let parts begin where this reader stands, and count them as taken."""
        while parts[0].lo < self.from_seq and len(parts) > 1 and parts[0].hi <= self.from_seq:
            parts.pop(0)
        if parts[0].lo < self.from_seq:
            parts[0] = _without_early(parts[0], self.from_seq)
        # A reader that followed the frontier stands beyond the log's end; what came later holds no row below its position. A log that
        # keeps no bare progress leaves gaps; the reader must not, as its own log may have to carry progress since.
        parts[0] = parts[0].over(self.position, max(self.position, parts[0].hi))
        self.rows_taken += rows
        self.controls_taken += controls
        return parts

    def _joined(self, parts: list[Train], rows: int, controls: int, upto: int | None) -> Train:
        train = concat_trains(self._fitted(parts, rows, controls))
        if upto is not None and train.hi < upto:
            train = train.over(train.lo, upto)
        self.position = train.hi
        return train


def _left_over(node: LogNode, rest: Train | None) -> int:
    """Return 1 where all rows of a node have been taken and what is left of it must still be seen: that waits as a control item does."""
    return int(rest is not None and node.rows > 0 and not rest.rows and (rest.is_mark or rest.track.end > rest.track.start))


def _cut(train: Train, rows_max: int, upto: int | None) -> tuple[Train, Train | None]:
    """Cut off what may be taken; the rest is None when nothing is left."""
    if upto is not None and upto < train.hi:
        train, beyond = train.split_at(upto)
        first, rest = train.split_rows(rows_max)
        return first, beyond if rest is None else concat_trains([rest, beyond])
    if train.rows > rows_max:
        return train.split_rows(rows_max)
    return train, None


def _without_early(train: Train, from_seq: int) -> Train:
    """Drop what was let in before the reader was attached: a query sees rows with seq >= that of its coming.

    Of what is dropped W stays, and the end. Which inputs were idle by then, the operator was told when it was attached.
    """
    if train.hi > from_seq:
        return train.split_at(from_seq)[1]
    track = constant_track(from_seq, from_seq, train.track.end)
    return empty_train(train.schema, from_seq, from_seq, track, arrival=train.arrival, ended=train.ended)
