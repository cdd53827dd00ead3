"""Frames: the windows of one shape that queries ask of a shared synopsis, and which of them are due when W moves.

A frame belongs to a window and to the arrival number from which its queries may see rows; however many queries ask for the same, it is
looked at once. All frames together are looked at in one NumPy call, so those that are not due cost nothing.

From when on a synopsis holds all rows that came: for a query that begins with windows whose first rows came before it.

Rows are lost with the panes that are freed, and where they came too late for every window that was then asked for. Each count, sum or
other part of a pane holds what came since somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack
from millstream.engine.language.recipes import AggregateCall, WindowKind, WindowSpec
from millstream.engine.state.forms import state_record
from millstream.engine.synopses.pane_layers import Layer, VisiblePanes
from millstream.engine.windows.assigners import Assigner, assigner_for
from millstream.engine.windows.early import EmptyWindows
from millstream.engine.windows.pane_aggregates import Part, parts_of


@state_record("held_span", 1, ("_inputs", "_rows_after_us", "_parts_after_us"))
class HeldSpan:
    """Event times in µs after which nothing is missing; None where nothing is missing at all."""

    def __init__(self, inputs: Schema) -> None:
        self._inputs = inputs
        self._rows_after_us: int | None = None
        self._parts_after_us: dict[Part, int | None] = {}

    def begin(self, newest_us: int | None) -> None:
        """Begin with the next row; `newest_us` is the greatest event time of the rows before it."""
        self._rows_after_us = newest_us

    def lost(self, time_us: int) -> None:
        """Note that rows up to this time may be gone."""
        self._rows_after_us = later(self._rows_after_us, time_us)

    def counted(self, calls: Iterable[AggregateCall], newest_us: int | None) -> None:
        """Note that all parts of these aggregates are counted from now on."""
        for call in calls:
            for part in parts_of(call, self._inputs):
                self._parts_after_us.setdefault(part, newest_us)

    def count_only(self, calls: Iterable[AggregateCall]) -> None:
        """Forget the parts that none of these aggregates is made of: they may be counted no longer."""
        left = {part for call in calls for part in parts_of(call, self._inputs)}
        self._parts_after_us = {part: after for part, after in self._parts_after_us.items() if part in left}

    def after_us(self, calls: Iterable[AggregateCall], newest_us: int | None) -> int | None:
        """Return the time after which these aggregates miss nothing; parts that nobody has asked for begin now."""
        after_us = self._rows_after_us
        for call in calls:
            for part in parts_of(call, self._inputs):
                after_us = later(after_us, self._parts_after_us.get(part, newest_us))
        return after_us


def later(one: int | None, other: int | None) -> int | None:
    """Return the later of two times; None is before all."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def layer_held(layers: Mapping[int, Layer], window: WindowSpec, held_after_us: int | None) -> tuple[Layer | None, int | None]:
    """Return the oldest layer from which on none cuts these windows in two, and after which time these layers miss no row."""
    found: Layer | None = None
    for number in sorted(layers, reverse=True):
        if common_step(window) % layers[number].step_us:
            return found, held_after_us if found is None else later(held_after_us, found.newest_before_us)
        found = layers[number]
    return found, held_after_us


FEW_WINDOWS = 8  # due at once: looked at one by one


class Due(NamedTuple):
    """One window that closes: of which frame, from when to when."""

    end_us: int
    frame: Frame
    start_us: int
    window: int


