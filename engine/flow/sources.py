"""Where rows enter: one ingress gives every accepted row its server-wide arrival number and puts it in its stream's log.

Arrival numbers are given and published under one lock, so arrival order is one order for the whole server (K11). `next_seq` moves
after the rows below it are in their logs; frontier.py relies on that. With a journal, numbers may be reserved first and the rows
pushed later; the source's frontier then stays at its oldest open reservation.

Control items (end of stream, clock ticks, idle marks, flushes) take an arrival number of their own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import field
from typing import Any

import numpy as np
from millstream.engine.data import limits
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.column import CellColumn, Column, null_column
from millstream.engine.data.event_time import event_times, moving_times, time_position
from millstream.engine.data.graph import ClassId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema, StreamDefinition
from millstream.engine.data.train import Int64Array, Numbers, Train, empty_train
from millstream.engine.data.types import Kind
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, RowsTrack, RowTrack, StepTrack, WatermarkTrack, jump_track
from millstream.engine.data.work import Arrived
from millstream.engine.flow.cursors import LogNode
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.relations import TableContent
from millstream.engine.flow.shedding import ShedKey, ShedLog, UtilityOrder

NOTHING_RESERVED = 1 << 62
_NO_TIMES: Int64Array = np.empty(0, dtype=np.int64)
Recorder = Callable[[int, int, Sequence[Column] | None, Mapping[str, Any] | None, int | None], object]
"""Writes down (lo, hi, rows or None, a control item's arguments or None, the rows' time of coming) before they enter.

What it raises keeps them out."""


@dataclass(slots=True)
class Ingested:
    """What became of one chunk: its arrival numbers [lo, hi), what went into which log, rows too far ahead of the clock (SKEW)."""

    stream: str
    lo: int
    hi: int
    arrivals: tuple[Arrived, ...]
    watermark_us: int
    future_skew: int = 0

    @property
    def accepted(self) -> int:
        """Rows let in; a control item has none."""
        return sum(a.rows for a in self.arrivals[:1])

    def told(self) -> list[Arrived]:
        """Return what a scheduler is to be told of: all of what has no arrival numbers, as that is known to be nothing."""
        return [a for a in self.arrivals if a.rows or a.controls or a.shed or self.lo == self.hi]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Arrival numbers [lo, hi) given out before their rows are pushed (a journal that must be on disk first)."""

    stream: str
    lo: int
    hi: int


@dataclass(slots=True)
class Source:
    """One stream's entry. `log` is what classes that are never shed read; `shed_logs` has more for classes that may be.

    `older` are logs of the first columns alone, for queries that were planned before ALTER STREAM added others: those, and logs of such
    queries among `shed_logs`, are narrower than the stream.

    `watermark_us` and what follows it change under the ingress lock only. `idle` True after its IDLE timeout. `is_plain`: event times are
    the values of a column, and all of them may move W.
    """

    id: OperatorId
    definition: StreamDefinition
    log: OutputLog
    ingress: Ingress
    shed_logs: dict[ShedKey, ShedLog] = field(default_factory=dict)
    older: list[OutputLog] = field(default_factory=list)
    watermark_us: int = TIME_MIN
    last_arrival_us: int | None = None
    idle: bool = False
    ended: bool = False
    future_skew: int = 0
    keep_origin: bool = False
    table: TableContent | None = None
    time_position: int | None = None
    by_timestamp: bool = False
    is_plain: bool = False
    open_reservations: deque[int] = field(default_factory=deque)
    reserved_lo: int = NOTHING_RESERVED
    recorder: Recorder | None = None

    def __post_init__(self) -> None:
        self.time_position = time_position(self.definition)
        if self.time_position is not None:
            self.by_timestamp = self.definition.schema.fields[self.time_position].type.kind is Kind.TIMESTAMP
            self.is_plain = self.by_timestamp and self.definition.time.skew_us is None
        self.keep_origin = self.definition.late_into is not None or self.definition.errors_into is not None

    def frontier(self, log: OutputLog) -> int:
        """Return the seq below which nothing more comes: read before the log is looked into (frontier.py)."""
        published = self.ingress.next_seq
        return max(log.hi, min(published, self.reserved_lo))

    @property
    def whole_logs(self) -> list[OutputLog]:
        """The logs that nothing is shed from."""
        return [self.log, *self.older] if self.older else [self.log]

    def shed_logs_of(self, class_id: ClassId) -> list[ShedLog]:
        """Return the logs of one class; with several its queries rank rows differently."""
        return [shed for (known, _), shed in list(self.shed_logs.items()) if known == class_id]

    @property
    def logs(self) -> list[OutputLog]:
        """All logs that a push goes to."""
        return [*self.whole_logs, *(s.log for s in self.shed_logs.values())]


