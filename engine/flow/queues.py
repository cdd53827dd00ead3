"""The log of an output port, and the cursors of the edges that read it.

A log is append-only; every reader has a cursor of its own, and what all have passed is freed. A push is O(1) however many read:
nodes form a chain that only points forward, so a node is gone once no cursor stands before it. Each node counts the readers that
have yet to pass it; that gives the rows held for the slowest.

One producer pushes (the executor sees to the order of tickets), any number of consumers take, one at a time per cursor. The lock is
held for pointer work only; gathering columns happens outside it.

Where many trains of few rows wait that nobody has begun to read, their rows are put together: a queue of single rows would otherwise
occupy ten times what its rows do.

Trains without rows only carry progress: the watermark, and that nothing came. Two such neighbours that the same readers have yet to
see are merged when the next train comes, so a selective filter does not fill its log (at most two stay per reader that lags).
"""

from __future__ import annotations

import copy
import threading
from itertools import pairwise
from typing import Protocol

import numpy as np
from millstream.engine.data import limits
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.column import CellColumn, Column
from millstream.engine.data.graph import EdgeId, LogId
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.tally import Tally, follow, summed
from millstream.engine.data.train import Int64Array, Numbers, Train, concat_trains, empty_train
from millstream.engine.data.types import Kind
from millstream.engine.data.watermarks import TIME_MIN, compact_track, constant_track, thinned

STEP_BYTES = 16  # a seq and a watermark
STEPS_KEPT_MAX = 8_192  # of W in a stretch without rows
MERGES_MAX = 64  # of nodes without rows, until what they say of W is put together
FEW_ROWS = 8  # of a node that would hold more about its rows than they are
FEW_NODES = 64  # in a row that wait, until their rows are put together
SPILLED_ROWS, SPILLED_BYTES = 16_384, 4 * 2**20  # about, that leave memory as one: a node's own memory is little beside it


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


ROW_OVERHEAD_BYTES = 24  # seq, event time, arrival
TEXT_BYTES = 24  # a guess, where nothing was seen yet


class Producer(Protocol):
    """Whoever fills a log: a source or an operator."""

    def frontier(self, log: OutputLog) -> int:
        """Return the arrival number below which nothing more can come into the log."""
        ...


