"""A train: rows that travel together along one edge, and the stretch of arrival order they stand for.

Every accepted row has a server-wide arrival number, its `seq`. A train covers the interval [lo, hi) of arrival numbers: it holds
*all* rows of its edge in that interval, perhaps none, in order of seq, and it carries the watermark as a step function over the
interval. So an operator with several inputs can take the same interval from each, and what it answers does not depend on how
trains were cut or who ran first. A row that a window or a join puts out carries the seq of the row that caused it; rows with
equal seq are never separated.

Event time always travels with the row, also when no column shows it (K19). Columns, seq and time are gathered late: a filter only
composes index arrays. When a row arrived follows from its seq (arrivals.py).

Control items (end of stream, a watermark moved by a clock, idleness) are trains without rows that have a seq of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrivals import NO_ARRIVALS, ArrivalTimes, following_arrivals, latest_arrivals
from millstream.engine.data.column import CellColumn, Column, Index, Mask, concat_columns, null_column, one_cell
from millstream.engine.data.schema import Schema
from millstream.engine.data.tally import RowShares, Tally, follow, joined_shares
from millstream.engine.data.watermarks import WatermarkTrack, concat_tracks

Int64Array = npt.NDArray[np.int64]


class Selection:
    """Positions in a base train, composed lazily; shared by all deferred columns of one filtered train."""

    __slots__ = ("_composed", "index")

    def __init__(self, index: Index) -> None:
        self.index = index
        self._composed: tuple[Selection, Selection] | None = None

    def then(self, index: Selection) -> Selection:
        """Return the selection that first applies self, then `index`. Cached, as all columns ask for the same one."""
        cached = self._composed
        if cached is not None and cached[0] is index:
            return cached[1]
        composed = Selection(self.index[index.index])
        self._composed = (index, composed)
        return composed


@final
class Deferred:
    """A column that has been selected from but not gathered yet."""

    __slots__ = ("base", "selection")

    def __init__(self, base: Column, selection: Selection) -> None:
        self.base = base
        self.selection = selection


Slot = Column | Deferred


class Numbers:
    """An int64 per row that is often simple: one constant (step 0), or a range (step 1), or an array; perhaps selected.

    `is_constant`: all rows have the value `start`. `start` is the first value of a constant or a range.
    """

    __slots__ = ("_array", "_known", "_selection", "_step", "is_constant", "rows", "start")

    def __init__(
        self,
        rows: int,
        *,
        start: int = 0,
        step: int = 0,
        array: Int64Array | None = None,
        selection: Selection | None = None,
    ) -> None:
        self.rows = rows
        self.start = start
        self._step = step
        self._array = array
        self._selection = selection
        self._known: Int64Array | None = array if selection is None else None
        self.is_constant = step == 0 and array is None

    @property
    def is_range(self) -> bool:
        """All rows follow one another, from `start` on."""
        return self._step == 1 and self._array is None and self._selection is None

    def array(self) -> Int64Array:
        """Return the values, one a row. Computed once; threads that race compute the same and the last one's is kept."""
        if self._known is None:
            self._known = self._compute()
        return self._known

    def _compute(self) -> Int64Array:
        if self._selection is not None:
            index = self._selection.index
            return self._array[index] if self._array is not None else index * self._step + self.start
        if self._step:
            return np.arange(self.start, self.start + self.rows, dtype=np.int64)
        constant = np.empty(self.rows, dtype=np.int64)
        constant.fill(self.start)
        return constant

    def select(self, selection: Selection) -> Numbers:
        """Return the numbers of the selected rows."""
        rows = len(selection.index)
        if self.is_constant:
            return Numbers(rows, start=self.start)
        if self._selection is not None:
            return Numbers(rows, start=self.start, step=self._step, array=self._array, selection=self._selection.then(selection))
        return Numbers(rows, start=self.start, step=self._step, array=self._array, selection=selection)

    def slice(self, start: int, stop: int) -> Numbers:
        """Return the numbers of rows start to stop (excluded)."""
        if self.is_constant:
            return Numbers(stop - start, start=self.start)
        if self._array is None and self._selection is None:
            return Numbers(stop - start, start=self.start + start * self._step, step=self._step)
        return Numbers(stop - start, array=self.array()[start:stop])


