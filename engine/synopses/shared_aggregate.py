"""One synopsis of a stream (behind a filter, by some keys) that answers GROUP BY over hopping and cumulating windows of many queries.

Rows are folded once into panes at the greatest common step; whatever is due when W moves is answered together, windows that end at the
same instant in one pass from the newest pane to the oldest. Each query (or several that ask the same) has an output of its own. State is
panes × groups, the longest window decides how many panes. Queries come and go while it runs: see `synopses/pane_layers.py`.

Answers are those of `window_aggregate.py`, which each query would have alone: same order, same seqs, same late rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import WatermarkTrack, minimum_track
from millstream.engine.language.recipes import AggregateCall, AggregateRecipe, EmitKind, WindowKind, WindowSpec
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.window_aggregate import WindowAggregate
from millstream.engine.state.forms import state_record
from millstream.engine.synopses.answers import (
    Answer,
    LateRule,
    Member,
    OutputColumns,
    answer_train,
    border_crossings,
    late_frames,
    run_late,
    told_late,
)
from millstream.engine.synopses.frames import Due, Frame, Frames, HeldSpan, common_step, layer_held
from millstream.engine.synopses.pane_layers import Layer, LayeredPaneTable, LivePanes, VisiblePanes, new_layer
from millstream.engine.windows.assigners import assigner_for
from millstream.engine.windows.early import EmptyWindows, empty_answer
from millstream.engine.windows.pane_aggregates import Aggregates
from millstream.engine.windows.pane_values import Accumulator

PANES_FEW = 64  # so many panes a window are always worth sharing
PANES_FACTOR_MAX = 4  # beyond that, a common step may not multiply the panes of the longest window by more


@state_record("kept_accumulator", 1)
@dataclass(slots=True)
class _Kept:
    """An accumulator and how many outputs read it."""

    accumulator: Accumulator
    outputs: int = 0


class SharedAggregate(WindowAggregate):
    """GROUP BY over windows made of panes, for all queries that group the same rows by the same keys; an output a query."""

    sparse = True
    state_name = "shared_aggregate"
    state_fields = (
        "_keys",
        "_aggregates",
        "_kept",
        "_panes_with",
        "_watermark",
        "_ordinal",
        "_frames",
        "_members",
        "_layers",
        "_loud",
        "_asleep",
        "_held",
    )

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__(recipe, inputs)
        self.schemas = ()
        self.keys = recipe.keys
        self._inputs = inputs
        self._kept: dict[AggregateCall, _Kept] = {}
        self._frames = Frames()
        self._members: dict[int, Member] = {}
        self._layers: dict[int, Layer] = {}
        self._held = HeldSpan(inputs)
        self._live = LivePanes(self._table, self._layers)
        self.free_ports: list[int] = []
        self.late_rule: LateRule | None = None  # who runs with whom when answers are late; None: every window is answered
        self._loud: dict[int, None] = {}  # outputs behind which trains without rows matter
        self._asleep = False  # some frame is not in force yet
        self._moved = False  # windows have closed since panes were last freed
        self._wake_us: tuple[int | None] | None = None
        self._spanning: list[Frame] = []  # frames that also answer windows without rows
        self._within: dict[int, None] = {}

    def _begun(self, recipe: AggregateRecipe, inputs: Schema) -> Aggregates:
        """Return none: each output brings its own."""
        self._table = LayeredPaneTable()
        return Aggregates((), inputs, self._table)

    # Queries come and go -------------------------------------------------------------------------------------------------

    @staticmethod
    def carries(recipe: AggregateRecipe) -> bool:
        """Whether answers of this recipe can come from a shared synopsis."""
        window = recipe.window
        if window is None or window.kind not in (WindowKind.HOPPING, WindowKind.CUMULATE) or window.zone is not None:
            return False
        if recipe.emit.empty and window.slide_within:
            return False
        return recipe.emit.kind is EmitKind.FINAL and recipe.live is None and recipe.retracts is None

    @property
    def kept_calls(self) -> tuple[AggregateCall, ...]:
        """The aggregates that its outputs ask for, each once."""
        return tuple(self._kept)

    def misfit(self, recipe: AggregateRecipe) -> str | None:
        """Say why a query should not join: because a common step would multiply the panes. None when it may."""
        assert recipe.window is not None
        frames, window = self._frames, recipe.window
        step = gcd(frames.step_us, common_step(window))
        merged = max(frames.longest_us, window.range_us) // step
        alone = max(frames.panes_alone, window.range_us // common_step(window))
        if merged <= max(PANES_FEW, PANES_FACTOR_MAX * alone):
            return None
        return f"a common step of {step} µs would make {merged} panes a group, where {alone} are enough apart"

    def subscribe(
        self,
        recipe: AggregateRecipe,
        from_seq: int,
        port: int,
        shown: OutputColumns,
        *,
        newest_us: int | None = None,
        history: bool = False,
    ) -> None:
        """Let an output answer a recipe over rows with seq >= `from_seq`; `newest_us`: greatest event time before. Between calls only.

        With `history` it answers windows that it sees whole and no others, and sees the panes that are held too.
        """
        assert recipe.window is not None
        if not self._layers:
            self._held.begin(newest_us)
        layer, after_us = None, newest_us
        if history:
            layer, held_after_us = layer_held(self._layers, recipe.window, self._held.after_us(recipe.aggregates, newest_us))
            after_us = newest_us if layer is None else held_after_us
        frame = self._frames.find(recipe.window, from_seq, after_us, only_whole=history, empty=recipe.emit.empty)
        if frame is None:
            layer = self._layer_from(from_seq, recipe.window, newest_us) if layer is None else layer
            frame = Frame(recipe.window, assigner_for(recipe.window), from_seq, layer.number, after_us, history)
            frame.empty = EmptyWindows() if recipe.emit.empty else None
            self._frames.add(frame)
            self._spanning.extend([] if frame.empty is None else [frame])
            self._asleep = True
        frame.ports.append(port)
        key_places = tuple(self.keys.index(key) for key in recipe.keys)
        self._members[port] = Member(recipe, shown, frame, [self._accumulator(call) for call in recipe.aggregates], key_places)
        self._held.counted(recipe.aggregates, newest_us)
        if _is_within(recipe.window):
            self._within[port] = None
        self._wake_us = None

    def unsubscribe(self, port: int) -> None:
        """Take an output away, with what nobody else needs; the step becomes coarser with the next layer."""
        member = self._members.pop(port)
        self._loud.pop(port, None)
        self._within.pop(port, None)
        self.free_ports.append(port)
        member.frame.ports.remove(port)
        if not member.frame.ports:
            self._frames.remove(member.frame)
            self._spanning = [f for f in self._spanning if f is not member.frame]
        for call in member.recipe.aggregates:
            kept = self._kept[call]
            kept.outputs -= 1
            if not kept.outputs:
                del self._kept[call]
                self._aggregates.exclude(kept.accumulator, list(self._kept))
        self._held.count_only(self._kept)
        self._wake_us = None
        self._drop_panes()

    def _accumulator(self, call: AggregateCall) -> Accumulator:
        kept = self._kept.get(call)
        if kept is None:
            kept = self._kept[call] = _Kept(self._aggregates.include(call))
        kept.outputs += 1
        return kept.accumulator

    def _layer_from(self, from_seq: int, window: WindowSpec, newest_us: int | None) -> Layer:
        """Return the layer that begins there; a new one with the common step of all windows, the old one's panes stay as they are."""
        in_force = [n for f in self._frames.all for n in (f.period_us, f.offset_us, *(f.ready or ()))]
        step = gcd(self._frames.step_us, common_step(window), *in_force)
        newest = max(self._layers, default=-1)
        if newest >= 0 and self._layers[newest].from_seq == from_seq and newest not in self._live.layers:
            layer = new_layer(newest, from_seq, step, newest_us)
        else:
            layer = new_layer(newest + 1, from_seq, step, newest_us)
        self._layers[layer.number] = layer
        return layer

    def set_loud(self, port: int, loud: bool) -> None:
        """Say whether trains without rows matter behind an output."""
        if loud:
            self._loud[port] = None
        else:
            self._loud.pop(port, None)

    @property
    def within(self) -> tuple[int, ...]:
        """The outputs whose SLIDE is an upper bound (K16), in the order they came."""
        return tuple(self._within)

    def asked(self, port: int) -> tuple[int, int]:
        """Return an output's range and slide in µs."""
        window = self._members[port].frame.window
        return window.range_us, window.slide_us

    def sorts(self, port: int) -> tuple[int, ...]:
        """Return how many different values each aggregate of an output sorts for an answer, of those that sort any."""
        found = (one.sorted_values() for one in self._members[port].accumulators)
        return tuple(values for values in found if values)

    def set_period(self, port: int, period_us: int, offset_us: int, why: str) -> None:
        """Ask for another period of a window with SLIDE WITHIN; in force at once, or when no older pane is cut by its windows any more."""
        frame = self._members[port].frame
        frame.why = why
        same = (period_us, offset_us) == (frame.period_us, frame.offset_us)
        frame.ready, frame.wanted = None, None if same else (period_us, offset_us)
        self._regrid()

    def cells_read(self, port: int) -> int:
        """Return what an output has used: of each of its windows the panes and the answer, times groups."""
        return self._members[port].cells_read

    def why(self, port: int) -> str:
        """Say why an output's period is what it is."""
        return self._members[port].frame.why

    def period_us(self, port: int) -> int:
        """Return the period in force for an output."""
        return self._members[port].frame.period_us

    def lateness(self, port: int) -> tuple[int, int]:
        """Return how many answers of an output were late, and how many windows it skipped for that."""
        frame = self._members[port].frame
        return frame.late_runs, frame.skipped

    def _regrid(self) -> None:
        """Put the periods in force that are asked for and whose windows cut no pane."""
        changed = False
        for frame in self._frames.all:
            if frame.wanted is None:
                continue
            steps = [layer.step_us for number, layer in self._layers.items() if number >= frame.layer]
            if all(n % step == 0 for step in steps for n in frame.wanted):
                frame.regrid()
                changed = True
        if changed:
            self._frames.refresh()
            self._wake_us = None

    @property
    def step_us(self) -> int:
        """The step of the newest layer."""
        return self._layers[max(self._layers)].step_us

    @property
    def layers(self) -> int:
        """Layers that hold panes or take rows."""
        return len(self._layers)

    def kept_us(self) -> int:
        """Return the longest window: how far back the synopsis reaches."""
        return self._frames.longest_us

    def layer_bounds(self) -> dict[int, tuple[int, int]]:
        """Return of each layer, by number, the arrival number from which it takes rows, and its step."""
        return {number: (layer.from_seq, layer.step_us) for number, layer in self._layers.items()}

    def kept_from_us(self, layer: int) -> int:
        """Return from when on an open window may ask for what a layer holds."""
        return self._frames.kept_from_us(layer)

    def view_of(self, port: int) -> tuple[WindowSpec, int, int]:
        """Return an output's window, the first layer that it sees, and the arrival number from which it does."""
        frame = self._members[port].frame
        return frame.window, frame.layer, frame.from_seq

    def complete_from_us(self, port: int) -> int | None:
        """Return the start of the first window of an output that its query saw whole: None from the beginning."""
        return self._members[port].frame.whole_from_us

    # The call ------------------------------------------------------------------------------------------------------------

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Fold the rows, answer all that W has passed."""
        train = inputs[0]
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        self._activate(train, track)
        for frame in self._spanning if train.rows else ():
            frame.note_span(train, track)
        rows, cuts = self._on_time(train, track, out)
        ids = self._encode(rows)
        answers: dict[int, list[Answer]] = {}
        late = self._late_frames(train, track)
        if not cuts:
            self._fold_layers(rows, ids, 0, rows.rows)
            self._close(track, late, answers)
        else:
            self._close_and_fold(track, rows, ids, late, answers)
        self._ordinal += rows.rows
        self._watermark = max(self._watermark, track.end)
        if answers or self._moved:
            self._drop_panes()
        self._emit(train, track, answers, out)

    def _activate(self, train: Train, track: WatermarkTrack) -> None:
        """Bring frames into force whose first row this train may hold."""
        if not self._asleep:
            return
        for frame in self._frames.all:
            if not frame.active and train.hi > frame.from_seq:
                frame.begin(int(track.before(np.array([max(frame.from_seq, train.lo)], dtype=np.int64))[0]))
        self._frames.refresh()
        self._asleep = any(not f.active for f in self._frames.all)

    def _on_time(self, train: Train, track: WatermarkTrack, out: Emitter) -> tuple[Train, bool]:
        """Tell each output which rows are late for it (K4); drop those late for all. Say whether rows behind W are left."""
        if train.rows == 0 or track.in_order:
            return train, False
        times = train.time.array()
        if int(times.min()) >= track.end:
            return train, False
        watermark = track.before(train.seq.array())
        behind = np.flatnonzero(times < watermark)
        if not len(behind):
            return train, False
        wanted = told_late(self._frames.all, train, behind, watermark[behind], out)
        keep = np.ones(train.rows, dtype=np.bool_)
        keep[behind[~wanted]] = False
        if not wanted.all():
            self._held.lost(int(times[behind[~wanted]].max()))
        return train.select(keep), True

    def _fold_layers(self, rows: Train, ids: Int64Array, start: int, stop: int) -> None:
        """Fold rows start … stop, each into the newest layer that it has reached."""
        if start >= stop:
            return
        numbers = sorted(self._layers)
        if len(numbers) == 1 or rows.seq.array()[start] >= self._layers[numbers[-1]].from_seq:
            self._fold_into(self._layers[numbers[-1]], rows, ids, start, stop)
        else:
            seqs = rows.seq.array()[start:stop]
            begins = np.array([self._layers[n].from_seq for n in numbers[1:]], dtype=np.int64)
            cuts = [start, *(np.searchsorted(seqs, begins) + start).tolist(), stop]
            for number, low, high in zip(numbers, cuts, cuts[1:], strict=False):
                self._fold_into(self._layers[number], rows, ids, low, high)
        if self._live.take_opened(self._table, self._layers):
            self._wake_us = None

    def _fold_into(self, layer: Layer, rows: Train, ids: Int64Array, start: int, stop: int) -> None:
        self._assigner = layer.grid
        self._table.layer = layer.number
        self._fold(rows, ids, start, stop)

    # Closing -------------------------------------------------------------------------------------------------------------

    def _late_frames(self, train: Train, track: WatermarkTrack) -> list[Frame]:
        if self.late_rule is None or track.end == track.start or train.ended:
            return []
        late = late_frames(self.late_rule, self._frames.due(track.end), train, track, self.step_us)
        for frame in late:
            frame.deferred = True
        return late

    def _run_late(self, late: list[Frame], watermark_us: int) -> list[Due]:
        """Answer late frames together, as far as W has come."""
        dues: list[Due] = []
        for frame in late:
            frame.deferred = False
            dues += run_late(frame, watermark_us, self._layers, self._live.visible(frame.layer))
        self._frames.closed(late)
        self._moved = self._moved or bool(late)
        return dues

    def _close(self, track: WatermarkTrack, late: list[Frame], answers: dict[int, list[Answer]]) -> None:
        """Answer all windows that close on the track; all rows have been folded."""
        dues = [*self._closing(track.end), *self._run_late(late, track.end)] if track.end > track.start else []
        if not dues:
            return
        ends = np.array(sorted({d.end_us for d in dues}), dtype=np.int64)
        seq_at = dict(zip(ends.tolist(), track.first_reaching(ends).tolist(), strict=True))
        self._answer_all(dues, seq_at, answers)

    def _close_and_fold(
        self, track: WatermarkTrack, rows: Train, ids: Int64Array, late: list[Frame], answers: dict[int, list[Answer]]
    ) -> None:
        """Fold row by row what stands behind W: at each seq that closes windows, first the rows up to it, then the windows."""
        done = 0
        moments = border_crossings(track, self._finest_us())
        for place, (seq, upto) in enumerate(moments, 1):
            stop = int(np.searchsorted(rows.seq.array(), seq, side="right"))
            self._fold_layers(rows, ids, done, stop)
            done = stop
            dues = [*self._closing(upto), *(self._run_late(late, upto) if place == len(moments) else ())]
            self._answer_all(dues, dict.fromkeys((d.end_us for d in dues), seq), answers)
        self._fold_layers(rows, ids, done, rows.rows)

    def _finest_us(self) -> int:
        return gcd(*(layer.step_us for layer in self._layers.values()))

    def _closing(self, watermark_us: int) -> list[Due]:
        frames = [frame for frame in self._frames.due(watermark_us) if not frame.deferred]
        dues: list[Due] = []
        for frame in frames:
            dues.extend(frame.close(watermark_us, self._live.visible(frame.layer)))
        if frames:
            self._frames.closed(frames)
            self._moved = True
            self._wake_us = None
        return dues

    def _answer_all(self, dues: Sequence[Due], seq_at: dict[int, int], answers: dict[int, list[Answer]]) -> None:
        """Answer windows instant by instant; those over the same panes in one pass."""
        passes: dict[tuple[int, int], list[Due]] = {}
        for due in dues:
            passes.setdefault((due.end_us, due.frame.layer), []).append(due)
        for end_us, layer in sorted(passes):
            self._answer_pass(passes[end_us, layer], self._live.visible(layer), seq_at[end_us], answers)

    def _answer_pass(self, dues: list[Due], panes: VisiblePanes, seq: int, answers: dict[int, list[Answer]]) -> None:
        bounds = [panes.between(d.start_us, d.end_us) for d in dues]
        for due in [d for d, (low, high) in zip(dues, bounds, strict=True) if low == high]:
            for port in due.frame.ports:
                nothing = empty_answer(self._members[port].recipe.aggregates)
                answers.setdefault(port, []).append(Answer(due, seq, [], nothing, 1))
        dues = [d for d, (low, high) in zip(dues, bounds, strict=True) if low < high]
        bounds = [bound for bound in bounds if bound[0] < bound[1]]
        if not dues:
            return
        high = bounds[0][1]
        longest = high - min(low for low, _ in bounds)
        slots = panes.newest_first(high - longest, high, self._table)
        counts = [high - low for low, _ in bounds]
        present = self._aggregates.rows.present_upto(slots, counts)
        keys = self._key_columns(present)
        requests: dict[int, tuple[Accumulator, list[int]]] = {}
        for place, due in enumerate(dues):
            for accumulator in {id(a): a for port in due.frame.ports for a in self._members[port].accumulators}.values():
                requests.setdefault(id(accumulator), (accumulator, []))[1].append(place)
        columns: dict[tuple[int, int], Column] = {}
        for identity, (accumulator, places) in requests.items():
            asked = [(counts[p], present[p]) for p in places]
            columns.update(zip([(identity, p) for p in places], accumulator.answers(slots, asked), strict=True))
        for place, due in enumerate(dues):
            ids = present[place]
            if not len(ids):
                continue
            for port in due.frame.ports:
                member = self._members[port]
                member.cells_read += (counts[place] + 1) * len(ids)
                found = [columns[id(a), place] for a in member.accumulators]
                mine = [keys[id(ids)][place] for place in member.key_places]
                answers.setdefault(port, []).append(Answer(due, seq, mine, found, len(ids)))

    def _key_columns(self, present: list[Int64Array]) -> dict[int, list[Column]]:
        return {identity: self._keys.columns(ids) for identity, ids in {id(p): p for p in present}.items()}

    # Output --------------------------------------------------------------------------------------------------------------

    def _emit(self, train: Train, track: WatermarkTrack, answers: dict[int, list[Answer]], out: Emitter) -> None:
        ports = dict.fromkeys(self._members) if train.ended else {**dict.fromkeys(answers), **self._loud}
        made: dict[tuple[object, ...], Train] = {}
        for port in ports:
            member = self._members[port]
            if member.frame.from_seq >= train.hi:
                continue  # nothing of this interval is this output's
            same = (member.frame, id(member.shown.schema), member.shown.columns, member.key_places, *map(id, member.accumulators))
            if same not in made:
                made[same] = answer_train(train, track, member, answers.get(port, []))
            out.emit(made[same], port)

    # State ---------------------------------------------------------------------------------------------------------------

    def _drop_panes(self) -> None:
        """Free panes that no window will read any more, and groups and layers that are left with none."""
        self._moved = False
        kept_from = {number: self._frames.kept_from_us(number) for number in self._layers}
        live = self._live
        gone = live.unwanted(kept_from)
        for place in gone:
            self._forget_groups(live.slots[place])
            self._aggregates.close(live.keys[place])
            self._held.lost(live.ends[place] - 1)
            live.remove(place)
        if gone:
            self._wake_us = None
        newest = max(self._layers, default=-1)
        held = set(self._live.layers)
        active = min((f.from_seq for f in self._frames.all if not f.active), default=None)
        if active is None:
            before = len(self._layers)
            self._layers = {n: layer for n, layer in self._layers.items() if n == newest or n in held}
            if len(self._layers) < before:
                self._regrid()

    def wake_at_us(self) -> int | None:
        """Return the end of the first window of any query that holds rows: a stream by ARRIVAL must tick then."""
        if self._wake_us is None:
            ends = [e for f in self._frames.all if (e := f.next_end_with_rows_us(self._live.visible(f.layer))) is not None]
            self._wake_us = (min(ends, default=None),)
        return self._wake_us[0]

    def take_up(self, fields: dict[str, Any]) -> None:
        """Take up a snapshot."""
        super().take_up(fields)
        table = self._aggregates.table
        assert isinstance(table, LayeredPaneTable)
        self._table = table
        self._live = LivePanes(table, self._layers)
        self._spanning = [f for f in self._frames.all if f.empty is not None]
        self._within = dict.fromkeys(port for port, member in self._members.items() if _is_within(member.frame.window))
        self._wake_us = None

    def state_rows(self) -> int:
        """Return panes × groups."""
        return len(self._table.slots) * self._keys.alive


def _is_within(window: WindowSpec) -> bool:
    return window.slide_within and window.kind is WindowKind.HOPPING and not window.offset_us