@dataclass(frozen=True, slots=True)
class MergedPart:
    """One source's rows of a merged push: `positions` (rising, from 0) are their places among all of its rows."""

    source: Source
    columns: Sequence[Column]
    positions: Int64Array


@dataclass(frozen=True, slots=True)
class GivenPart:
    """One source's rows whose places and watermark are known from elsewhere: a part of a stream that was cut, or an operator's results.

    `seqs` are the rows' arrival numbers (never falling), `times_us` their event times. After the item `moved[i]`, a row of this source or
    not, W is at least `reached_us[i]`; both never fall, and all numbers lie in the interval that is pushed. `ends`: its last item ends it.
    """

    source: Source
    columns: Sequence[Column]
    seqs: Int64Array
    times_us: Int64Array
    moved: Int64Array
    reached_us: Int64Array
    ends: bool = False


class Ingress:
    """The one door for rows: gives each its arrival number and puts it in its stream's log, under one lock."""

    def __init__(self, seed: int = 0, next_seq: int = 0) -> None:
        self.next_seq = next_seq
        self.seed = seed
        self.lock = threading.RLock()
        self._reserved = next_seq
        self._ranges: deque[tuple[int, str]] = deque(maxlen=limits.ARRIVAL_RANGES_REMEMBERED_MAX)

    def reserve(self, source: Source, rows: int) -> Reservation:
        """Give out arrival numbers now; `push` must follow, in order per stream."""
        with self.lock:
            lo = self._reserved
            self._reserved = lo + rows
            source.open_reservations.append(lo)
            source.reserved_lo = source.open_reservations[0]  # before it is published
            self._publish()
            return Reservation(source.definition.name, lo, lo + rows)

    def withdraw(self, source: Source, reservation: Reservation) -> Ingested:
        """Give up the newest reservation of a source: its rows will not come. The numbers stay unused.

        A scheduler must be told of that, as of rows: whoever joins the stream with another may have waited for just these numbers.
        """
        with self.lock:
            taken = source.open_reservations.pop()
            assert taken == reservation.lo
            source.reserved_lo = source.open_reservations[0] if source.open_reservations else NOTHING_RESERVED
            self._publish()
            known = tuple(Arrived(log.id, 0) for log in source.logs)
        return Ingested(source.definition.name, reservation.lo, reservation.lo, known, source.watermark_us)

    def advance_to(self, seq: int) -> None:
        """Leave out the arrival numbers below `seq` that were not given: a replay gives rows the numbers that they had."""
        with self.lock:
            self._reserved = max(self._reserved, seq)
            self._publish()

    def push(
        self,
        source: Source,
        columns: Sequence[Column],
        *,
        arrival_ns: int,
        now_us: int,
        reservation: Reservation | None = None,
    ) -> Ingested:
        """Let rows in: give them arrival numbers, unless reserved, and append them to the source's logs."""
        rows = len(columns[0])
        instant = _one_instant(source, columns[source.time_position]) if rows == 1 and source.time_position is not None else None
        if instant is not None:
            times: Int64Array | None = None
            skewed = _is_ahead(source, instant, now_us)
        elif source.is_plain and source.time_position is not None:
            times = moving = columns[source.time_position].values
            skewed = 0
        else:
            times, moving, skewed = _given_times(source, columns, now_us)
        with self.lock:
            woken = self._wake(source, now_us, arrival_ns) if source.idle and reservation is None else ()
            lo, hi = self._numbers(rows, reservation)
            if source.recorder is not None and reservation is None:
                source.recorder(lo, hi, columns, None, now_us)
            start, watermark_us, delay_us = source.log.hi, source.watermark_us, source.definition.time.delay_us
            if instant is not None:
                track: WatermarkTrack = RowTrack(start, hi, watermark_us, TIME_MIN if skewed else instant, delay_us, lo)
                time = Numbers(1, start=instant)
            else:
                if times is None:
                    times, moving = _arrival_times(source, rows, now_us)
                track, time = RowsTrack(start, hi, watermark_us, moving, delay_us, first=lo), Numbers(rows, array=times)
            train = _rows_train(source, columns, Numbers(rows, start=lo, step=1), lo, hi, time, arrival_ns, track)
            arrivals = self._append(source, train, arrival_ns)
            source.watermark_us = track.end
            source.last_arrival_us = now_us
            source.future_skew += skewed
            if reservation is not None:
                self._close(source, reservation)
            self.next_seq = self._reserved
        return Ingested(source.definition.name, lo, hi, (*arrivals, *woken), track.end, skewed)

    def push_merged(self, parts: Sequence[MergedPart], rows: int, *, arrival_ns: int, now_us: int) -> list[Ingested]:
        """Let in `rows` rows of several sources that take turns row by row: a train a source over the same arrival interval."""
        with self.lock:
            woken = {p.source.id: self._wake(p.source, now_us, arrival_ns) for p in parts if p.source.idle}
            lo, hi = self._numbers(rows, None)
            ingested = [self._push_part(part, lo, hi, arrival_ns, now_us, woken.get(part.source.id, ())) for part in parts]
            self._remember_turns(parts, lo)
            self._publish()
        return ingested

    def push_given(self, parts: Sequence[GivenPart], hi: int, *, arrival_ns: int) -> list[Ingested]:
        """Let in all that the parts' sources have up to the arrival number `hi`: the rows, and how W moved between them.

        The numbers must not have been given out, which is asserted: only an engine that is fed like this throughout can be.
        """
        with self.lock:
            lo = self._reserved
            assert lo <= hi
            assert all(not len(n) or lo <= int(n[0]) <= int(n[-1]) < hi for part in parts for n in (part.seqs, part.moved))
            self._reserved = hi
            ingested = []
            for part in parts:
                source = part.source
                moved, reached = part.moved, np.maximum(part.reached_us, source.watermark_us)
                if part.ends:
                    moved, reached = np.append(moved, hi - 1), np.append(reached, TIME_MAX)
                track = StepTrack(source.log.hi, hi, source.watermark_us, moved, reached)
                ingested.append(
                    self.push_again(source, part.columns, part.seqs, part.times_us, track, arrival_ns=arrival_ns, ends=part.ends)
                )
            self._publish()
        return ingested

    def push_again(
        self,
        source: Source,
        columns: Sequence[Column],
        seqs: Int64Array,
        times: Int64Array,
        track: WatermarkTrack,
        *,
        arrival_ns: int,
        ends: bool = False,
    ) -> Ingested:
        """Let in rows that came once, with the arrival numbers and the W that they had: `track` goes on where the source's log ends.

        Nothing is written down. What is known to have come is moved on by `advance_to`, once all streams have theirs (replay.py).
        """
        with self.lock:
            seq, time = Numbers(len(seqs), array=seqs), Numbers(len(seqs), array=times)
            train = _rows_train(source, columns, seq, track.lo, track.hi, time, arrival_ns, track)
            train.ended = ends
            arrivals = self._append(source, train, arrival_ns)
            source.watermark_us, source.ended = track.end, source.ended or ends
        return Ingested(source.definition.name, track.lo, track.hi, tuple(arrivals), track.end)

    def _push_part(self, part: MergedPart, lo: int, hi: int, arrival_ns: int, now_us: int, woken: tuple[Arrived, ...]) -> Ingested:
        source, rule, skewed = part.source, part.source.definition.time, 0
        if source.time_position is not None:
            times = event_times(part.columns[source.time_position], rule)
            moving, skewed = moving_times(times, rule.skew_us, now_us)
        else:
            times, moving = _arrival_times(source, len(part.positions), now_us)
        seqs = part.positions + lo
        reached = np.maximum.accumulate(np.maximum(moving, TIME_MIN + rule.delay_us)) - rule.delay_us
        track = StepTrack(source.log.hi, hi, source.watermark_us, seqs, np.maximum(reached, source.watermark_us))
        seq, time = Numbers(len(seqs), array=seqs), Numbers(len(seqs), array=times)
        train = _rows_train(source, part.columns, seq, lo, hi, time, arrival_ns, track)
        arrivals = self._append_to_logs(source, train, arrival_ns)
        source.watermark_us = track.end
        source.last_arrival_us = now_us
        source.future_skew += skewed
        return Ingested(source.definition.name, lo, hi, (*arrivals, *woken), track.end, skewed)

    def _remember_turns(self, parts: Sequence[MergedPart], lo: int) -> None:
        firsts: list[tuple[int, str]] = []
        for part in parts:
            turns = part.positions[np.flatnonzero(np.diff(part.positions, prepend=-2) > 1)]
            firsts.extend((lo + at, part.source.definition.name) for at in turns.tolist())
        self._ranges.extend(sorted(firsts))

    def control(
        self,
        source: Source,
        *,
        arrival_ns: int,
        watermark_us: int | None = None,
        ended: bool = False,
        idle: bool | None = None,
        flush: bool = False,
    ) -> Ingested:
        """Append a control item: W moved by a clock, the end of the stream, an idle mark, a flush."""
        with self.lock:
            seq, hi = self._numbers(1, None)
            if source.recorder is not None:
                said = {"watermark_us": watermark_us, "ended": ended, "idle": idle, "flush": flush}
                source.recorder(seq, hi, None, said, None)
            start = source.log.hi
            target = TIME_MAX if ended else source.watermark_us if watermark_us is None else watermark_us
            track = jump_track(start, hi, source.watermark_us, seq, target)
            train = empty_train(source.definition.schema, start, hi, track, arrival=ArrivalTimes(seq, arrival_ns), ended=ended)
            train.idle, train.flush = idle, flush
            arrivals = self._append(source, train, arrival_ns)
            source.watermark_us = track.end
            source.ended = source.ended or ended
            if idle is not None:
                source.idle = idle
            self._publish()
        return Ingested(source.definition.name, seq, hi, tuple(arrivals), track.end)

    def stream_of(self, seqs: Int64Array) -> list[str | None]:
        """Return which stream each arrival number belongs to; None when that is no longer remembered."""
        with self.lock:
            ranges = list(self._ranges)
        starts = np.array([r[0] for r in ranges], dtype=np.int64)
        places = np.searchsorted(starts, seqs, side="right") - 1
        return [ranges[p][1] if p >= 0 else None for p in places.tolist()]

    def _numbers(self, rows: int, reservation: Reservation | None) -> tuple[int, int]:
        if reservation is not None:
            assert reservation.hi - reservation.lo == rows
            return reservation.lo, reservation.hi
        lo = self._reserved
        self._reserved = lo + rows
        return lo, lo + rows

    def _close(self, source: Source, reservation: Reservation) -> None:
        opened = source.open_reservations.popleft()
        assert opened == reservation.lo, "reservations of a stream are pushed in order"
        source.reserved_lo = source.open_reservations[0] if source.open_reservations else NOTHING_RESERVED

    def _publish(self) -> None:
        self.next_seq = self._reserved

    def _wake(self, source: Source, now_us: int, arrival_ns: int) -> tuple[Arrived, ...]:
        return self.control(source, arrival_ns=arrival_ns, idle=False).arrivals

    def _append(self, source: Source, train: Train, arrival_ns: int) -> list[Arrived]:
        if not self._ranges or self._ranges[-1][1] != source.definition.name:
            self._ranges.append((train.hi - max(1, train.rows), source.definition.name))
        return self._append_to_logs(source, train, arrival_ns)

    def _append_to_logs(self, source: Source, train: Train, arrival_ns: int) -> list[Arrived]:
        arrivals = [_push(source.log, train, arrival_ns)]
        if source.older:
            arrivals += [_push(older, train.narrowed(older.schema), arrival_ns) for older in source.older]
        if source.table is not None:
            source.table.changed(train)
        if source.shed_logs:
            for shed in source.shed_logs.values():
                kept = shed.kept(train, self.seed).narrowed(shed.log.schema)
                arrivals.append(_push(shed.log, kept, arrival_ns, train.rows - kept.rows))
        return arrivals


