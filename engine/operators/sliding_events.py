"""When a sliding window answers, and for which groups (K2, K9): at each row, at what expires, at each m-th row, at multiples of d.

The clock of sliding windows: event time for [RANGE t], the rank of a row in its partition for [ROWS n].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import distinct, expanded
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.recipes import EmitKind, EmitSpec, WindowKind, WindowSpec
from millstream.engine.state.forms import state_record
from millstream.engine.windows.early import moments_after
from millstream.engine.windows.vectors import Vectors


@state_record("time_clock", 1, ("width",))
class TimeClock:
    """[RANGE t] and [NOW]: the window at instant τ is (τ − t, τ]."""

    by_rank = False
    partition: tuple[int, ...] = ()
    slide = 1
    partitions = 1

    def __init__(self, window: WindowSpec) -> None:
        self.width = 1 if window.kind is WindowKind.NOW else window.range_us

    def partition_ids(self, rows: BufferedRows) -> Int64Array:
        """There is one partition, 0."""
        return np.zeros(len(rows), dtype=np.int64)

    def clocks(self, rows: BufferedRows, ids: Int64Array) -> Int64Array:
        """Return event times."""
        return rows.time

    def nbytes(self) -> int:
        """Nothing is held."""
        return 0

    def key_columns(self, ids: Int64Array) -> list[Column]:
        """The one partition has no columns."""
        return []


@state_record("rank_clock", 1, ("width", "slide", "partition", "_encoder", "counts", "last_time"))
class RankClock:
    """[ROWS n SLIDE m]: the window at rank r holds the ranks (r − n, r] of the partition. Ranks begin with 1."""

    by_rank = True

    def __init__(self, window: WindowSpec, inputs: Schema) -> None:
        self.width = window.rows
        self.slide = max(1, window.rows_slide)
        self.partition = window.partition
        self._encoder = key_encoder([inputs.fields[p].type for p in window.partition])
        self.counts: Int64Array = np.zeros(1, dtype=np.int64)  # rows that each partition has had
        self.last_time: Int64Array = np.full(1, TIME_MIN, dtype=np.int64)

    @property
    def partitions(self) -> int:
        """One more than the greatest partition id."""
        return max(1, self._encoder.size)

    def partition_ids(self, rows: BufferedRows) -> Int64Array:
        """Return an id per row for its partition."""
        if not self.partition:
            return np.zeros(len(rows), dtype=np.int64)
        ids = self._encoder.encode([rows.columns[p] for p in self.partition])
        missing = self._encoder.size - len(self.counts)
        if missing > 0:
            more = max(missing, len(self.counts))
            self.counts = np.concatenate((self.counts, np.zeros(more, dtype=np.int64)))
            self.last_time = np.concatenate((self.last_time, np.full(more, TIME_MIN, dtype=np.int64)))
        return ids

    def nbytes(self) -> int:
        """Return the bytes of the partitions."""
        return self._encoder.nbytes() + int(self.counts.nbytes + self.last_time.nbytes)

    def key_columns(self, ids: Int64Array) -> list[Column]:
        """Return the columns of PARTITION BY for partition ids."""
        return self._encoder.columns(ids)

    def clocks(self, rows: BufferedRows, ids: Int64Array) -> Int64Array:
        """Return the ranks of rows that come in event-time order."""
        if len(rows) == 0:
            return np.empty(0, dtype=np.int64)
        if not self.partition:
            first = int(self.counts[0]) + 1
            self.counts[0] += len(rows)
            self.last_time[0] = rows.time[-1]
            return np.arange(first, first + len(rows), dtype=np.int64)
        order = np.argsort(ids, kind="stable")
        in_order = ids[order]
        ranks = np.empty(len(ids), dtype=np.int64)
        ranks[order] = np.arange(1, len(ids) + 1, dtype=np.int64) - np.searchsorted(in_order, in_order, side="left")
        ranks += self.counts[ids]
        np.maximum.at(self.counts, ids, ranks)
        self.last_time[ids] = rows.time  # in order, so the last one stays
        return ranks


BoolArray = npt.NDArray[np.bool_]
_NONE: Int64Array = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class NewRows:
    """The rows that W has passed now, in order: partition, clock, time of each; which are live, and the group of those."""

    partition: Int64Array
    clock: Int64Array
    time: Int64Array
    live: Int64Array
    group: Int64Array


@dataclass(frozen=True, slots=True)
class Passage:
    """How W moved: from `floor` to `watermark`; `last` is the instant at which the stream ended, None while it goes on."""

    floor: int
    watermark: int
    last: int | None


@dataclass(frozen=True, slots=True)
class Events:
    """Answers to give: the group, the clock and the instant (event time) of each, and what orders them. `partial`: K14."""

    group: Int64Array
    clock: Int64Array
    instant: Int64Array
    order: Int64Array
    partial: bool = False
    closing: BoolArray | None = None  # answers that come with the end of the stream


@dataclass(frozen=True, slots=True)
class Marks:
    """Moments at which all groups of a partition answer; `order` is equal where the answers of partitions stand together."""

    partition: Int64Array
    clock: Int64Array
    instant: Int64Array
    order: Int64Array
    partial: bool = False
    closing: BoolArray | None = None


@state_record("event_finder", 1, ("_changes", "_every", "_clock", "_log", "_whole", "newest", "_shown", "_least"))
class EventFinder:
    """Finds the events of a train. `log` holds per partition (clock, group) of each element in order of the clock.

    `whole`: a partition is one group. `newest` is the greatest instant so far.
    """

    def __init__(self, emit: EmitSpec, clock: TimeClock | RankClock, log: Vectors, *, whole: bool) -> None:
        self._changes = emit.kind is EmitKind.CHANGES
        self._every = emit.every_us if emit.kind is EmitKind.EVERY else 0
        self._clock = clock
        self._log = log
        self._whole = whole
        self.newest = TIME_MIN
        self._shown = TIME_MIN  # the last moment answered (EMIT EVERY)
        self._least = TIME_MIN + clock.width

    @property
    def reach(self) -> int:
        """How far back from the clock an event may look: a change log compares with the window one step before."""
        return self._clock.width + (self._clock.slide if self._changes else 0)

    def find(self, rows: NewRows, passage: Passage) -> Events:
        """Return the events."""
        before = self.newest
        if len(rows.time):
            self.newest = max(self.newest, int(rows.time[-1]))
        if self._every:
            return self._of_marks(self._moments(rows, passage, before))
        if isinstance(self._clock, RankClock) and self._clock.slide > 1:
            return self._of_marks(self._nth_rows(rows, passage, self._clock))
        if self._changes:
            return self._rank_changes(rows) if self._clock.by_rank else self._time_changes(rows, passage)
        clock = rows.clock[rows.live]
        if self._clock.by_rank:
            return Events(rows.group, clock, rows.time[rows.live], np.arange(len(clock), dtype=np.int64))
        group, clock = _different(rows.group, clock)
        return Events(group, clock, clock, clock)

    # -- change logs ------------------------------------------------------------------------------------------------------------

    def _time_changes(self, rows: NewRows, passage: Passage) -> Events:
        """What comes at an instant and what leaves at it; at the end of the stream nothing leaves any more."""
        upto = passage.watermark - 1
        if passage.last is not None:
            upto = min(upto, passage.last)
        start = int(self._log.start[0])
        clocks = self._log.columns[0][start : start + int(self._log.size[0])]
        gone = int(np.searchsorted(clocks, upto - self._clock.width, side="right")) if upto >= self._least else 0
        group = np.concatenate((rows.group, self._log.columns[1][start : start + gone]))
        clock = np.concatenate((rows.clock[rows.live], clocks[:gone] + self._clock.width))
        group, clock = _different(group, clock)
        return Events(group, clock, clock, clock)

    def _rank_changes(self, rows: NewRows) -> Events:
        """The group of each row, and of the one that it pushes out of its partition's window."""
        pushed = rows.clock - self._clock.width
        at = self._log.above(rows.partition, pushed - 1)
        ends = self._log.start[rows.partition] + self._log.size[rows.partition]
        places = np.minimum(at, len(self._log.columns[0]) - 1)
        found = np.flatnonzero((at < ends) & (self._log.columns[0][places] == pushed))
        row = np.concatenate((rows.live, found))
        group, row = _different(np.concatenate((rows.group, self._log.columns[1][places[found]])), row)
        return Events(group, rows.clock[row], rows.time[row], row)

    # -- all groups at certain moments ------------------------------------------------------------------------------------------

    def _nth_rows(self, rows: NewRows, passage: Passage, clock: RankClock) -> Marks:
        """Each m-th row of a partition; at the end of the stream the next one, as far as it is filled (K14)."""
        at = np.flatnonzero(rows.clock % clock.slide == 0)
        partition, rank, instant = rows.partition[at], rows.clock[at], rows.time[at]
        closing = np.zeros(len(at), dtype=np.bool_)
        if passage.last is None:
            return Marks(partition, rank, instant, at)
        rest = np.flatnonzero(clock.counts % clock.slide)
        rest = rest[np.argsort(clock.last_time[rest], kind="stable")]
        last = clock.last_time[rest]
        # Answers of one instant stand together, whatever numbers the partitions have: these depend on how rows were batched.
        order = np.concatenate((np.arange(len(at), dtype=np.int64), len(at) + np.searchsorted(last, last)))
        partition = np.concatenate((partition, rest))
        rank = np.concatenate((rank, (clock.counts[rest] // clock.slide + 1) * clock.slide))
        instant = np.concatenate((instant, last))
        closing = np.concatenate((closing, np.ones(len(rest), dtype=np.bool_)))
        return Marks(partition, rank, instant, order, len(rest) > 0, closing)

    def _moments(self, rows: NewRows, passage: Passage, newest_before: int) -> Marks:
        """Multiples of d that W has passed, each after its own rows; the last answer is that of the stream's last instant (K9)."""
        upto = passage.watermark - 1 if passage.last is None else passage.last
        instants = distinct(rows.time)
        if newest_before != TIME_MIN:
            instants = distinct(np.append(instants, newest_before))
        lower = passage.floor if passage.floor != TIME_MIN else -(2**62)
        found = moments_after(self._every, lower, upto, instants)
        if len(found):
            self._shown = int(found[-1])
        closing = np.zeros(len(found), dtype=np.bool_)
        if passage.last is not None and passage.last != self._shown and len(instants):
            found, closing = np.append(found, passage.last), np.append(closing, True)
        if isinstance(self._clock, TimeClock):
            return Marks(np.zeros(len(found), dtype=np.int64), found, found, found, closing=closing)
        return self._ranks_at(rows, found, closing, self._clock)

    def _ranks_at(self, rows: NewRows, moments: Int64Array, closing: BoolArray, clock: RankClock) -> Marks:
        """Return for each moment and partition the rank of the last row up to it."""
        count = clock.partitions
        ranks = np.zeros((len(moments) + 1, count), dtype=np.int64)
        np.add.at(ranks, (np.searchsorted(moments, rows.time, side="left"), rows.partition), 1)
        ranks[0] += clock.counts[:count] - ranks.sum(axis=0)
        totals = np.cumsum(ranks, axis=0)[: len(moments)]
        moment, partition = np.nonzero(totals)
        return Marks(partition, totals[moment, partition], moments[moment], moment, closing=closing[moment])

    def _of_marks(self, marks: Marks) -> Events:
        """Return an event for each group that the window, or the one before it, holds at each mark."""
        if self._whole:
            return Events(marks.partition, marks.clock, marks.instant, marks.order, marks.partial, marks.closing)
        low = self._log.above(marks.partition, marks.clock - self.reach)
        sizes = self._log.above(marks.partition, marks.clock) - low
        mark = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        group, mark = _different(self._log.columns[1][expanded(low, sizes)] if len(mark) else _NONE, mark)
        closing = None if marks.closing is None else marks.closing[mark]
        return Events(group, marks.clock[mark], marks.instant[mark], marks.order[mark], marks.partial, closing)

    def expired(self, watermark: int, touched: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return (partition, elements at its front) that no later window can see; `touched` are the partitions of new rows."""
        if watermark == TIME_MAX:
            partitions = np.flatnonzero(self._log.size)
            return partitions, self._log.size[partitions]
        partitions = distinct(touched) if self._clock.partition else np.zeros(1, dtype=np.int64)
        if isinstance(self._clock, RankClock):
            bound = self._clock.counts[partitions] - self.reach
        else:
            behind = watermark - self._clock.width - int(self._changes)
            bound = np.full(1, max(TIME_MIN, behind), dtype=np.int64)
        counts = self._log.above(partitions, bound) - self._log.start[partitions]
        return partitions[counts > 0], counts[counts > 0]

    @property
    def next_exit_us(self) -> int | None:
        """When the oldest element of a time window leaves it, if that is to be shown; else when the next moment comes."""
        if self._every and self.newest != TIME_MIN and self._log.live:
            return (max(self.newest - 1, self._shown) // self._every + 1) * self._every + 1
        if self._changes and not self._clock.by_rank and self._log.live:
            return int(self._log.columns[0][self._log.start[0]]) + self._clock.width + 1
        return None


def _different(group: Int64Array, order: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the different pairs, sorted by the second and then by the first."""
    sorter = np.lexsort((group, order))
    group, order = group[sorter], order[sorter]
    if len(group):
        new = np.ones(len(group), dtype=np.bool_)
        new[1:] = (group[1:] != group[:-1]) | (order[1:] != order[:-1])
        group, order = group[new], order[new]
    return group, order
