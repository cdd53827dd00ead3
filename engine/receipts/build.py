"""Which keeper an operator needs behind a source that sheds; the one of a shared aggregate stands here.

A shared aggregate has its windows, its layers (`synopses/pane_layers.py`), and an answer for each query's output. Cells are the starts of
panes, counted by layer just as the synopsis folds rows: an item goes into the newest layer that it has reached, and a query sees the layers
from its own on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.data.tally import Part, Tally, shares_of
from millstream.engine.data.train import Train
from millstream.engine.language import recipes
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.receipts.keepers import IntervalCounts, Keeper, LimitKeeper, PassOn, WindowKeeper
from millstream.engine.receipts.spans import SessionBounds, WindowBounds, shared_bounds, span_of
from millstream.engine.synopses.shared_aggregate import SharedAggregate

Int64Array = npt.NDArray[np.int64]
Sums = tuple[Int64Array, Int64Array]


class _LayerCounts:
    """The counts of one layer, by lineage."""

    def __init__(self, from_seq: int, step_us: int) -> None:
        self.from_seq, self.step_us = from_seq, step_us
        self.parts: list[IntervalCounts] = []

    def add(self, place: int, part: Part) -> None:
        while len(self.parts) <= place:
            self.parts.append(IntervalCounts())
        self.parts[place].add(np.floor_divide(part.time, self.step_us) * self.step_us, *part.counts())

    def between(self, place: int, low: Int64Array, high: Int64Array) -> Sums:
        if place >= len(self.parts):
            nothing = np.zeros(len(low), dtype=np.int64)
            return nothing, nothing
        return self.parts[place].between(low, high)


class SharedKeeper:
    """Of a shared aggregate: counts items by pane and layer, and answers for each query's output."""

    def __init__(self, logic: SharedAggregate) -> None:
        self._logic = logic
        self._layers: dict[int, _LayerCounts] = {}
        self._lineages = 0
        self._grain_us = 1

    def mark(self, inputs: Sequence[Train], out: Emitter) -> None:
        """As of any window; each output has the receipts of its own windows."""
        train = inputs[0]
        tally = train.tally
        current = self._logic.layer_bounds()
        for number, (from_seq, step_us) in current.items():
            known = self._layers.get(number)
            if known is None or (known.from_seq, known.step_us) != (from_seq, step_us):
                self._layers[number] = _LayerCounts(from_seq, step_us)
        self._lineages = max(self._lineages, 0 if tally is None else len(tally.parts))
        below = [] if tally is None else [self._counted(place, part, train) for place, part in enumerate(tally.parts)]
        done: set[int] = set()
        for port in out.ports:
            made = out.trains[port]
            if made is not None and id(made) not in done:
                done.add(id(made))
                self._mark_output(made, port, below)
        for place, late in enumerate(below):
            if late is not None:
                self._add(place, late)
        self._forget(current)

    def _counted(self, place: int, part: Part, train: Train) -> Part | None:
        if not len(part):
            return None
        self._grain_us = max(self._grain_us, part.grain_us)
        if train.track.in_order:
            self._add(place, part)
            return None
        below = part.time < train.track.before(part.seqs())
        if not below.any():
            self._add(place, part)
            return None
        self._add(place, part.take(np.flatnonzero(~below)))
        return part.take(np.flatnonzero(below))

    def _add(self, place: int, part: Part) -> None:
        """Count items in the newest layers that they have reached."""
        rest = part
        for number in sorted(self._layers, reverse=True):
            layer = self._layers[number]
            at = rest.place_of(layer.from_seq)
            if at < len(rest):
                layer.add(place, rest.slice(at, len(rest)))
                rest = rest.slice(0, at)
            if not len(rest):
                return

    def _mark_output(self, made: Train, port: int, below: Sequence[Part | None]) -> None:
        made.tally = None
        if not made.rows or not self._lineages:
            return
        window, layer, from_seq = self._logic.view_of(port)
        low, high = shared_bounds(window, made)
        seqs = made.seq.array()
        changed = np.ones(len(seqs), dtype=np.bool_)
        changed[1:] = (np.diff(seqs) != 0) | (np.diff(low) != 0) | (np.diff(high) != 0)
        firsts = np.flatnonzero(changed)
        low, high, seq = low[firsts], high[firsts], seqs[firsts]
        sums = [self._sums(place, layer, low, high) for place in range(self._lineages)]
        for place, late in enumerate(below):
            if late is not None:
                seen = late.slice(late.place_of(from_seq), len(late))
                inside = (seen.time >= low[:, None]) & (seen.time < high[:, None]) & (seen.seqs() <= seq[:, None])
                offered, shed = seen.counts()
                sums[place] = (sums[place][0] + inside @ offered, sums[place][1] + inside @ shed)
        spread = np.repeat(np.arange(len(firsts), dtype=np.int64), np.diff(np.append(firsts, made.rows)))
        made.receipts = shares_of(sums).take(spread)
        times = made.time.array()[firsts]
        rounded = any(layer.step_us % self._grain_us for layer in self._layers.values())
        made.tally = Tally(tuple(Part(seq, times, offered, shed, 1, rounded) for offered, shed in sums))

    def _sums(self, place: int, layer: int, low: Int64Array, high: Int64Array) -> Sums:
        found = [counts.between(place, low, high) for number, counts in self._layers.items() if number >= layer]
        nothing = np.zeros(len(low), dtype=np.int64)
        return sum((f[0] for f in found), nothing), sum((f[1] for f in found), nothing)

    def _forget(self, current: dict[int, tuple[int, int]]) -> None:
        """Let go of what no window asks for, and of layers that hold nothing and take nothing any more."""
        for number, counts in list(self._layers.items()):
            kept_from = self._logic.kept_from_us(number)
            for part in counts.parts:
                part.forget(kept_from)
            if number not in current and not any(len(part) for part in counts.parts):
                del self._layers[number]