class Train:
    """Rows of one edge over the arrival interval [lo, hi). Immutable by convention.

    `ended`: the edge has come to its end of stream in this train; nothing follows. `idle`: True or False when this control item
    says that the input went idle or woke up, else None; `flush` when that silence also closes what is open (K14). Marks belong to
    the last item of the interval. Metadata such as a gap in the answer rides in `notes`. `origin` are the source chunks that
    the rows came from, kept only where a late or error output will want the stream's own columns. Where load may be shed, `tally` says
    what the interval was offered and `receipts` what part of its input each answer saw (receipts/).
    """

    __slots__ = (
        "arrival",
        "ended",
        "flush",
        "hi",
        "idle",
        "lo",
        "notes",
        "origin",
        "receipts",
        "rows",
        "schema",
        "seq",
        "slots",
        "tally",
        "time",
        "track",
    )

    def __init__(
        self,
        schema: Schema,
        slots: Sequence[Slot],
        *,
        rows: int,
        lo: int,
        hi: int,
        seq: Numbers,
        time: Numbers,
        arrival: ArrivalTimes,
        track: WatermarkTrack,
        ended: bool = False,
        idle: bool | None = None,
        flush: bool = False,
        notes: dict[str, Any] | None = None,
        origin: tuple[Train, ...] = (),
        tally: Tally | None = None,
        receipts: RowShares | None = None,
    ) -> None:
        self.schema = schema
        self.slots = list(slots)
        self.rows = rows
        self.lo = lo
        self.hi = hi
        self.seq = seq
        self.time = time
        self.arrival = arrival
        self.track = track
        self.ended = ended
        self.idle = idle
        self.flush = flush
        self.notes = notes
        self.origin = origin
        self.tally = tally
        self.receipts = receipts

    @property
    def is_mark(self) -> bool:
        """The train ends its edge or says something about idleness, so nothing may be appended to it."""
        return self.ended or self.idle is not None or self.flush

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.rows

    def column(self, position: int) -> Column:
        """Return a column, gathered now if it was not yet."""
        slot = self.slots[position]
        if type(slot) is Deferred:
            slot = slot.base.take(slot.selection.index)
            self.slots[position] = slot
        return slot

    def cell(self, position: int) -> Column | None:
        """Return a column of a train of one row as a plain value, not gathered; None where that cannot be."""
        slot = self.slots[position]
        if type(slot) is Deferred:
            return one_cell(slot.base, slot.selection.index.item(0))
        return slot if type(slot) is CellColumn else one_cell(slot, 0)

    def slot(self, position: int) -> Slot:
        """Return a column as it stands, perhaps deferred, to be passed on without gathering."""
        return self.slots[position]

    def columns(self) -> list[Column]:
        """Return all columns, gathered."""
        return [self.column(i) for i in range(len(self.slots))]

    def select(self, mask: Mask) -> Train:
        """Return the train of the rows where `mask` is true; itself when that is all of them."""
        index = mask.nonzero()[0]
        if len(index) == self.rows:
            return self
        return self.take(index)

    def take(self, index: Index) -> Train:
        """Return the train of the rows at the increasing positions `index`, columns deferred, same interval."""
        selection = Selection(index)
        return self.picked(selection, self.schema, [self.deferred(i, selection) for i in range(len(self.slots))])

    def deferred(self, position: int, selection: Selection) -> Deferred:
        """Return a column of the selected rows, not gathered yet."""
        slot = self.slots[position]
        return Deferred(slot.base, slot.selection.then(selection)) if type(slot) is Deferred else Deferred(slot, selection)

    def picked(self, selection: Selection, schema: Schema, slots: Sequence[Slot]) -> Train:
        """Return the train of the selected rows with columns that hold just these, same interval."""
        changed = self.__copy__()
        changed.schema, changed.slots, changed.rows = schema, list(slots), len(selection.index)
        changed.seq, changed.time = self.seq.select(selection), self.time.select(selection)
        if self.receipts is not None:
            changed.receipts = self.receipts.take(selection.index)
        return changed

    def oldest_arrival(self) -> int:
        """Return when the first row arrived, in ns. There is at least one."""
        return self.arrival.start_ns if self.arrival.is_constant else int(self.arrival.at(self.seq.array()[:1])[0])

    def over(self, lo: int, hi: int) -> Train:
        """Return the same train over another interval, which must hold all its rows and steps."""
        if lo == self.lo and hi == self.hi:
            return self
        changed = self.__copy__()
        changed.lo, changed.hi, changed.track = lo, hi, self.track.over(lo, hi)
        return changed

    def __copy__(self) -> Train:
        """Return a train of its own with the same members, list of columns included; `copy` by itself takes six times as long."""
        twin = Train.__new__(Train)
        twin.schema, twin.slots, twin.rows, twin.lo, twin.hi = self.schema, self.slots, self.rows, self.lo, self.hi
        twin.seq, twin.time, twin.arrival, twin.track = self.seq, self.time, self.arrival, self.track
        twin.ended, twin.idle, twin.flush, twin.notes = self.ended, self.idle, self.flush, self.notes
        twin.origin, twin.tally, twin.receipts = self.origin, self.tally, self.receipts
        return twin

    def replace_columns(self, schema: Schema, slots: Sequence[Slot]) -> Train:
        """Return the same rows with other columns."""
        changed = self.__copy__()
        changed.schema, changed.slots = schema, list(slots)
        return changed

    def narrowed(self, schema: Schema) -> Train:
        """Return the same rows with the first columns alone; itself where there are no others."""
        return self if len(self.slots) == len(schema.fields) else self.replace_columns(schema, self.slots[: len(schema.fields)])

    def split_at(self, seq: int) -> tuple[Train, Train]:
        """Cut at an arrival number with lo <= seq <= hi: rows below it, and the rest. End and idle marks go with the rest."""
        stop = 0 if self.rows == 0 else int(np.searchsorted(self.seq.array(), seq, side="left"))
        left, right = self.track.split_at(seq)
        first = self._part(0, stop, self.lo, seq, left)
        rest = self._part(stop, self.rows, seq, self.hi, right)
        rest.ended, rest.idle, rest.flush = self.ended, self.idle, self.flush
        if self.tally is not None:
            first.tally, rest.tally = self.tally.split_at(seq)
        return first, rest

    def split_rows(self, rows: int) -> tuple[Train, Train | None]:
        """Cut off the first `rows` rows, more where rows share a seq. The rest is None when nothing is left."""
        if rows >= self.rows:
            return self, None
        seqs = self.seq.array()
        cut = int(seqs[rows - 1]) + 1
        if int(seqs[-1]) < cut:
            return self, None
        return self.split_at(cut)

    def _part(self, start: int, stop: int, lo: int, hi: int, track: WatermarkTrack) -> Train:
        slots: list[Slot] = []
        shared: dict[int, Selection] = {}
        for s in self.slots:
            if isinstance(s, Deferred):
                key = id(s.selection)
                if key not in shared:
                    shared[key] = Selection(s.selection.index[start:stop])
                slots.append(Deferred(s.base, shared[key]))
            else:
                slots.append(s.slice(start, stop))
        return Train(
            self.schema,
            slots,
            rows=stop - start,
            lo=lo,
            hi=hi,
            seq=self.seq.slice(start, stop),
            time=self.time.slice(start, stop),
            arrival=self.arrival,
            track=track,
            notes=self.notes,
            origin=self.origin,
            receipts=None if self.receipts is None else self.receipts.take(slice(start, stop)),
        )

    def nbytes(self) -> int:
        """Return an estimate of the bytes that the rows occupy once gathered."""
        return 24 * self.rows + sum(self.slot_nbytes(i) for i in range(len(self.slots)))

    def slot_nbytes(self, position: int) -> int:
        """Return an estimate of the bytes that one column occupies once gathered."""
        slot = self.slots[position]
        if isinstance(slot, Deferred):
            return slot.base.nbytes() * self.rows // max(1, len(slot.base))
        return slot.nbytes()


