"""Rows that came once, let in again: each with the arrival number that it had and the W that it met.

Whoever replays has W beside each row (an archive) or a rule for it, and several streams in one arrival order. A row is late in a replay
exactly when it was late, a window closes at the row or control item that closed it, also where rows in between are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import StepTrack, WatermarkTrack
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.sources import Ingested, Ingress, Source


@dataclass(frozen=True, slots=True)
class PastRows:
    """Rows of one stream: arrival numbers (rising), columns, event times, W before and after each."""

    seqs: Int64Array
    columns: Sequence[Column]
    times: Int64Array
    before: Int64Array
    after: Int64Array

    def take(self, index: Int64Array) -> PastRows:
        """Return some of the rows."""
        columns = [column.take(index) for column in self.columns]
        return PastRows(self.seqs[index], columns, self.times[index], self.before[index], self.after[index])

    def slice(self, start: int, stop: int) -> PastRows:
        """Return the rows from `start` to before `stop`."""
        columns = [column.slice(start, stop) for column in self.columns]
        part = slice(start, stop)
        return PastRows(self.seqs[part], columns, self.times[part], self.before[part], self.after[part])

    def split(self, seq: int) -> tuple[PastRows | None, PastRows | None]:
        """Return the rows with an arrival number below `seq`, and the others; None where there are none."""
        cut = int(np.searchsorted(self.seqs, seq))
        if cut in (0, len(self.seqs)):
            return (self, None) if cut else (None, self)
        return self.slice(0, cut), self.slice(cut, len(self.seqs))

    def track(self, lo: int, hi: int, start_us: int) -> WatermarkTrack:
        """Return W over [lo, hi) from `start_us` on. What moved W between two rows stands just before the second one."""
        reached = np.concatenate((np.array([start_us], dtype=np.int64), self.after[:-1]))
        jumps = np.flatnonzero((self.before > reached) & (self.seqs > lo))
        seqs = np.concatenate((self.seqs[jumps] - 1, self.seqs))
        values = np.concatenate((self.before[jumps], self.after))
        order = np.argsort(seqs, kind="stable")
        return StepTrack(lo, hi, start_us, seqs[order], np.maximum.accumulate(np.maximum(values[order], start_us)))


@dataclass(frozen=True, slots=True)
class PastControl:
    """A control item: its arrival number, the arguments of `Ingress.control`."""

    seq: int
    said: Mapping[str, Any]


PastItem = PastRows | PastControl


class PastSources:
    """Sources of one query's own, for the streams that it reads: a replay fills them, by an ingress that nobody else uses.

    `start` is the arrival number at which they begin, `from_us` the event time before which rows are left out, `newest_before_us` the
    greatest event time of rows that are left out or kept no longer, None where there is none.
    """

    def __init__(self, start: int, from_us: int | None = None, newest_before_us: int | None = None) -> None:
        self.start = start
        self.from_us = from_us
        self.newest_before_us = newest_before_us
        self.ingress = Ingress(next_seq=start)
        self.sources: dict[str, Source] = {}

    def open(self, definition: StreamDefinition, id_: OperatorId, log: OutputLog) -> Source:
        """Make the source of a stream."""
        source = Source(id_, definition, log, self.ingress)
        log.producer, log.hi = source, self.start
        self.sources[definition.name] = source
        return source


class Replay:
    """Lets items of several streams in, in one arrival order, by an ingress that nobody else uses. `items` are in order for each source."""

    def __init__(self, ingress: Ingress, items: Sequence[tuple[Source, Iterator[PastItem]]], rows_max: int) -> None:
        self._ingress = ingress
        self._inputs = [_Input(source, iterator) for source, iterator in items]
        self._rows_max = rows_max

    def step(self, arrival_ns: int, upto: int | None = None) -> list[Ingested] | None:
        """Let the next items in, at most `rows_max` rows of each stream, none at or behind `upto`; None when none is left before that.

        All inputs are then known up to the same arrival number. Raises what an iterator does.
        """
        heads = [one for one in self._inputs if one.head() is not None]
        firsts = [one.first_seq for one in heads]
        if not heads or (upto is not None and min(firsts) >= upto):
            if upto is not None:
                self._ingress.advance_to(upto)
            return None
        first = heads[firsts.index(min(firsts))]
        if isinstance(first.item, PastControl):
            return [first.let_control_in(self._ingress, arrival_ns)]
        end = min(one.reach(self._rows_max) for one in heads)
        if upto is not None:
            end = min(end, upto)
        ingested = [one.let_rows_in(self._ingress, end, arrival_ns) for one in heads if one.first_seq < end]
        self._ingress.advance_to(end)
        return ingested


class _Input:
    """One stream's items; `item` is the next one, or what is left of it."""

    def __init__(self, source: Source, items: Iterator[PastItem]) -> None:
        self.source = source
        self.item: PastItem | None = None
        self._items = items

    def head(self) -> PastItem | None:
        """Return the next item, None when all are in."""
        if self.item is None:
            self.item = next(self._items, None)
        return self.item

    @property
    def first_seq(self) -> int:
        """The arrival number of the next item."""
        assert self.item is not None
        return self.item.seq if isinstance(self.item, PastControl) else int(self.item.seqs[0])

    def reach(self, rows_max: int) -> int:
        """Return the arrival number up to which this stream is known, with at most so many rows."""
        assert self.item is not None
        if isinstance(self.item, PastControl):
            return self.item.seq
        return int(self.item.seqs[min(rows_max, len(self.item.seqs)) - 1]) + 1

    def let_rows_in(self, ingress: Ingress, end: int, arrival_ns: int) -> Ingested:
        """Let the rows before `end` in."""
        assert isinstance(self.item, PastRows)
        rows, self.item = self.item.split(end)
        assert rows is not None
        track = rows.track(self.source.log.hi, end, self.source.watermark_us)
        return ingress.push_again(self.source, rows.columns, rows.seqs, rows.times, track, arrival_ns=arrival_ns)

    def let_control_in(self, ingress: Ingress, arrival_ns: int) -> Ingested:
        """Let a control item in under the number that it had."""
        assert isinstance(self.item, PastControl)
        ingress.advance_to(self.item.seq)
        said, self.item = self.item.said, None
        return ingress.control(self.source, arrival_ns=arrival_ns, **said)