class OutputLog:
    """The append-only log of one output port. `hi`: the end of the arrival interval it covers; `watermark_us`: W there."""

    __slots__ = (
        "_before_tail",
        "_few",
        "_few_after",
        "_fixed_bytes",
        "_lock",
        "_owed",
        "_tail",
        "_text",
        "bytes_held",
        "bytes_spilled",
        "can_spill",
        "controls_total",
        "cursors",
        "ended",
        "hi",
        "id",
        "idle",
        "producer",
        "quiet",
        "row_bytes",
        "rows_held",
        "rows_spilled",
        "rows_total",
        "schema",
        "sink",
        "watermark_us",
    )

    def __init__(self, id_: LogId, schema: Schema, *, hi: int = 0, watermark_us: int = TIME_MIN) -> None:
        self.id = id_
        self.producer: Producer | None = None
        self.sink: object | None = None  # the query's own sink behind an output of a shared aggregate (sharing/direct.py)
        self.quiet = False  # nobody downstream wants to hear of progress alone: trains without rows are not kept
        self.schema = schema
        self.hi = hi
        self.watermark_us = watermark_us
        self.ended = False
        self.idle = False
        self.rows_total = 0
        self.controls_total = 0
        self.rows_held = 0
        self.bytes_held = 0
        self.rows_spilled = 0
        self.bytes_spilled = 0
        self.cursors: dict[EdgeId, Cursor] = {}
        self._tail = LogNode(None)
        self._before_tail: LogNode | None = None
        self._few = 0  # nodes of few rows at the tail, one after the other, behind `_few_after`
        self._few_after = self._tail
        self._lock = threading.Lock()
        self._owed: Tally | None = None  # of trains that were not kept: the next one brings it
        self.can_spill = not any(f.type.is_wide for f in schema.fields)  # those are Python's own integers
        self._text = [i for i, f in enumerate(schema.fields) if f.type.is_arrow]
        self._fixed_bytes = fixed_row_bytes(schema)
        self.row_bytes = self._fixed_bytes + TEXT_BYTES * len(self._text)

    def push(self, node: LogNode) -> None:
        """Append a train that begins where the log ends."""
        train = node.train
        assert train is not None
        assert train.lo == self.hi or (self.quiet and train.lo > self.hi), (self.id, self.hi, train.lo)
        with self._lock:
            node.readers = len(self.cursors)
            if not node.rows and train.track.end > self.watermark_us:
                node.controls = max(node.controls, 1)  # W may have moved before the train: behind rows that its reader never saw
            if self.quiet and not node.rows and not train.ended:
                node.controls = 0
                if train.tally is not None:
                    self._owed = summed(train.tally if self._owed is None else _followed(self._owed, train.tally))
            elif self.cursors:
                if self._owed is not None:
                    self._pay(node, train)
                self._append(node)
            self.rows_total += node.rows
            self.controls_total += node.controls
            if train.track.end > self.watermark_us:
                self.watermark_us = train.track.end
            self.ended = self.ended or train.ended
            if train.idle is not None:
                self.idle = train.idle
            # Last of all: whoever sees this `hi` must find the rows below it in the chain (see frontier.py).
            self.hi = train.hi

    def bypass(self, cursor: Cursor, train: Train, rows: int) -> None:
        """Note that rows went past the log to its one reader, inside a fused chain; nothing waits in it (fused.py sees to that)."""
        self.rows_total += rows
        if train.track.end > self.watermark_us:
            self.watermark_us = train.track.end
        if train.ended:
            self.ended = True
        if train.idle is not None:
            self.idle = train.idle
        self.hi = train.hi
        cursor.position = train.hi
        cursor.rows_taken += rows

    def bytes_of(self, train: Train) -> int:
        """Return about how many bytes the rows occupy: the schema's fixed width, and what its text holds."""
        total = train.rows * self._fixed_bytes
        for position in self._text:
            slot = train.slots[position]
            total += slot.nbytes() if type(slot) is CellColumn else train.slot_nbytes(position)
        return total

    def _pay(self, node: LogNode, train: Train) -> None:
        assert self._owed is not None
        node.train = copy.copy(train)
        node.train.tally = self._owed if train.tally is None else _followed(self._owed, train.tally)
        self._owed = None

    def _append(self, node: LogNode) -> None:
        self._tail.next = node
        before, tail = self._before_tail, self._tail
        if before is not None and before.rows == 0 and _mergeable(before, tail):
            # Readers that have passed both keep the tail, which now points to the new node; the others see one merged node.
            self.bytes_held -= before.bytes + tail.bytes
            before.merge(tail)
            self.bytes_held += before.bytes
            before.next = node
            tail = before
        self._before_tail = tail
        self._tail = node
        self.rows_held += node.rows
        self.bytes_held += node.bytes
        if not 0 < node.rows <= FEW_ROWS or node.train is None or node.train.is_mark:
            self._few, self._few_after = 0, node
            return
        if not self._few or not tail.readers:
            self._few, self._few_after = 0, tail
        self._few += 1
        if self._few >= FEW_NODES:
            self._gather()

    def _gather(self) -> None:
        """Put the nodes of few rows at the tail together, if nobody has passed or cut one of them and no reader stands among them."""
        self._few, before = 0, self._few_after
        nodes: list[LogNode] = []
        node = before.next
        while node is not None:
            if node.cut or node.readers != len(self.cursors):
                return
            nodes.append(node)
            node = node.next
        if len(nodes) < FEW_NODES:
            return
        joined = LogNode(compacted(concat_trains([train_of(n) for n in nodes])))
        joined.rows, joined.bytes = sum([n.rows for n in nodes]), sum([n.bytes for n in nodes])
        joined.controls, joined.arrival_ns, joined.readers = sum([n.controls for n in nodes]), nodes[0].arrival_ns, nodes[0].readers
        before.next = self._tail = joined
        self._before_tail = before

    def open_cursor(self, edge: EdgeId, *, from_seq: int = 0) -> Cursor:
        """Attach a reader that sees what is pushed from now on, save rows with a seq below `from_seq`."""
        with self._lock:
            cursor = Cursor(self, edge, self._tail, max(self.hi, from_seq), from_seq)
            self.cursors[edge] = cursor
        return cursor

    def close_cursor(self, edge: EdgeId) -> None:
        """Detach a reader and free what only it held."""
        with self._lock:
            cursor = self.cursors.pop(edge)
            node = cursor.node.next
            while node is not None:
                self._passed(node)
                node = node.next
            cursor.forget()
            if not self.cursors:
                self._tail.next = None
                self._tail = LogNode(None)
                self._before_tail = None
                self._few, self._few_after = 0, self._tail

    def _passed(self, node: LogNode) -> None:
        node.readers -= 1
        if node.readers == 0:
            self._count(node, -1)

    def _count(self, node: LogNode, sign: int) -> None:
        self.rows_held += sign * node.rows
        self.bytes_held += sign * node.bytes
        if node.spilled:
            self.rows_spilled += sign * node.rows
            self.bytes_spilled += sign * node.bytes

    @property
    def rows_in_memory(self) -> int:
        """The rows held that lie in no file."""
        return self.rows_held - self.rows_spilled

    @property
    def bytes_in_memory(self) -> int:
        """Their bytes."""
        return self.bytes_held - self.bytes_spilled

    @property
    def fullness(self) -> float:
        """What is in memory, as a part of what may be."""
        return max(self.rows_in_memory / limits.LOG_ROWS_MAX, self.bytes_in_memory / limits.LOG_BYTES_MAX)

    @property
    def is_full(self) -> bool:
        """The slowest reader lags by more than the bound: the operator behind it should not run."""
        return self.rows_held - self.rows_spilled > limits.LOG_ROWS_MAX or self.bytes_held - self.bytes_spilled > limits.LOG_BYTES_MAX

    # --- what is in memory no longer (spilling.py) ---

    def oldest_in_memory(self, ahead_rows: int) -> list[LogNode]:
        """Return the oldest nodes that may leave memory as one, none where there are none.

        Those of the next `ahead_rows` rows of the slowest reader stay, and those at the tail, which may yet be put together.
        """
        with self._lock:
            slowest = min(self.cursors.values(), key=lambda cursor: cursor.position, default=None)
            node = None if slowest is None else slowest.node.next
            found: list[LogNode] = []
            rows = size = ahead = 0
            while node is not None and node not in (self._tail, self._before_tail, self._few_after):
                may_go = ahead >= ahead_rows and not (node.spilled or node.cut or train_of(node).is_mark)
                if found and (not may_go or node.readers != found[0].readers):
                    break
                if may_go and (found or node.rows):
                    found.append(node)
                    rows, size = rows + node.rows, size + node.bytes
                    if rows >= SPILLED_ROWS or size >= SPILLED_BYTES:
                        break
                ahead += node.rows
                node = node.next
        return found

    def take_over(self, nodes: list[LogNode], train: Train) -> bool:
        """Let the rows of nodes that `oldest_in_memory` gave lie as `train` has them; False where a reader has come between."""
        with self._lock:
            first, last = nodes[0], nodes[-1]
            chained = all(node.next is following for node, following in pairwise(nodes))
            if not chained or not first.readers or any(node.cut or node.spilled or node.readers != first.readers for node in nodes):
                return False
            if any(node in (self._tail, self._before_tail, self._few_after) for node in nodes):
                return False
            first.train, first.next = train, last.next
            first.rows, first.bytes = sum([n.rows for n in nodes]), sum([n.bytes for n in nodes])
            first.controls, first.spilled = sum([n.controls for n in nodes]), True
            self.rows_spilled += first.rows
            self.bytes_spilled += first.bytes
        return True