def _push(log: OutputLog, train: Train, arrival_ns: int, shed: int = 0) -> Arrived:
    node = LogNode(train if train.lo == log.hi else train.over(log.hi, train.hi), log)
    log.push(node)
    return Arrived(log.id, node.rows, node.bytes, arrival_ns, node.controls, log.rows_total, shed, log.controls_total)


def _one_instant(source: Source, column: Column) -> int | None:
    """Return the event time of a row that came alone, None where it has to be made out of the column."""
    return column.cells[0] if source.by_timestamp and type(column) is CellColumn else None


def _is_ahead(source: Source, instant_us: int, now_us: int) -> int:
    skew_us = source.definition.time.skew_us
    return int(skew_us is not None and instant_us > now_us + skew_us)


def _given_times(source: Source, columns: Sequence[Column], now_us: int) -> tuple[Int64Array | None, Int64Array, int]:
    """Return the rows' event times (None: by arrival), those that may move W, and how many may not."""
    if source.time_position is None:
        return None, _NO_TIMES, 0
    times = event_times(columns[source.time_position], source.definition.time)
    return times, *moving_times(times, source.definition.time.skew_us, now_us)


def _arrival_times(source: Source, rows: int, now_us: int) -> tuple[Int64Array, Int64Array]:
    """TIMESTAMP BY ARRIVAL: all rows of a chunk have the time it came, never below W."""
    now = max(now_us, source.watermark_us) if source.watermark_us != TIME_MAX else now_us
    times = np.full(rows, now, dtype=np.int64)
    return times, times