def concat_trains(trains: Sequence[Train]) -> Train:
    """Return as one the trains that follow one another on one edge (each hi is the next lo).

    Only the last may end or carry an idle mark.
    """
    if len(trains) == 1:
        return trains[0]
    first, last = trains[0], trains[-1]
    full = [t for t in trains if t.rows] or [first]
    slots = [concat_columns([t.column(i) for t in full]) for i in range(len(first.schema))]
    return Train(
        first.schema,
        slots,
        rows=sum(t.rows for t in trains),
        lo=first.lo,
        hi=last.hi,
        seq=_concat_numbers([t.seq for t in full]),
        time=_concat_numbers([t.time for t in full]),
        arrival=following_arrivals([(t.arrival, t.lo, t.hi) for t in trains]),
        track=concat_tracks([t.track for t in trains]),
        ended=last.ended,
        idle=last.idle,
        flush=last.flush,
        notes=next((t.notes for t in trains if t.notes), None),
        origin=_concat_origins(full),
        tally=follow([t.tally for t in trains], rows=sum(t.rows for t in trains)),
        receipts=joined_shares([(t.receipts, t.rows) for t in full]) if full[0].rows else None,
    )


_NO_NUMBERS = Numbers(0)


def merge_trains(trains: Sequence[Train], schema: Schema, order: Index) -> Train:
    """Return the rows of trains over one interval as one train: concatenated, then taken in `order`. The track is the first's."""
    slots = [concat_columns([t.column(i) for t in trains]).take(order) for i in range(len(schema))]
    rows = len(order)
    return Train(
        schema,
        slots,
        rows=rows,
        lo=trains[0].lo,
        hi=trains[0].hi,
        seq=Numbers(rows, array=np.concatenate([t.seq.array() for t in trains])[order]),
        time=Numbers(rows, array=np.concatenate([t.time.array() for t in trains])[order]),
        arrival=latest_arrivals([t.arrival for t in trains]),
        track=trains[0].track,
        origin=_concat_origins(trains),
    )