@state_record(
    "frame",
    1,
    (
        "window",
        "from_seq",
        "layer",
        "newest_before_us",
        "only_whole",
        "ports",
        "closed",
        "active",
        "period_us",
        "offset_us",
        "why",
        "wanted",
        "ready",
        "empty",
        "newest_us",
        "late_runs",
        "skipped",
    ),
)
@dataclass(slots=True, eq=False)
class Frame:
    """Windows of one shape from one layer on. `closed` is the last window known to be closed, None while W stands at the beginning.

    `newest_before_us` is the greatest event time of rows it does not see (with `only_whole` windows that may hold such
    are not answered), `ports` are the outputs that want its answers; `active` once a
    train has reached `from_seq`. `period_us` and `offset_us` are in force, the period less than asked where SLIDE WITHIN lets it run
    with others, which `why` tells; `wanted` come into force once no pane is in the way, `ready` once the next window has closed.
    `empty`: windows without rows are answered too, as far as `newest_us`. `deferred`:
    it is late in this call. `late_runs` were answered late, `skipped` windows not at all.
    """

    window: WindowSpec
    assigner: Assigner
    from_seq: int
    layer: int
    newest_before_us: int | None = None
    only_whole: bool = False
    ports: list[int] = field(default_factory=list)
    closed: int | None = None
    active: bool = False
    place: int = 0
    period_us: int = 0
    offset_us: int = 0
    why: str = "as asked"
    wanted: tuple[int, int] | None = None
    ready: tuple[int, int] | None = None
    empty: EmptyWindows | None = None
    newest_us: int = TIME_MIN
    deferred: bool = False
    late_runs: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.period_us, self.offset_us = self.window.slide_us, self.window.offset_us

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Frame:
        """Return the frame; its windows follow from the period in force."""
        window = replace(fields["window"], slide_us=fields["period_us"], offset_us=fields["offset_us"])
        made = cls(fields["window"], assigner_for(window), fields["from_seq"], fields["layer"])
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def regrid(self) -> None:
        """Put the wanted period in force (K16): once the next window has closed, so that no two answers lie further apart than asked."""
        self.ready, self.wanted = self.wanted, None
        if not self.active or self.closed is None:
            self._switch(None)

    def _switch(self, end_us: int | None) -> None:
        """Count windows by the new period, from the first that ends after `end_us`."""
        assert self.ready is not None
        (self.period_us, self.offset_us), self.ready = self.ready, None
        self.assigner = assigner_for(replace(self.window, slide_us=self.period_us, offset_us=self.offset_us))
        if end_us is not None:
            self.closed = self.assigner.last_closed(end_us)

    def begin(self, watermark_us: int) -> None:
        """Come into force where W stands: what has closed by then is not this frame's."""
        self.active = True
        self.closed = None if watermark_us == TIME_MIN else self.assigner.last_closed(watermark_us)
        if self.only_whole and self.newest_before_us is not None:
            partial = self._last_partial(self.newest_before_us)
            self.closed = partial if self.closed is None else max(partial, self.closed)

    @property
    def next_end_us(self) -> int:
        """Where W must come for the next window to close; TIME_MIN while nothing is known, TIME_MAX while not in force."""
        if not self.active:
            return TIME_MAX
        return TIME_MIN if self.closed is None else min(self.assigner.end(self.closed + 1), TIME_MAX)

    @property
    def kept_from_us(self) -> int:
        """Where the first window begins that has not closed: panes before that are not wanted any more."""
        if not self.active or self.closed is None:
            return TIME_MIN
        return max(TIME_MIN, min(self.assigner.start(self.closed + 1), TIME_MAX))

    @property
    def whole_from_us(self) -> int | None:
        """The start of the first window all of whose rows it sees (late ones aside); None when that holds for every window."""
        if self.newest_before_us is None:
            return None
        return self.assigner.start(self._last_partial(self.newest_before_us) + 1)

    def _last_partial(self, newest_before_us: int) -> int:
        """Return the last window that may hold rows of before."""
        return self.assigner.windows_of(self.assigner.pane_of(newest_before_us))[1]

    def close(self, watermark_us: int, panes: VisiblePanes) -> list[Due]:
        """Return the windows with rows that close when W comes here, in order."""
        if self.ready is not None and self.closed is not None:
            window = self.closed + 1
            end_us = self.assigner.end(window)
            if watermark_us < end_us:
                return []
            first = [self._due(window)] if self._holds(window, panes) else []
            self._switch(end_us)
            return [*first, *self.close(watermark_us, panes)]
        upto = self.assigner.last_closed(watermark_us)
        after, self.closed = self.closed, upto if self.closed is None else max(upto, self.closed)
        if after is not None and upto <= after:
            return []
        windows = self._with_rows(after, upto, panes) if panes.starts else []
        return [self._due(w) for w in (windows if self.empty is None else self._with_empty(windows, upto))]

    def _with_empty(self, windows: list[int], upto: int) -> list[int]:
        """Add the windows without rows that meet [least ts, greatest ts] of the rows it has seen (K6)."""
        assert self.empty is not None
        first = self.empty.next_window
        if first is None:
            return windows
        windows = [w for w in windows if w >= first]  # an earlier one has closed before its only rows came
        newest = self.assigner.windows_of(self.assigner.pane_of(self.newest_us))[1]
        return sorted([*windows, *self.empty.missing(windows, min(upto, newest))])

    def note_span(self, train: Train, track: WatermarkTrack) -> None:
        """Take down the first window that an unanswered row meets and the greatest ts, also of rows in a gap of the windows."""
        seqs = train.seq.array()
        mine = seqs >= self.from_seq
        if self.empty is None or not mine.any():
            return
        times = train.time.array()[mine]
        self.newest_us = max(self.newest_us, int(times.max()))
        self.empty.note(times, track.before(seqs[mine]), self.assigner)

    @property
    def may_be_late(self) -> bool:
        """Its SLIDE is an upper bound and it counts windows already."""
        window = self.window
        return window.slide_within and window.kind is WindowKind.HOPPING and not window.offset_us and self.closed is not None

    def close_once(self, end_us: int, panes: VisiblePanes) -> list[Due]:
        """Close all windows up to here and give the one that ends here, if it holds rows; from here on windows end a period apart."""
        assert self.closed is not None
        missed = self.assigner.last_closed(end_us) - self.closed
        period_us = self.period_us if self.ready is None else self.ready[0]
        self.ready = (period_us, (end_us - self.window.range_us) % period_us)
        self._switch(end_us)
        self.late_runs += 1
        self.skipped += max(0, missed - 1)
        return [self._due(self.closed)] if self._holds(self.closed, panes) else []

    def _due(self, window: int) -> Due:
        return Due(self.assigner.end(window), self, self.assigner.start(window), window)

    def _with_rows(self, after: int | None, upto: int, panes: VisiblePanes) -> list[int]:
        if after is not None and upto - after <= max(FEW_WINDOWS, len(panes.starts)):
            return [w for w in range(after + 1, upto + 1) if self._holds(w, panes)]
        first_ends, last_ends = self.assigner.closings(panes.starts_array)
        windows: set[int] = set()
        for first_end, last_end in dict.fromkeys(zip(first_ends.tolist(), last_ends.tolist(), strict=True)):
            if last_end == TIME_MIN:
                continue
            first, last = self.assigner.last_closed(first_end), self.assigner.last_closed(last_end)
            windows.update(range(first if after is None else max(first, after + 1), min(last, upto) + 1))
        return sorted(windows)

    def _holds(self, window: int, panes: VisiblePanes) -> bool:
        low, high = panes.between(self.assigner.start(window), self.assigner.end(window))
        return low < high

    def next_end_with_rows_us(self, panes: VisiblePanes) -> int | None:
        """Return the end of the first open window that holds rows, for the clock of a stream by ARRIVAL."""
        for start in panes.starts:
            first, last = self.assigner.windows_of(self.assigner.pane_of(start))
            if self.closed is not None:
                first = max(first, self.closed + 1)
            if first <= last:
                return self.assigner.end(first)
        return None