def _rows_train(
    source: Source,
    columns: Sequence[Column],
    seq: Numbers,
    lo: int,
    hi: int,
    time: Numbers,
    arrival_ns: int,
    track: WatermarkTrack,
) -> Train:
    schema = source.definition.schema
    train = Train(
        schema,
        columns if len(columns) == len(schema.fields) else fitted(columns, schema),
        rows=seq.rows,
        lo=track.lo,
        hi=hi,
        seq=seq,
        time=time,
        arrival=ArrivalTimes(lo, arrival_ns),
        track=track,
    )
    if source.keep_origin:
        train.origin = (copy(train),)  # not itself: it would stay until the collector of cycles comes
    return train


def fitted(columns: Sequence[Column], schema: Schema) -> list[Column]:
    """Return columns as those of a stream that has more since, NULL there, or fewer: its first ones."""
    width, rows = len(schema.fields), len(columns[0])
    return [*columns[:width], *(null_column(f.type, rows) for f in schema.fields[len(columns) :])]


def open_log(source: Source, log: OutputLog) -> OutputLog:
    """Return a further log of a source, which begins where that stands. Under the ingress lock."""
    log.hi, log.watermark_us = source.log.hi, source.watermark_us
    log.producer = source
    log.idle, log.ended = source.idle, source.ended
    return log