def empty_train(
    schema: Schema, lo: int, hi: int, track: WatermarkTrack, *, arrival: ArrivalTimes = NO_ARRIVALS, ended: bool = False
) -> Train:
    """Return a train without rows: progress, or the end."""
    slots: list[Slot] | None = schema.no_rows
    if slots is None:
        slots = [null_column(f.type, 0) for f in schema.fields]
        object.__setattr__(schema, "no_rows", slots)  # a record is frozen; what is kept here depends on its fields alone
    return Train(
        schema,
        slots,
        rows=0,
        lo=lo,
        hi=hi,
        seq=_NO_NUMBERS,
        time=_NO_NUMBERS,
        arrival=arrival,
        track=track,
        ended=ended,
    )


def original_rows(rows: Train) -> Train:
    """Return the source rows with the same arrival numbers, in the stream's own columns; `rows` itself when none are remembered."""
    if not rows.origin:
        return rows
    seqs = rows.seq.array()
    parts = []
    for source in sorted(rows.origin, key=lambda t: t.lo):
        known = source.seq.array()
        places = np.searchsorted(known, seqs)
        inside = (places < len(known)) & (known[np.minimum(places, len(known) - 1)] == seqs)
        if inside.any():
            parts.append(source.take(places[inside]))
    return concat_trains(parts) if parts else rows


def _concat_origins(parts: Sequence[Train]) -> tuple[Train, ...]:
    if not any(t.origin for t in parts):
        return ()
    unique = {id(o): o for t in parts for o in t.origin}
    return tuple(unique.values())


def _concat_numbers(parts: Sequence[Numbers]) -> Numbers:
    if len(parts) == 1:
        return parts[0]
    rows = sum(p.rows for p in parts)
    if all(p.is_constant and p.start == parts[0].start for p in parts):
        return Numbers(rows, start=parts[0].start)
    return Numbers(rows, array=np.concatenate([p.array() for p in parts]))