_Key = tuple[WindowSpec, int, bool, int | None, bool]


def _key_of(frame: Frame) -> _Key:
    return frame.window, frame.from_seq, frame.only_whole, frame.newest_before_us if frame.only_whole else None, frame.empty is not None


@state_record("frames", 1, ("all",))
class Frames:
    """All frames of a synopsis, with their next ends and the times they keep panes from as columns."""

    def __init__(self) -> None:
        self.all: list[Frame] = []
        self._next_ends: Int64Array = np.empty(0, dtype=np.int64)
        self._kept_from: Int64Array = np.empty(0, dtype=np.int64)
        self._layers: Int64Array = np.empty(0, dtype=np.int64)
        self._by_window: dict[_Key, Frame] = {}
        self.step_us = 0  # greatest common step of all windows
        self.longest_us = 0
        self.panes_alone = 0  # panes that the most finely cut window would have by itself

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Frames:
        """Return the frames; the columns are read from them."""
        made = cls()
        for frame in fields["all"]:
            made.add(frame)
        return made

    def find(
        self, window: WindowSpec, from_seq: int, newest_before_us: int | None = None, *, only_whole: bool = False, empty: bool = False
    ) -> Frame | None:
        """Return the frame of a window from an arrival number on; of `only_whole` ones that which begins at the same windows."""
        return self._by_window.get((window, from_seq, only_whole, newest_before_us if only_whole else None, empty))

    def add(self, frame: Frame) -> None:
        """Take a frame in."""
        frame.place = len(self.all)
        self.all.append(frame)
        self._by_window[_key_of(frame)] = frame
        self._measure(frame.window)
        self._next_ends = np.append(self._next_ends, frame.next_end_us)
        self._kept_from = np.append(self._kept_from, frame.kept_from_us)
        self._layers = np.append(self._layers, frame.layer)

    def remove(self, frame: Frame) -> None:
        """Forget a frame."""
        self.all.remove(frame)
        del self._by_window[_key_of(frame)]
        self.step_us = self.longest_us = self.panes_alone = 0
        for left in self.all:
            self._measure(left.window)
        self.refresh()

    def _measure(self, window: WindowSpec) -> None:
        self.step_us = gcd(self.step_us, common_step(window))
        self.longest_us = max(self.longest_us, window.range_us)
        self.panes_alone = max(self.panes_alone, window.range_us // common_step(window))

    def refresh(self) -> None:
        """Read everything again."""
        for place, frame in enumerate(self.all):
            frame.place = place
        self._next_ends = np.array([f.next_end_us for f in self.all], dtype=np.int64)
        self._kept_from = np.array([f.kept_from_us for f in self.all], dtype=np.int64)
        self._layers = np.array([f.layer for f in self.all], dtype=np.int64)

    def due(self, watermark_us: int) -> list[Frame]:
        """Return the frames that have something to close when W comes here; the others are not looked at."""
        return [f for i in np.flatnonzero(self._next_ends <= watermark_us).tolist() if (f := self.all[i]).active]

    def closed(self, frames: list[Frame]) -> None:
        """Note that windows of these frames have closed."""
        for frame in frames:
            self._next_ends[frame.place] = frame.next_end_us
            self._kept_from[frame.place] = frame.kept_from_us

    def kept_from_us(self, layer: int) -> int:
        """Return from where on the panes of a layer are wanted: the longest window decides; TIME_MAX when nobody sees them."""
        seen = self._kept_from[self._layers <= layer]
        return int(seen.min()) if len(seen) else TIME_MAX


def common_step(window: WindowSpec) -> int:
    """Return the greatest step whose multiples are all starts and ends of these windows (offset included)."""
    return gcd(window.range_us, window.slide_us, window.offset_us)