class ShedLogs:
    """One log per stream, class and way of choosing rows. All of it under the ingress lock. `when_full`: logs shed by themselves too."""

    def __init__(self, ingress: Ingress, *, when_full: bool) -> None:
        self._ingress = ingress
        self._when_full = when_full
        self._ratios: dict[tuple[str, ClassId], float] = {}

    def open(self, source: Source, key: ShedKey, make_log: Callable[[], OutputLog], utility: UtilityOrder | None) -> ShedLog:
        """Make the log of a class on a stream; it begins where the stream stands, at the ratio that was last asked for."""
        with self._ingress.lock:
            log = open_log(source, make_log())
            ratio = self._ratios.get((source.definition.name, key[0]), 0.0)
            shed = source.shed_logs[key] = ShedLog(log, ratio, when_full=self._when_full, utility=utility)
        return shed

    def set_ratio(self, source: Source, class_id: ClassId, ratio: float) -> None:
        """Shed this share of the stream's rows before the class, from the next chunk on."""
        with self._ingress.lock:
            self._ratios[source.definition.name, class_id] = ratio
            for shed in source.shed_logs_of(class_id):
                shed.ratio = ratio

    def press(self, source: Source, class_id: ClassId, ratio: float) -> None:
        """Shed at least this share because readers of the class's results are behind."""
        with self._ingress.lock:
            for shed in source.shed_logs_of(class_id):
                shed.pressure = ratio
