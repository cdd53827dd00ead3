"""From when on a synopsis holds all rows that came: for a query that begins with windows whose first rows came before it.

Rows are lost with the panes that are freed, and where they came too late for every window that was then asked for. Each count, sum or
other part of a pane holds what came since somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.engine.data.schema import Schema
from millstream.engine.language.recipes import AggregateCall, WindowSpec
from millstream.engine.synopses.frames import common_step
from millstream.engine.synopses.pane_layers import Layer
from millstream.engine.windows.pane_aggregates import Part, parts_of


class Held:
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
