"""GROUP BY over windows made of panes (hopping, tumbling, cumulating), EMIT FINAL.

Each row is folded once, into its pane; a window is the combination of its panes when W passes its end (K4). State is panes × groups,
never rows. Rows of one train are folded together, save where a row reaches only some of its windows: then the train is cut
where windows close, so that a closed window never sees a row that came too late for it.

Answers come by (end, start, first arrival of the group in the window) and carry the seq of the item that moved W past the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.column import Column, Mask, concat_columns
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.language.recipes import AggregateRecipe, EmitKind
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import flushed_track, for_each_row, timestamps
from millstream.engine.state.forms import state_record
from millstream.engine.windows.assigners import assigner_for
from millstream.engine.windows.early import EmptyWindows, empty_answer, moments
from millstream.engine.windows.grids import WindowSlots
from millstream.engine.windows.pane_aggregates import Aggregates
from millstream.engine.windows.pane_states import Batch

SEGMENTS_MAX = 16  # panes of an ordered train that are folded one by one; with more, all at once


@state_record("window_answer", 1)
@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """One closed window: its groups in order, their aggregates, and the seq that closed it."""

    window: int
    seq: int
    ids: Int64Array
    keys: list[Column]
    aggregates: list[Column]


class WindowAggregate(Operator):
    """GROUP BY over windows made of panes: tumbling, hopping, cumulating; one answer a window and group."""

    calls_late = True
    state_name = "window_aggregate"
    state_fields: tuple[str, ...] = (
        "_keys",
        "_aggregates",
        "_panes_with",
        "_watermark",
        "_ordinal",
        "_dropped_upto",
        "_newest",
        "_empty",
        "_newest_before_us",
        "_only_whole",
    )

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        assert recipe.window is not None
        self._recipe = recipe
        self._positions = recipe.keys
        self._every = recipe.emit.every_us if recipe.emit.kind is EmitKind.EVERY else 0
        self._assigner = assigner_for(recipe.window, self._every)
        self._empty = EmptyWindows() if recipe.emit.empty else None
        self._newest = TIME_MIN
        self._keys = key_encoder([inputs.fields[k].type for k in recipe.keys])
        self._aggregates = self._begun(recipe, inputs)
        self._panes_with = np.zeros(1, dtype=np.int64)  # per group id: live panes that have rows of it
        self._watermark = TIME_MIN
        self._ordinal = 0
        self._dropped_upto: int | None = None  # panes of windows up to this one have been freed
        self._newest_before_us: int | None = None  # greatest event time of rows from before it
        self._only_whole = False  # windows that may hold such rows are not answered
        self._plain = not self._every and self._empty is None and not self._assigner.has_gaps
        self._closes_us = TIME_MIN  # the least end of a window above W, where that is known

    def _begun(self, recipe: AggregateRecipe, inputs: Schema) -> Aggregates:
        """Return the accumulators as they are before the first row."""
        return Aggregates(recipe.aggregates, inputs)

    def began(self, newest_before_us: int | None, *, only_whole: bool) -> None:
        """Learn before the first call how late the rows before it were, and whether to answer only windows that hold none of them."""
        self._newest_before_us, self._only_whole = newest_before_us, only_whole

    def whole_from_us(self) -> int | None:
        """Return the start of the first window all of whose rows it sees (late ones aside); None when that holds for every window."""
        if self._newest_before_us is None:
            return None
        return self._assigner.start(self._assigner.windows_of(self._assigner.pane_of(self._newest_before_us))[1] + 1)

    # The call ----------------------------------------------------------------------------------------------------------

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Fold the rows, close what W has passed."""
        train = inputs[0]
        if self._only_folds(train):
            self._fold(train, self._encode(train), 0, train.rows)
            self._ordinal += train.rows
            self._watermark = train.track.end
            out.emit(self._train_of(train, train.track, []))
            return
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        self._note_span(train, track)
        answers: list[WindowAnswer] = []
        rows, cuts = self._timely(train, track, out)
        for instant, window, seq in self._folding(rows, track, cuts=cuts):
            answers.extend(self._answer(window, seq) if window is not None else self._early(instant, seq))
        if train.flush:
            track = self._flush(train, track, answers)
        self._drop_panes()
        if self._plain and self._watermark not in (TIME_MIN, TIME_MAX):
            self._closes_us = self._assigner.end(self._assigner.last_closed(self._watermark) + 1)
        out.emit(self._train_of(train, track, answers))

    def _folding(self, rows: Train, track: WatermarkTrack, *, cuts: bool) -> Iterator[tuple[int, int | None, int]]:
        """Yield (instant, window or None for early answers, seq) of what is to be answered, once the rows that it may see are folded.

        With `cuts` those are the rows up to the seq, else all. When nothing more is due, all rows are folded and W has moved.
        """
        ids = self._encode(rows)
        done = 0
        if not cuts:
            self._fold(rows, ids, 0, rows.rows)
            done = rows.rows
        for due in self._due(rows, track, folded=not cuts):
            if cuts:
                stop = int(np.searchsorted(rows.seq.array(), due[2], side="right"))
                self._fold(rows, ids, done, stop)
                done = stop
            yield due
        self._fold(rows, ids, done, rows.rows)
        self._ordinal += rows.rows
        self._watermark = max(self._watermark, track.end)

    def _only_folds(self, train: Train) -> bool:
        """Whether no row of a train is late, W goes on from where it stands, and it closes no window: most trains, most of the time."""
        track = train.track
        return self._watermark <= track.start and track.end < self._closes_us and train.rows > 0 and track.in_order and not train.flush

    def _timely(self, train: Train, track: WatermarkTrack, out: Emitter) -> tuple[Train, bool]:
        """Take out rows in no window and late ones; say whether some of the rest reach only some of their windows (K4)."""
        if train.rows == 0:
            return train, False
        if not self._assigner.has_gaps:
            # In order no row is below W, so its first window is open; else it is enough that W never reaches the least first end.
            if track.in_order:
                return train, False
            least = train.time.array().min(keepdims=True)
            if not self._every and int(self._assigner.closings(least)[0][0]) > track.end:
                return train, False
        return self._sorted_out(train, track, out)

    def _sorted_out(self, train: Train, track: WatermarkTrack, out: Emitter) -> tuple[Train, bool]:
        first, last = self._assigner.closings(train.time.array())
        inside = last != TIME_MIN
        watermark = track.before(train.seq.array())
        late: Mask = inside & (last <= watermark)
        partly: Mask = inside & ~late & (first <= watermark)
        if late.any():
            out.late.append((0, train.take(np.flatnonzero(late))))
        some = bool(partly.any())
        if some:
            out.partly_late.append((0, train.seq.array()[partly]))
        # An early answer must not see a row that came after it either, though no window of that row has closed.
        below = self._every > 0 and bool((train.time.array() < watermark).any())
        return train.select(inside & ~late), some or below

    # Folding -----------------------------------------------------------------------------------------------------------

    def _encode(self, rows: Train) -> Int64Array:
        if rows.rows == 0 or not self._positions:
            ids = np.zeros(rows.rows, dtype=np.int64)
        else:
            ids = self._keys.encode([rows.column(p) for p in self._positions])
        size = self._keys.size
        if size > self._aggregates.table.groups:
            self._aggregates.table.reserve_groups(size)
            if size > len(self._panes_with):
                room = max(size, len(self._panes_with))
                self._panes_with = np.concatenate((self._panes_with, np.zeros(room, dtype=np.int64)))
        return ids

    def _fold(self, rows: Train, ids: Int64Array, start: int, stop: int) -> None:
        if start >= stop:
            return
        times = rows.time.array()[start:stop]
        if rows.track.sorted_span() is not None:
            self._fold_ordered(rows, ids, times, start, stop)
            return
        low, high = self._assigner.pane_of(int(times.min())), self._assigner.pane_of(int(times.max()))
        if low == high:
            self._fold_pane(rows, ids, start, stop, low)
        else:
            self._fold_panes(rows, ids, start, stop, self._assigner.panes(times))

    def _fold_ordered(self, rows: Train, ids: Int64Array, times: Int64Array, start: int, stop: int) -> None:
        """Fold rows start … stop, which have the `times` given, in order."""
        low, high = self._assigner.pane_of(int(times[0])), self._assigner.pane_of(int(times[-1]))
        if low == high:
            self._fold_pane(rows, ids, start, stop, low)
        elif high - low < SEGMENTS_MAX:
            starts = np.array([self._assigner.pane_start(p) for p in range(low + 1, high + 1)], dtype=np.int64)
            cuts = [0, *np.searchsorted(times, starts).tolist(), stop - start]
            for place, pane in enumerate(range(low, high + 1)):
                if cuts[place] < cuts[place + 1]:
                    self._fold_pane(rows, ids, start + cuts[place], start + cuts[place + 1], pane)
        else:
            self._fold_panes(rows, ids, start, stop, self._assigner.panes(times))

    def _fold_pane(self, rows: Train, ids: Int64Array, start: int, stop: int, pane: int) -> None:
        table = self._aggregates.table
        slot = table.open(pane)
        is_whole = stop - start == len(ids)
        if is_whole and self._aggregates.fold_full(slot, rows, ids):
            return
        lo = slot * table.capacity
        cells = ids if is_whole else ids[start:stop]
        new = self._aggregates.update(Batch(rows, start, stop, cells, lo, lo + table.capacity, self._ordinal + start))
        if len(new) and self._positions:  # each once, as they are of one pane
            self._panes_with[slice(len(new)) if len(new) == table.groups else new - lo] += 1

    def _fold_panes(self, rows: Train, ids: Int64Array, start: int, stop: int, panes: Int64Array) -> None:
        table = self._aggregates.table
        different, place = np.unique(panes, return_inverse=True)
        slots = np.array([table.open(p) for p in different.tolist()], dtype=np.int64)
        cells = slots[place] * table.capacity + ids[start:stop]
        new = self._aggregates.update(Batch(rows, start, stop, cells, 0, table.slot_count * table.capacity, self._ordinal + start))
        if len(new) and self._positions:
            np.add.at(self._panes_with, new % table.capacity, 1)

    # Closing -----------------------------------------------------------------------------------------------------------

    def _due(self, rows: Train, track: WatermarkTrack, *, folded: bool) -> list[tuple[int, int | None, int]]:
        """Return (instant, window that closes or None for early answers, seq), in order; at one instant the final answer is last."""
        if rows.rows and self._every:
            self._newest = max(self._newest, int(rows.time.array().max()))
        closing = self._closings(rows, track, folded)
        if self._every:
            early = moments(self._every, track, self._newest, self._spans(rows))
            closing = sorted([*closing, *((m, None, s) for m, s in early)], key=lambda d: (d[0], d[1] is not None, d[1] or 0))
        return closing

    def _spans(self, rows: Train) -> list[tuple[int, int]]:
        """Return from when to when each pane with rows is in an open window."""
        panes = set(self._aggregates.table.slots)
        if rows.rows:
            panes.update(distinct(self._assigner.panes(rows.time.array())).tolist())
        return [(self._assigner.pane_start(p), self._assigner.end(self._assigner.windows_of(p)[1])) for p in sorted(panes)]

    def _early(self, moment: int, seq: int) -> list[WindowAnswer]:
        """Answer for the windows open at a moment with their rows below it."""
        newest = self._assigner.pane_of(moment - 1)
        answers: list[WindowAnswer] = []
        for window in range(self._assigner.last_closed(moment) + 1, self._assigner.windows_of(newest)[1] + 1):
            if self._assigner.start(window) < moment < self._assigner.end(window):
                first, beyond = self._assigner.panes_of(window)
                answers.extend(self._combined(window, seq, self._slots(first, min(beyond, newest + 1))))
        return answers

    def _slots(self, first: int, beyond: int) -> WindowSlots:
        """Return the slots of the panes from `first` to `beyond` (excluded) that have rows, in order of time."""
        known = self._aggregates.table.slots
        if beyond - first <= len(known):
            return WindowSlots([known[p] for p in range(first, beyond) if p in known])
        return WindowSlots([known[p] for p in sorted(known) if first <= p < beyond])

    def _closings(self, rows: Train, track: WatermarkTrack, folded: bool) -> list[tuple[int, int | None, int]]:
        """Return (end, window, seq of the item that closes it) for windows that have rows, perhaps others, in order.

        With EMIT EMPTY also for all those without that are to be answered.
        """
        if track.end == track.start:
            return []
        after = None if self._watermark == TIME_MIN else self._assigner.last_closed(self._watermark)
        upto = self._assigner.last_closed(track.end)
        if after is not None and upto <= after:
            return []
        if self._plain and after is not None and upto - after <= len(self._aggregates.table.slots):
            ordered: Sequence[int] = self._whole(range(after + 1, upto + 1))  # one without rows is answered by nothing
        else:
            panes = set(self._aggregates.table.slots)
            if rows.rows and not folded:
                panes.update(distinct(self._assigner.panes(rows.time.array())).tolist())
            ordered = self._whole(sorted(self._with_rows(panes, after, upto)))
            if self._empty is not None:
                ordered = self._with_empty(ordered, upto)
        if not ordered:
            return []
        ends = [self._assigner.end(w) for w in ordered]
        return list(zip(ends, ordered, track.first_reaching(np.array(ends, dtype=np.int64)).tolist(), strict=True))

    def _with_rows(self, panes: Collection[int], after: int | None, upto: int) -> set[int]:
        """Return the windows with rows behind `after` up to `upto`, by what are fewer: windows or panes."""
        if after is not None and upto - after < len(panes):
            spans = [(window, self._assigner.panes_of(window)) for window in range(after + 1, upto + 1)]
            return {window for window, (first, beyond) in spans if any(first <= pane < beyond for pane in panes)}
        windows: set[int] = set()
        for pane in panes:
            first, last = self._assigner.windows_of(pane)
            windows.update(range(first if after is None else max(first, after + 1), min(last, upto) + 1))
        return windows

    def _whole(self, windows: Sequence[int]) -> Sequence[int]:
        """Return windows without those that began before the query where it asks for whole ones only."""
        from_us = self.whole_from_us() if self._only_whole else None
        return windows if from_us is None else [w for w in windows if self._assigner.start(w) >= from_us]

    def _with_empty(self, windows: Sequence[int], upto: int) -> Sequence[int]:
        """Add the windows without rows that meet [least ts, greatest ts] of the stream (K6)."""
        assert self._empty is not None
        first = self._empty.next_window
        if first is None:
            return windows
        windows = [w for w in windows if w >= first]  # an earlier one has closed before its only rows came
        newest = self._assigner.windows_of(self._assigner.pane_of(self._newest))[1]
        return sorted([*windows, *self._empty.missing(windows, min(upto, newest))])

    def _note_span(self, train: Train, track: WatermarkTrack) -> None:
        """For EMIT EMPTY: keep the first window that an unanswered row meets and the greatest ts, also of rows in a gap of the windows."""
        if self._empty is None or train.rows == 0:
            return
        times = train.time.array()
        self._newest = max(self._newest, int(times.max()))
        self._empty.note(times, track.before(train.seq.array()), self._assigner)

    def _answer(self, window: int, seq: int) -> list[WindowAnswer]:
        slots = self._slots(*self._assigner.panes_of(window))
        return self._combined(window, seq, slots)

    def _combined(self, window: int, seq: int, slots: WindowSlots) -> list[WindowAnswer]:
        if not slots:
            if self._empty is None:
                return []
            return [WindowAnswer(window, seq, np.zeros(1, dtype=np.int64), [], empty_answer(self._recipe.aggregates))]
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
        for window in self._whole(sorted(windows)):
            answers.extend(self._answer(window, seq))
        self._watermark = max(self._watermark, self._assigner.end(max(windows)))
        return flushed_track(train, track, self._watermark)

    def _drop_panes(self) -> None:
        """Free panes whose last window has closed, and groups that are in no pane any more."""
        if self._watermark == TIME_MIN:
            return
        table = self._aggregates.table
        closed = self._assigner.last_closed(self._watermark)
        if closed == self._dropped_upto:
            return
        self._dropped_upto = closed
        for pane in sorted(table.slots):
            if self._assigner.windows_of(pane)[1] > closed:
                break
            self._forget_groups(table.slots[pane])
            self._aggregates.close(pane)

    def _forget_groups(self, slot: int) -> None:
        """Count the groups of a pane that goes out, and free those that are in no other."""
        if not self._positions:
            return
        there = self._aggregates.rows.are_in(slot)
        panes_with = self._panes_with[: len(there)]
        panes_with -= there
        unused = (there & (panes_with == 0)).nonzero()[0]
        if len(unused):
            self._keys.free(unused)

    def _train_of(self, train: Train, track: WatermarkTrack, answers: list[WindowAnswer]) -> Train:
        if not answers:
            empty = empty_train(self.schemas[0], train.lo, train.hi, track, arrival=train.arrival, ended=train.ended)
            empty.idle, empty.flush, empty.notes = train.idle, train.flush, train.notes
            return empty
        columns = [*answers[0].keys, *answers[0].aggregates]
        if len(answers) > 1:
            columns = [concat_columns(list(parts)) for parts in zip(*((*a.keys, *a.aggregates) for a in answers), strict=True)]
        sizes = [len(a.ids) for a in answers]
        ends = [self._assigner.end(a.window) for a in answers]
        seqs = for_each_row([a.seq for a in answers], sizes)
        return Train(
            self.schemas[0],
            [*columns, timestamps([self._assigner.start(a.window) for a in answers], sizes), timestamps(ends, sizes)],
            rows=seqs.rows,
            lo=train.lo,
            hi=train.hi,
            seq=seqs,
            time=for_each_row([end - 1 for end in ends], sizes),
            arrival=train.arrival,
            track=track,
            ended=train.ended,
            idle=train.idle,
            flush=train.flush,
            notes=train.notes if self._empty is None or self._empty.notes is None else self._empty.notes,
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
        """Return the bytes of all grids and of the keys."""
        return self._keys.nbytes() + int(self._panes_with.nbytes) + self._aggregates.nbytes()

    def take_up(self, fields: dict[str, Any]) -> None:
        """Take up a snapshot."""
        super().take_up(fields)
        self._closes_us = TIME_MIN
