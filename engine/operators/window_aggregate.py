"""GROUP BY over windows made of panes (hopping, tumbling, cumulating), EMIT FINAL.

Each row is folded once, into its pane; a window is the combination of its panes when W passes its end (K4). State is panes × groups,
never rows. Rows of one train are folded together, save where a row reaches only some of its windows: then the train is cut
where windows close, so that a closed window never sees a row that came too late for it.

Answers come by (end, start, first arrival of the group in the window) and carry the seq of the item that moved W past the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from millstream.engine.column import Column, Mask, concat_columns
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.keys import key_encoder
from millstream.engine.operators.recipes import AggregateRecipe
from millstream.engine.schema import Schema
from millstream.engine.train import Int64Array, Numbers, Train, empty_train
from millstream.engine.types import TIMESTAMP
from millstream.engine.watermarks import TIME_MIN, WatermarkTrack, concat_tracks, jump_track, minimum_track
from millstream.engine.windows.aggregates import Aggregates
from millstream.engine.windows.assigners import assigner_for
from millstream.engine.windows.batch import Batch

SEGMENTS_MAX = 16  # panes of an ordered train that are folded one by one; with more, all at once


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """One closed window: its groups in order, their aggregates, and the seq that closed it."""

    window: int
    seq: int
    ids: Int64Array
    keys: list[Column]
    aggregates: list[Column]


class WindowAggregate(Operator):
    """See the module's text."""

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        assert recipe.window is not None
        self._positions = recipe.keys
        self._assigner = assigner_for(recipe.window)
        self._keys = key_encoder([inputs.fields[k].type for k in recipe.keys])
        self._aggregates = Aggregates(recipe.aggregates, inputs)
        self._panes_with = np.zeros(1, dtype=np.int64)  # per group id: live panes that have rows of it
        self._watermark = TIME_MIN
        self._ordinal = 0

    # The call ----------------------------------------------------------------------------------------------------------

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Fold the rows, close what W has passed."""
        train = inputs[0]
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        rows, cuts = self._timely(train, track, out)
        ids = self._encode(rows)
        answers: list[WindowAnswer] = []
        done = 0
        for window, seq in self._closings(rows, track):
            if cuts:
                stop = int(np.searchsorted(rows.seq.array(), seq, side="right"))
                self._fold(rows, ids, done, stop)
                done = stop
            elif done < rows.rows:
                self._fold(rows, ids, 0, rows.rows)
                done = rows.rows
            answers.extend(self._answer(window, seq))
        self._fold(rows, ids, done, rows.rows)
        self._ordinal += rows.rows
        self._watermark = max(self._watermark, track.end)
        if train.flush:
            track = self._flush(train, track, answers)
        self._drop_panes()
        out.emit(self._train_of(train, track, answers))

    def _timely(self, train: Train, track: WatermarkTrack, out: Emitter) -> tuple[Train, bool]:
        """Take out rows in no window and late ones; say whether some of the rest reach only some of their windows (K4)."""
        if train.rows == 0:
            return train, False
        times = train.time.array()
        first, last = self._assigner.closings(times[:1] if train.rows == 1 else _bounds(times))
        # In order no row is below W, so its first window is open; else it is enough that W never reaches the least first end.
        timely = track.in_order or int(first.min()) > track.end
        if timely and int(last.min()) != TIME_MIN and not self._has_gaps:
            return train, False
        return self._sorted_out(train, track, out)

    @property
    def _has_gaps(self) -> bool:
        probe = self._assigner
        return getattr(probe, "slide_us", 0) > getattr(probe, "range_us", 0)

    def _sorted_out(self, train: Train, track: WatermarkTrack, out: Emitter) -> tuple[Train, bool]:
        first, last = self._assigner.closings(train.time.array())
        inside = last != TIME_MIN
        watermark = track.before(train.seq.array())
        late: Mask = inside & (last <= watermark)
        partly: Mask = inside & ~late & (first <= watermark)
        if late.any():
            out.late.append((0, train.take(np.flatnonzero(late))))
        some = int(np.count_nonzero(partly))
        if some:
            out.partly_late.append((0, some))
        return train.select(inside & ~late), some > 0

    # Folding -----------------------------------------------------------------------------------------------------------

    def _encode(self, rows: Train) -> Int64Array:
        if rows.rows == 0 or not self._positions:
            ids = np.zeros(rows.rows, dtype=np.int64)
        else:
            ids = self._keys.encode([rows.column(p) for p in self._positions])
        size = self._keys.size
        self._aggregates.table.reserve_groups(size)
        if size > len(self._panes_with):
            room = max(size, len(self._panes_with))
            self._panes_with = np.concatenate((self._panes_with, np.zeros(room, dtype=np.int64)))
        return ids

    def _fold(self, rows: Train, ids: Int64Array, start: int, stop: int) -> None:
        if start >= stop:
            return
        times = rows.time.array()[start:stop]
        low, high = self._assigner.panes(_bounds(times)).tolist()
        if low == high:
            self._fold_pane(rows, ids, start, stop, low)
        elif rows.track.in_order and high - low < SEGMENTS_MAX:
            starts = np.array([self._assigner.pane_start(p) for p in range(low + 1, high + 1)], dtype=np.int64)
            cuts = [0, *np.searchsorted(times, starts).tolist(), stop - start]
            for place, pane in enumerate(range(low, high + 1)):
                if cuts[place] < cuts[place + 1]:
                    self._fold_pane(rows, ids, start + cuts[place], start + cuts[place + 1], pane)
        else:
            self._fold_panes(rows, ids, start, stop, self._assigner.panes(times))

    def _fold_pane(self, rows: Train, ids: Int64Array, start: int, stop: int, pane: int) -> None:
        table = self._aggregates.table
        lo = table.open(pane) * table.capacity
        self._update(Batch(rows, start, stop, ids[start:stop], lo, lo + table.capacity, self._ordinal + start))

    def _fold_panes(self, rows: Train, ids: Int64Array, start: int, stop: int, panes: Int64Array) -> None:
        table = self._aggregates.table
        different, place = np.unique(panes, return_inverse=True)
        slots = np.array([table.open(p) for p in different.tolist()], dtype=np.int64)
        cells = slots[place] * table.capacity + ids[start:stop]
        self._update(Batch(rows, start, stop, cells, 0, table.slot_count * table.capacity, self._ordinal + start))

    def _update(self, batch: Batch) -> None:
        new = self._aggregates.update(batch)
        if len(new) and self._positions:
            np.add.at(self._panes_with, new % self._aggregates.table.capacity, 1)

    # Closing -----------------------------------------------------------------------------------------------------------

    def _closings(self, rows: Train, track: WatermarkTrack) -> list[tuple[int, int]]:
        """Return (window, seq of the item that closes it) for windows with rows, in order."""
        if track.end == track.start:
            return []
        after = None if self._watermark == TIME_MIN else self._assigner.last_closed(self._watermark)
        upto = self._assigner.last_closed(track.end)
        if after is not None and upto <= after:
            return []
        panes = set(self._aggregates.table.slots)
        if rows.rows:
            panes.update(np.unique(self._assigner.panes(rows.time.array())).tolist())
        windows: set[int] = set()
        for pane in panes:
            first, last = self._assigner.windows_of(pane)
            windows.update(range(first if after is None else max(first, after + 1), min(last, upto) + 1))
        if not windows:
            return []
        ordered = sorted(windows)
        ends = np.array([self._assigner.end(w) for w in ordered], dtype=np.int64)
        return list(zip(ordered, track.first_reaching(ends).tolist(), strict=True))

    def _answer(self, window: int, seq: int) -> list[WindowAnswer]:
        first, beyond = self._assigner.panes_of(window)
        known = self._aggregates.table.slots
        if beyond - first <= len(known):
            slots = [known[p] for p in range(first, beyond) if p in known]
        else:
            slots = [known[p] for p in sorted(known) if first <= p < beyond]
        if not slots:
            return []
        ids = self._aggregates.rows.present(slots)
        if len(ids) == 0:
            return []
        return [WindowAnswer(window, seq, ids, self._keys.columns(ids), self._aggregates.combine(slots, ids))]

    def _flush(self, train: Train, track: WatermarkTrack, answers: list[WindowAnswer]) -> WatermarkTrack:
        """An idle flush closes every open window; W becomes the greatest flushed end (K3, K14)."""
        seq = train.hi - 1
        after = None if self._watermark == TIME_MIN else self._assigner.last_closed(self._watermark)
        windows: set[int] = set()
        for pane in self._aggregates.table.slots:
            first, last = self._assigner.windows_of(pane)
            windows.update(range(first if after is None else max(first, after + 1), last + 1))
        if not windows:
            return track
        for window in sorted(windows):
            answers.extend(self._answer(window, seq))
        self._watermark = max(self._watermark, self._assigner.end(max(windows)))
        if train.hi - train.lo == 1:
            return jump_track(train.lo, train.hi, track.start, seq, self._watermark)
        body, last_step = track.split_at(seq)
        return concat_tracks([body, jump_track(seq, train.hi, last_step.start, seq, self._watermark)])

    def _drop_panes(self) -> None:
        """Free panes whose last window has closed, and groups that are in no pane any more."""
        if self._watermark == TIME_MIN:
            return
        table = self._aggregates.table
        closed = self._assigner.last_closed(self._watermark)
        gone = [p for p in table.slots if self._assigner.windows_of(p)[1] <= closed]
        for pane in gone:
            if self._positions:
                ids = self._aggregates.rows.present([table.slots[pane]])
                self._panes_with[ids] -= 1
                unused = ids[self._panes_with[ids] == 0]
                if len(unused):
                    self._keys.free(unused)
            self._aggregates.close(pane)

    def _train_of(self, train: Train, track: WatermarkTrack, answers: list[WindowAnswer]) -> Train:
        if not answers:
            empty = empty_train(self.schemas[0], train.lo, train.hi, track, arrival_ns=train.newest_arrival(), ended=train.ended)
            empty.idle, empty.flush, empty.notes = train.idle, train.flush, train.notes
            return empty
        sizes = np.array([len(a.ids) for a in answers])
        ends = np.repeat(np.array([self._assigner.end(a.window) for a in answers], dtype=np.int64), sizes)
        starts = np.repeat(np.array([self._assigner.start(a.window) for a in answers], dtype=np.int64), sizes)
        seqs = np.repeat(np.array([a.seq for a in answers], dtype=np.int64), sizes)
        columns = [concat_columns(list(parts)) for parts in zip(*((*a.keys, *a.aggregates) for a in answers), strict=True)]
        rows = len(seqs)
        return Train(
            self.schemas[0],
            [*columns, Column(TIMESTAMP, starts), Column(TIMESTAMP, ends)],
            rows=rows,
            lo=train.lo,
            hi=train.hi,
            seq=Numbers(rows, array=seqs),
            time=Numbers(rows, array=ends - 1),
            arrival=Numbers(rows, array=train.arrivals_at(seqs)),
            track=track,
            ended=train.ended,
            idle=train.idle,
            flush=train.flush,
            notes=train.notes,
        )

    # State -------------------------------------------------------------------------------------------------------------

    def wake_at_us(self) -> int | None:
        """Return the end of the first window that holds rows: a stream by ARRIVAL must tick then."""
        table = self._aggregates.table
        after = TIME_MIN if self._watermark == TIME_MIN else self._assigner.last_closed(self._watermark)
        ends = [self._assigner.end(max(after + 1, self._assigner.windows_of(p)[0])) for p in list(table.slots)]
        return min(ends, default=None)

    def state_rows(self) -> int:
        """Return panes × groups."""
        return len(self._aggregates.table.slots) * self._keys.alive

    def state_bytes(self) -> int:
        """Return the bytes of all grids."""
        return self._aggregates.table.nbytes()


def _bounds(times: Int64Array) -> Int64Array:
    return np.array([times.min(), times.max()], dtype=np.int64)
