"""The log of an output port: a chain of nodes, read by cursors (`cursors.py`).

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

from millstream.engine.data import limits
from millstream.engine.data.column import CellColumn
from millstream.engine.data.graph import EdgeId, LogId
from millstream.engine.data.schema import Schema
from millstream.engine.data.tally import Tally, follow, summed
from millstream.engine.data.train import Train, concat_trains
from millstream.engine.data.types import Kind
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.flow.cursors import Cursor, LogNode, compacted, is_mergeable, train_of

FEW_ROWS = 8  # of a node that would hold more about its rows than they are
FEW_NODES = 64  # in a row that wait, until their rows are put together
SPILLED_ROWS, SPILLED_BYTES = 16_384, 4 * 2**20  # about, that leave memory as one: a node's own memory is little beside it
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
        if before is not None and before.rows == 0 and is_mergeable(before, tail):
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

        Those of the next `ahead_rows` rows of the slowest reader stay, those where a reader stands within its rows or may be put back to,
        and those at the tail, which may yet be put together.
        """
        with self._lock:
            slowest = min(self.cursors.values(), key=lambda cursor: cursor.position, default=None)
            node = None if slowest is None else slowest.node.next
            found: list[LogNode] = []
            rows = size = ahead = 0
            stood_in = self._stood_in()
            while node is not None and node not in (self._tail, self._before_tail, self._few_after):
                may_go = ahead >= ahead_rows and not (node.spilled or id(node) in stood_in or train_of(node).is_mark)
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

    def _stood_in(self) -> set[int]:
        """Return the identities of nodes that must stay as they are: their rows are counted on by a reader."""
        return {place for cursor in self.cursors.values() for place in cursor.kept_in_place()}

    def take_over(self, nodes: list[LogNode], train: Train) -> bool:
        """Let the rows of nodes that `oldest_in_memory` gave lie as `train` has them; False where a reader has come between."""
        with self._lock:
            first, last, stood_in = nodes[0], nodes[-1], self._stood_in()
            chained = all(node.next is following for node, following in pairwise(nodes))
            if (
                not chained
                or not first.readers
                or any(id(node) in stood_in or node.spilled or node.readers != first.readers for node in nodes)
            ):
                return False
            if any(node in (self._tail, self._before_tail, self._few_after) for node in nodes):
                return False
            first.train, first.next = train, last.next
            first.rows, first.bytes = sum([n.rows for n in nodes]), sum([n.bytes for n in nodes])
            first.controls, first.spilled = sum([n.controls for n in nodes]), True
            self.rows_spilled += first.rows
            self.bytes_spilled += first.bytes
        return True


def fixed_row_bytes(schema: Schema) -> int:
    """Return the bytes of a row without its text."""
    fields = [f.type for f in schema.fields if not f.type.is_arrow]
    return ROW_OVERHEAD_BYTES + sum([16 if type_.is_wide else _WIDTHS_BYTES.get(type_.kind, 8) for type_ in fields])


_WIDTHS_BYTES = {Kind.BOOLEAN: 1, Kind.INT: 4, Kind.DATE: 4}


def _followed(first: Tally, second: Tally) -> Tally:
    joined = follow((first, second), rows=1)
    assert joined is not None
    return joined