_CARRIED_BY_TRAINS = (
    recipes.SelectRecipe,
    recipes.ProjectRecipe,
    recipes.SplitRecipe,
    recipes.FanOutRecipe,
    recipes.UnnestRecipe,
    recipes.SinkRecipe,
)


def lineages_of(recipe: recipes.Recipe, inputs: Sequence[int]) -> int:
    """Return how many lineages an operator's output has, given those of its inputs; none where nothing can be shed."""
    return sum(inputs) if isinstance(recipe, recipes.KeyedJoinRecipe) else max(inputs, default=0)


def keeper_for(recipe: recipes.Recipe, logic: Operator, inputs: Sequence[int]) -> Keeper | None:
    """Return the keeper of an operator whose inputs have so many lineages each; None where trains carry their tally by themselves."""
    if not any(inputs) or isinstance(recipe, _CARRIED_BY_TRAINS):
        return None
    if isinstance(logic, SharedAggregate):
        return SharedKeeper(logic)
    if isinstance(recipe, recipes.AggregateRecipe):
        span = span_of(recipe, logic.oldest_us)
        return PassOn() if span is None else WindowKeeper(span)
    if isinstance(recipe, recipes.WindowRecipe) and recipe.window.kind is recipes.WindowKind.SESSION and not recipe.changes:
        width = len(recipe.schema)
        return WindowKeeper(SessionBounds(width - 2, width - 1, recipe.window.gap_us, logic.oldest_us))
    if isinstance(recipe, recipes.TopRecipe) and len(recipe.partition) == 2:
        start, end = recipe.partition
        return LimitKeeper(WindowBounds(start, end), (start, end))
    if isinstance(recipe, recipes.UnionRecipe):
        return PassOn()
    return PassOn(list(inputs) if isinstance(recipe, recipes.KeyedJoinRecipe) else None)
