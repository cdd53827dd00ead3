"""The open session of each key: its first and last event time, who came first, and the states of its aggregates; and timers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import run_sizes
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column
from millstream.engine.data.key_maps import array_bytes
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.state.forms import state_record
from millstream.engine.windows.sliding_cells import CellStates

Int64Array = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


@state_record("timers", 1, ("_runs",))
class Timers:
    """Ids that ask to be looked at once W has reached a time: each comes back once. Sorted runs, merged when they are of like size."""

    def __init__(self) -> None:
        self._runs: list[tuple[Int64Array, Int64Array]] = []

    def __len__(self) -> int:
        """Return the timers that run."""
        return sum(len(times) for times, _ in self._runs)

    @property
    def next_us(self) -> int | None:
        """The least time."""
        return min((int(times[0]) for times, _ in self._runs), default=None)

    def add(self, times: Int64Array, ids: Int64Array) -> None:
        """Start timers."""
        if len(times) == 0:
            return
        order = np.argsort(times, kind="stable")
        self._runs.append((times[order], ids[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            last, before = self._runs.pop(), self._runs.pop()
            merged = np.concatenate((before[0], last[0])), np.concatenate((before[1], last[1]))
            order = np.argsort(merged[0], kind="stable")
            self._runs.append((merged[0][order], merged[1][order]))

    def due(self, watermark_us: int) -> Int64Array:
        """Take out the ids whose time is at or before W."""
        found: list[Int64Array] = []
        kept: list[tuple[Int64Array, Int64Array]] = []
        for times, ids in self._runs:
            stop = int(np.searchsorted(times, watermark_us, side="right"))
            found.append(ids[:stop])
            if stop < len(times):
                kept.append((times[stop:], ids[stop:]) if stop else (times, ids))
        self._runs = kept
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class ClosedStates:
    """Sessions to be put out: `live` rows that WHERE kept, `first` ordinal to arrive; at `moment`, if given, they are still open."""

    ids: Int64Array
    begins: Int64Array
    ends: Int64Array
    first: Int64Array
    live: Int64Array
    states: list[Array]
    moment: int | None = None
    keys: list[Column] = field(default_factory=list)
    seqs: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@state_record(
    "session_states",
    1,
    ("cells", "_gap", "_is_open", "_timed", "_first_time", "_last_time", "_first", "_live", "_states", "_timers", "_count"),
)
class SessionStates:
    """The open session of each key, as states. Arrays are indexed by key id."""

    def __init__(self, gap_us: int, calls: Sequence[AggregateCall], inputs: Schema) -> None:
        self.cells = CellStates(calls, inputs)
        self._gap = gap_us
        self._is_open: Mask = np.zeros(1, dtype=np.bool_)
        self._timed: Mask = np.zeros(1, dtype=np.bool_)
        self._first_time, self._last_time, self._first, self._live = (np.zeros(1, dtype=np.int64) for _ in range(4))
        self._states: list[Array] = [part.kind.fresh(1) for part in self.cells.parts]
        self._timers = Timers()  # each open session has one, not later than its end
        self._count = 0

    def __len__(self) -> int:
        """Return the open sessions."""
        return self._count

    @property
    def next_close_us(self) -> int | None:
        """No open session ends before this."""
        return self._timers.next_us

    @property
    def oldest_us(self) -> int | None:
        """When the oldest open session began."""
        return int(self._first_time[self._is_open].min()) if self._count else None

    def reserve(self, count: int) -> None:
        """Make ids below `count` known."""
        missing = count - len(self._is_open)
        if missing <= 0:
            return
        more = max(missing, len(self._is_open))

        def longer(array: Array) -> Array:
            return np.concatenate((array, np.zeros(more, dtype=array.dtype)))

        self._is_open, self._timed = longer(self._is_open), longer(self._timed)
        self._first_time, self._last_time = longer(self._first_time), longer(self._last_time)
        self._first, self._live = longer(self._first), longer(self._live)
        self._states = [longer(s) for s in self._states]

    def reaches(self, key: int, time_us: int) -> bool:
        """A row of this key and time would join the open session (K5: strictly less than the gap away)."""
        near = self._first_time[key] - self._gap < time_us < self._last_time[key] + self._gap
        return bool(self._is_open[key] and near)

    def forgotten(self, ids: Int64Array) -> Int64Array:
        """Return those of different ids that nothing is known of."""
        unused: Int64Array = ids[~self._is_open[ids] & ~self._timed[ids]]
        return unused

    def fold(self, rows: BufferedRows, live: Mask | None, ids: Int64Array, *, joins_all: bool = False) -> ClosedStates | None:
        """Fold rows, in order of time, into their keys' sessions; return those that a later row of the key has closed.

        `joins_all`: each row is known to reach its key's open session, if there is one (a row below W).
        """
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        times = rows.time[order]
        begins = np.ones(len(ids), dtype=np.bool_)
        new_key = np.ones(len(ids), dtype=np.bool_)
        new_key[1:] = ids[1:] != ids[:-1]
        begins[1:] = new_key[1:] | (times[1:] - times[:-1] >= self._gap)
        starts = np.flatnonzero(begins)
        which = ids[starts]
        goes_on = new_key[starts] & self._is_open[which]
        if not joins_all:
            left_behind = goes_on & (times[starts] >= self._last_time[which] + self._gap)
            goes_on &= ~left_behind
        sessions = self._made(rows, order, live, starts, which, goes_on)
        closed: list[ClosedStates] = []
        if not joins_all and left_behind.any():
            closed.append(self._taken(which[left_behind]))
        last = np.ones(len(starts), dtype=np.bool_)
        last[:-1] = which[1:] != which[:-1]
        self._store(sessions, last)
        closed.append(_part(sessions, ~last))
        return _joined(closed)

    def _made(
        self, rows: BufferedRows, order: Int64Array, live: Mask | None, starts: Int64Array, which: Int64Array, goes_on: Mask
    ) -> ClosedStates:
        """Return the sessions of the rows in an order, each with what its key's open one holds already where it goes on."""
        count, times = len(starts), rows.time[order]
        cells = np.repeat(np.arange(count, dtype=np.int64), run_sizes(starts, len(times)))
        stops = np.append(starts[1:], len(times))
        at = np.flatnonzero(goes_on)
        old = which[at]
        first = np.minimum.reduceat(rows.ordinal[order], starts)
        begin, last = times[starts].copy(), times[stops - 1].copy()
        first[at] = np.minimum(first[at], self._first[old])
        begin[at] = np.minimum(begin[at], self._first_time[old])
        last[at] = np.maximum(last[at], self._last_time[old])
        if live is not None:
            kept = live[order]
            order, cells = order[kept], cells[kept]
        states = self.cells.continued(rows, order, cells, count, at, [s.take(old) for s in self._states])
        alive = np.bincount(cells, minlength=count).astype(np.int64)
        alive[at] += self._live[old]
        return ClosedStates(which, begin, last + self._gap, first, alive, states)

    def _store(self, sessions: ClosedStates, last: Mask) -> None:
        ids = sessions.ids[last]
        self._count += int(np.count_nonzero(~self._is_open[ids]))
        self._is_open[ids] = True
        self._first_time[ids], self._last_time[ids] = sessions.begins[last], sessions.ends[last] - self._gap
        self._first[ids], self._live[ids] = sessions.first[last], sessions.live[last]
        for state, new in zip(self._states, sessions.states, strict=True):
            state[ids] = new[last]
        fresh = ids[~self._timed[ids]]
        self._timed[fresh] = True
        self._timers.add(self._last_time[fresh] + self._gap, fresh)

    def _taken(self, ids: Int64Array, moment: int | None = None) -> ClosedStates:
        ends = self._last_time[ids] + self._gap
        return ClosedStates(
            ids, self._first_time[ids], ends, self._first[ids], self._live[ids], [s.take(ids) for s in self._states], moment
        )

    def open_now(self, moment: int) -> ClosedStates:
        """Return all open sessions as they stand at a moment."""
        return self._taken(np.flatnonzero(self._is_open), moment)

    def close(self, watermark_us: int) -> tuple[ClosedStates | None, Int64Array]:
        """Close the sessions whose end W has reached; return them, and the ids that are no longer used."""
        due = self._timers.due(watermark_us)
        if len(due) == 0:
            return None, due
        self._timed[due] = False
        ends = self._last_time[due] + self._gap
        over = self._is_open[due] & (ends <= watermark_us)
        gone = self._taken(due[over])
        self._is_open[due[over]] = False
        self._count -= int(np.count_nonzero(over))
        again = due[self._is_open[due]]
        self._timed[again] = True
        self._timers.add(self._last_time[again] + self._gap, again)
        return gone, due[~self._is_open[due]]

    def nbytes(self) -> int:
        """Return the bytes of all arrays."""
        return 34 * len(self._is_open) + sum(array_bytes(s) for s in self._states) + 16 * len(self._timers)


def _part(sessions: ClosedStates, mask: Mask) -> ClosedStates:
    states = [s[mask] for s in sessions.states]
    return ClosedStates(sessions.ids[mask], sessions.begins[mask], sessions.ends[mask], sessions.first[mask], sessions.live[mask], states)


def _joined(parts: Sequence[ClosedStates]) -> ClosedStates | None:
    full = [p for p in parts if len(p.ids)]
    if len(full) < 2:
        return full[0] if full else None
    states = [np.concatenate(s) for s in zip(*(p.states for p in full), strict=True)]
    arrays = [np.concatenate([getattr(p, name) for p in full]) for name in ("ids", "begins", "ends", "first", "live")]
    return ClosedStates(arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], states)