def compacted(train: Train) -> Train:
    """Return a train made of many small ones that holds its rows in arrays, and nothing of the parts."""
    seqs = train.seq.array()
    if int(seqs[-1]) - int(seqs[0]) == len(seqs) - 1:
        train.seq = Numbers(train.rows, start=int(seqs[0]), step=1)
    train.arrival = train.arrival.only(seqs) if not train.arrival.is_constant else train.arrival
    train.track = compact_track(train.track)
    train.slots = [Column(c.type, c.values, c.valid) for c in train.columns()]
    return train


def fixed_row_bytes(schema: Schema) -> int:
    """Return the bytes of a row without its text."""
    widths = {Kind.BOOLEAN: 1, Kind.INT: 4, Kind.DATE: 4, Kind.TEXT: 0, Kind.LIST: 0, Kind.STRUCT: 0, Kind.MAP: 0, Kind.JSON: 0}
    return ROW_OVERHEAD_BYTES + sum(16 if f.type.is_wide else widths.get(f.type.kind, 8) for f in schema.fields)


def _followed(first: Tally, second: Tally) -> Tally:
    joined = follow((first, second), rows=1)
    assert joined is not None
    return joined


def _mergeable(first: LogNode, second: LogNode) -> bool:
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

    __slots__ = ("_rest", "controls_taken", "edge", "from_seq", "log", "node", "position", "rows_before", "rows_taken", "sealed_at")

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
        with self.log._lock:
            total = 0
            node = self.node.next
            if node is not None and self._rest is not None:
                total, node = self._rest.rows, node.next
            while node is not None:
                total += node.rows
                node = node.next
        return total

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
        return self.node, self._rest, self.position, self.rows_taken, self.controls_taken

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
