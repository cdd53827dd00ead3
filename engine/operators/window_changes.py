"""GROUP BY over windows made of panes or over sessions, EMIT CHANGES: what a train changes in the answers of windows, as '-' and '+'.

Beside the state of the aggregate this keeps the last answer of each open window. A closed window's last answer is its final one, so the sum
of all changes is the answer of EMIT FINAL (K9). An answer that did not change is not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MIN, minimum_track
from millstream.engine.language.recipes import AggregateRecipe
from millstream.engine.operators.changes import Changes
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.outputs import Part, change_column, joined_train
from millstream.engine.operators.session_aggregate import ClosedSessions, SessionAggregate
from millstream.engine.operators.window_aggregate import WindowAggregate, WindowAnswer


class ChangingWindowAggregate(WindowAggregate):
    """Hopping, tumbling and cumulating windows."""

    state_name = "changing_windows"
    state_fields: tuple[str, ...] = (*WindowAggregate.state_fields, "_shown")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__(recipe, inputs)
        self._shown: dict[int, WindowAnswer] = {}

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Fold the rows; say what they change in each window that they reach."""
        train = inputs[0]
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        rows, cuts = self._timely(train, track, out)
        touched = self._windows_of(rows)
        changes: list[Part] = []
        for _, window, seq in self._folding(rows, track, cuts=cuts):
            assert window is not None  # early answers belong to EMIT EVERY
            changes.extend(self._changed(window, seq))
            touched.discard(window)
        closed = None if self._watermark == TIME_MIN else self._assigner.last_closed(self._watermark)
        for window in sorted(w for w in touched if closed is None or w > closed):
            changes.extend(self._changed(window, train.hi - 1))
        if train.flush:
            track = self._flush(train, track, [])
        self._drop_panes()
        self._forget()
        out.emit(joined_train(train, self.schemas[0], track, changes))

    def _windows_of(self, rows: Train) -> set[int]:
        panes = distinct(self._assigner.panes(rows.time.array())).tolist() if rows.rows else []
        spans = [self._assigner.windows_of(pane) for pane in panes]
        return {window for first, last in spans for window in range(first, last + 1)}

    def _forget(self) -> None:
        if self._watermark != TIME_MIN:
            closed = self._assigner.last_closed(self._watermark)
            self._shown = {w: a for w, a in self._shown.items() if w > closed}

    def _changed(self, window: int, seq: int) -> list[Part]:
        """Compare a window's answer with the last one shown; a group that has come stays while its window is open."""
        answers = self._answer(window, seq)
        if not answers:
            return []
        new, old = answers[0], self._shown.get(window)
        self._shown[window] = new
        places = np.full(len(new.ids), -1, dtype=np.int64)
        if old is not None:
            sorter = np.argsort(old.ids)
            found = np.clip(np.searchsorted(old.ids, new.ids, sorter=sorter), 0, len(old.ids) - 1)
            places = np.where(old.ids[sorter[found]] == new.ids, sorter[found], -1)
        was = places >= 0
        after = [*new.keys, *new.aggregates]
        before = [c.take(places[was]) for c in (*old.keys, *old.aggregates)] if old is not None else [c.slice(0, 0) for c in after]
        changes = Changes(before, after, was, np.ones(len(was), dtype=np.bool_))
        start, end = self._assigner.start(window), self._assigner.end(window)
        for bound in (start, end):
            changes.append(Column(TIMESTAMP, np.full(len(changes.groups), bound, dtype=np.int64)))
        shown, groups = changes.ordered(changes.groups)
        return [(shown, np.full(len(groups), seq, dtype=np.int64), np.full(len(groups), end - 1, dtype=np.int64))]

    def state_bytes(self) -> int:
        """Return the bytes of all grids and of what was shown."""
        shown = sum(c.nbytes() for a in self._shown.values() for c in (*a.keys, *a.aggregates))
        return super().state_bytes() + shown


class ChangingSessionAggregate(SessionAggregate):
    """Sessions grow and merge, so what was shown of the open ones is compared as whole rows."""

    state_name = "changing_sessions"
    state_fields: tuple[str, ...] = (*SessionAggregate.state_fields, "_shown")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__(recipe, inputs)
        self._shown: list[Column] | None = None

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take the rows in; say what they change in open sessions and in those that close."""
        train = inputs[0]
        closed, track = self._taken_in(train, out)
        out.emit(joined_train(train, self.schemas[0], track, self._compared(train, closed) if train.rows or closed else []))

    def _compared(self, train: Train, closed: list[ClosedSessions]) -> list[Part]:
        done = [self._made(c) for c in closed]
        sessions = self._rows.open_sessions()
        still: list[Part] = []
        if sessions is not None:
            still = [self._made(ClosedSessions(sessions, np.full(len(sessions.starts), train.hi - 1, dtype=np.int64)))]
        parts = [p[0] for p in (*done, *still)]
        before, self._shown = self._shown, still[0][0] if still else None
        new = [concat_columns(list(c)) for c in zip(*parts, strict=True)] if parts else None
        if new is None:
            return []
        old = before if before is not None else [c.take(np.empty(0, dtype=np.int64)) for c in new]
        count = len(old[0])
        both = [concat_columns([a, b]) for a, b in zip(old, new, strict=True)]
        ids = key_encoder([c.type for c in both]).encode(both)
        minus = np.flatnonzero(~np.isin(ids[:count], ids[count:]))
        plus = np.flatnonzero(~np.isin(ids[count:], ids[:count])) + count
        at = np.concatenate((minus, plus))
        kind = np.arange(len(at)) >= len(minus)
        columns = [c.take(at) for c in both]
        ends = columns[-1].values if len(at) else np.empty(0, dtype=np.int64)
        return [([*columns, change_column(kind)], np.full(len(at), train.hi - 1, dtype=np.int64), np.asarray(ends) - 1)]
