"""MATCH_RECOGNIZE: the matches of a row pattern in each partition (K27).

Rows are taken in event-time order, ties by arrival, once W has passed them. What a row can be by itself, and with rows so many places on
(PREV, NEXT), is computed for all rows of a train at once: a bit a variable. Then each partition is gone through row by row: from where the
last match lets the next one begin, its runs step over rows until none is left. If one of them has reached the end of the pattern that is a
match, else the next row is tried. Only conditions that read earlier rows of the match are evaluated at this point, for all runs at a row.

A match waits: for the row that ends its last run, or until W has passed its first row by more than WITHIN. That moment in event time orders
the results, so they do not depend on where trains are cut. The runs themselves are no state: they are found again from the rows held.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data import limits
from millstream.engine.data.allowance import claim, pause
from millstream.engine.data.arrays import distinct, expanded
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column, null_column, with_nulls
from millstream.engine.data.keys import KeyEncoder, key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import BIGINT, TEXT
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, lagged, lagged_track
from millstream.engine.expressions.build import conjunction, conjuncts
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.expressions.ir import Expression, columns_used
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.language.recipes import MatchRecipe, MatchSkip, MatchSpec, MatchValue
from millstream.engine.operators.contract import Emitter, EvaluationErrors, Operator
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.operators.row_patterns import Attempt, PatternRuns, RowPattern, mapped_by
from millstream.engine.windows.ranges import Ranges
from millstream.engine.windows.vectors import StoredColumns, Vectors

_TIME, _ORDINAL, _SEQ, _MASK, _STORED = range(5)  # the columns of the arena
_NONE: Int64Array = np.empty(0, dtype=np.int64)
NEVER = TIME_MAX - 1  # the moment of what only the end of the stream decides
STEPS_MAX = 20_000  # between two looks at the time
OPEN_BYTES = 200  # about what the runs of one partition take


class FoundMatches:
    """The matches of one call; a place is that of the first row in the arena."""

    __slots__ = ("claimed", "failed", "matches", "rows")

    def __init__(self) -> None:
        self.matches: list[tuple[int, int, bytes, int, int]] = []  # place, partition, variables of its rows, moment, number
        self.failed: list[int] = []  # places of matches with no row to skip to
        self.rows = 0
        self.claimed = 0

    def add(self, place: int, id_: int, mapped: bytes, moment: int, number: int) -> None:
        """Add a match, and ask for what its rows will need."""
        self.matches.append((place, id_, mapped, moment, number))
        self.rows += len(mapped)
        needed = 32 * self.rows
        if needed - self.claimed >= limits.CLAIM_BYTES_MIN:
            claim(needed - self.claimed, "the matches of one step")
            self.claimed = needed


class Walk:
    """A way through the rows of one partition, whose places count from the first that is held; that is at `base` in the arena.

    `begin` is the row at which a match is looked for, `size` the rows whose conditions are known, of `total`; `masks` and `times` are
    theirs from `low` on. `moment` is the event time by which all is known that was looked at.
    """

    __slots__ = ("_rows", "base", "begin", "begin_us", "id", "low", "masks", "moment", "size", "times", "total")

    def __init__(self, rows: Vectors, id_: int, begin: int, size: int) -> None:
        self._rows = rows
        self.id, self.begin, self.size = id_, begin, size
        self.base, self.total = int(rows.start[id_]), int(rows.size[id_])
        self.begin_us = int(rows.columns[_TIME][self.base + begin]) if begin < self.total else 0
        self.low, self.moment = begin, TIME_MIN
        self.masks: list[int] = []
        self.times: list[int] = []

    def look_from(self, low: int) -> None:
        """Take the rows from `low` on out of the arena."""
        self.low = low
        columns, start = self._rows.columns, self.base + low
        self.masks = columns[_MASK][start : self.base + self.size].tolist()
        self.times = columns[_TIME][start : self.base + self.total].tolist()


class NearRows:
    """Some rows of the arena with the columns that conditions read: of each row, or of one so many rows on in its partition."""

    def __init__(self, operator: MatchRecognize, at: Int64Array, ids: Int64Array, ready: BufferedRows | None) -> None:
        self.rows = len(at)
        self._operator = operator
        self._at, self._ids = at, ids
        self._ready = ready
        self._columns: dict[int, Column] = {}

    def column(self, position: int) -> Column:
        """Return one of the columns `near`."""
        found = self._columns.get(position)
        if found is None:
            source, shift = self._operator.spec.near[position]
            if self._ready is not None and shift == 0:
                found = self._ready.columns[source]
            else:
                found = self._operator.shifted(source, self._at, self._ids, shift)
            self._columns[position] = found
        return found


class MatchRecognize(Operator):
    """Holds the rows of matches that are not decided, and what conditions look back to."""

    calls_late = True
    state_name = "match_recognize"
    state_fields: tuple[str, ...] = ("_intake", "_keys", "_rows", "_begin", "_known", "_numbers")

    def __init__(self, recipe: MatchRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        spec = self.spec = recipe.spec
        self._inputs = inputs
        self._pattern = RowPattern(spec.pattern)
        self._within = spec.within_us
        self._ahead, self._back = spec.ahead, spec.back
        near = len(spec.near)
        parts = [([], []) if c is None else _parted(c, near) for c in spec.conditions]
        alone = [conjunction(local) for local, _ in parts]
        self._alone = [None if c is None else compile_predicate(c) for c in alone]
        self._always = sum(1 << v for v, c in enumerate(alone) if c is None)
        rest = [conjunction(others) for _, others in parts]
        read_later = {p for c in rest if c is not None for p in columns_used(c) if p < near}
        stored = set(range(len(inputs))) if spec.all_rows else set(spec.partition)
        stored |= {p for value in (*spec.measures, *spec.past) for p in value.reads}
        stored |= {p for i, (p, shift) in enumerate(spec.near) if shift or self._ahead or i in read_later}
        self._stored = StoredColumns(inputs, sorted(stored), _STORED)
        self._places = {p: _STORED + 2 * i for i, p in enumerate(self._stored.positions)}
        self._single = {p: StoredColumns(inputs, (p,), _STORED + 2 * i) for i, p in enumerate(self._stored.positions)}
        self._runs = PatternRuns(self._pattern, spec, rest, inputs) if any(c is not None for c in rest) else None
        self._counts = any(value.word == "number" for value in spec.measures)
        self._intake = Intake(inputs)
        self._keys: KeyEncoder = key_encoder([inputs.fields[p].type for p in spec.partition])
        self._rows = Vectors([np.int64, np.int64, np.int64, np.int64, *self._stored.dtypes])
        self._begin: Int64Array = np.zeros(1, dtype=np.int64)  # of each partition, the first row that is not decided
        self._known: Int64Array = np.zeros(1, dtype=np.int64)  # and the first whose conditions wait for rows behind it
        self._numbers: Int64Array = np.zeros(1, dtype=np.int64)  # its matches so far, where somebody asks
        self._open: dict[int, Attempt] = {}
        self._open_runs = 0
        self._due: dict[int, int] = {}  # of each partition that waits, the event time that W must have passed
        self._due_order: list[tuple[int, int]] = []  # the same as a heap, with some that no longer hold
        self._skip_to = [bytes((variable,)) for variable in spec.skip_to]
        self._steps = 0
        self._failed: list[tuple[int, str]] = []

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Return where W behind it stands."""
        watermark = super().attached(watermarks_us, idle)
        lag = self.spec.lag_us
        if lag is None:
            return watermark if watermark == TIME_MAX else TIME_MIN
        return lagged(watermark, lag)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; give the matches that are decided now."""
        train = inputs[0]
        taken = self._intake.take(train, out)
        lag = self.spec.lag_us
        behind = lagged_track(taken.track, lag or 0, lag is None) if lag != 0 else taken.track
        waiting = self._ripe()
        touched, lively = self._add(taken.ready, waiting, train, out)
        found = FoundMatches()
        for id_ in distinct(np.concatenate((lively, waiting))).tolist():
            self._scan(id_, found)
        for at, reason in self._failed:
            self._report(np.array([at], dtype=np.int64), reason, train, out)
        self._failed.clear()
        if found.matches:
            self._emit(train, taken.track, behind, found, out)
        else:
            out.emit(progress(train, self.schemas[0], behind))
        self._forget(distinct(np.concatenate((touched, waiting))))

    # Rows in -------------------------------------------------------------------------------------------------------------

    def _add(self, ready: BufferedRows, waiting: Int64Array, train: Train, out: Emitter) -> tuple[Int64Array, Int64Array]:
        """Store rows and find out what they can be; return the partitions with new rows, and those of them to be gone through.

        In the others no match is waited for, and none of the new rows begins one.
        """
        touched, at, ids = _NONE, _NONE, _NONE
        if len(ready):
            ids = self._partitions(ready)
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
            if not bool((order[1:] > order[:-1]).all()):
                ready = ready.take(order)
            touched = distinct(ids)
            fixed = [ready.time, ready.ordinal, ready.seq, np.zeros(len(ready), dtype=np.int64)]
            at = self._rows.append(ids, [*fixed, *self._stored.stored(ready.columns, len(ready))])
        if self._ahead:
            at, ids = self._known_now(distinct(np.concatenate((touched, waiting))))
        was = self._begin[touched] < self._known[touched]
        if len(at):
            masks = self._masks(at, ids, None if self._ahead else ready, train, out)
            self._rows.columns[_MASK][at] = masks
            np.add.at(self._known, ids, 1)
            able = ids if self._pattern.is_empty else ids[(masks & self._pattern.first) != 0]
        else:
            able = _NONE
        lively = distinct(np.concatenate((touched[was], able)))
        if self._ahead:  # rows that are not known yet may begin one
            return touched, distinct(np.concatenate((touched, lively)))
        quiet = np.setdiff1d(touched, lively, assume_unique=True)
        self._begin[quiet] = self._known[quiet]
        return touched, lively

    def _partitions(self, ready: BufferedRows) -> Int64Array:
        spec = self.spec
        if not spec.partition:
            ids = np.zeros(len(ready), dtype=np.int64)
        else:
            ids = self._keys.encode([ready.columns[p] for p in spec.partition]).astype(np.int64)
        count = int(ids.max()) + 1
        self._rows.reserve_ids(count)
        missing = count - len(self._begin)
        if missing > 0:
            more = np.zeros(max(missing, len(self._begin)), dtype=np.int64)
            self._begin, self._known, self._numbers = (np.concatenate((a, more)) for a in (self._begin, self._known, self._numbers))
        return ids

    def _known_now(self, which: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the rows whose conditions waited for rows behind them and need not wait any more, and their partitions."""
        watermark, rows = self._intake.watermark, self._rows
        counts = rows.size[which] - self._known[which]
        at, ids = expanded(rows.start[which] + self._known[which], counts), np.repeat(which, counts)
        ends = rows.start[ids] + rows.size[ids]
        known = at + self._ahead < ends
        if watermark == TIME_MAX:
            known[:] = True
        elif self._within is not None:
            known |= rows.columns[_TIME][at] < watermark - self._within
        return at[known], ids[known]

    def _ripe(self) -> Int64Array:
        """Return the partitions to look at because of W: it has come far enough, or they wait for the end of the stream, which has come."""
        watermark, order, found = self._intake.watermark, self._due_order, []
        while order and order[0][0] < watermark:
            due, id_ = heapq.heappop(order)
            if self._due.get(id_) == due:
                del self._due[id_]
                found.append(id_)
        if watermark == TIME_MAX:
            return np.flatnonzero(self._begin < self._rows.size[: len(self._begin)])
        self._clean()
        return np.array(sorted(found), dtype=np.int64)

    def _clean(self) -> None:
        """Let go of the first entries of the heap that no longer hold, and of all of them where they are many."""
        order = self._due_order
        while order and self._due.get(order[0][1]) != order[0][0]:
            heapq.heappop(order)
        if len(order) > 2 * len(self._due) + 64:
            self._due_order = [(due, id_) for id_, due in self._due.items()]
            heapq.heapify(self._due_order)

    def _masks(self, at: Int64Array, ids: Int64Array, ready: BufferedRows | None, train: Train, out: Emitter) -> Int64Array:
        """Return what each row can be, as far as conditions look at rows alone: a bit a variable."""
        near = NearRows(self, at, ids, ready)
        masks = np.full(len(at), self._always, dtype=np.int64)
        for variable, predicate in enumerate(self._alone):
            if predicate is None:
                continue
            context = EvaluationContext()
            masks |= predicate(near, context).astype(np.int64) << variable
            for places, reason in context.errors:
                self._report(at[places], reason, train, out)
        return masks

    def _report(self, at: Int64Array, reason: str, train: Train, out: Emitter) -> None:
        """Pass on rows of the arena at which something failed (K8)."""
        columns = [
            self._single[p].gathered(self._rows, at)[0] if p in self._single else null_column(f.type, len(at))
            for p, f in enumerate(self._inputs.fields)
        ]
        rows = made_train(train, self._inputs, columns, self._rows.columns[_SEQ][at], self._rows.columns[_TIME][at])
        out.errors.append(EvaluationErrors(reason, rows))

    def shifted(self, position: int, at: Int64Array, ids: Int64Array, shift: int) -> Column:
        """Return what rows so many places on have; NULL where the partition has none there, or beyond WITHIN behind its row."""
        rows = self._rows
        if shift == 0:
            return self._single[position].gathered(rows, at)[0]
        other = at + shift
        if shift < 0:
            there = other >= rows.start[ids]
        else:
            there = other < rows.start[ids] + rows.size[ids]
            if self._within is not None:
                times = rows.columns[_TIME]
                there &= times[np.where(there, other, at)] - times[at] <= self._within
        column = self._single[position].gathered(rows, np.where(there, other, at))[0]
        return with_nulls(column, there)

    def cell(self, position: int, at: int) -> Any:
        """Return one value of the arena, None for NULL."""
        place = self._places[position]
        columns = self._rows.columns
        return columns[place].item(at) if columns[place + 1].item(at) else None

    def near_cell(self, position: int, at: int, id_: int) -> Any:
        """Return one value of the columns `near`."""
        source, shift = self.spec.near[position]
        if shift == 0:
            return self.cell(source, at)
        start, size = int(self._rows.start[id_]), int(self._rows.size[id_])
        other, times = at + shift, self._rows.columns[_TIME]
        if not start <= other < start + size:
            return None
        if shift > 0 and self._within is not None and times.item(other) - times.item(at) > self._within:
            return None
        return self.cell(source, other)

    def oldest(self, id_: int) -> int:
        """Return the place of a partition's first row."""
        return int(self._rows.start[id_])

    def failed_at(self, at: int, reason: str) -> None:
        """Note that a condition that reads the match could not be computed at a row (K8)."""
        self._failed.append((at, reason))

    # Matches -------------------------------------------------------------------------------------------------------------

    def _scan(self, id_: int, found: FoundMatches) -> None:
        """Go on in one partition as far as its rows are known."""
        attempt = self._open.pop(id_, None)
        self._open_runs -= 0 if attempt is None else len(attempt.runs)
        walk = Walk(self._rows, id_, int(self._begin[id_]), int(self._known[id_]))
        walk.look_from(walk.begin if attempt is None else walk.begin + attempt.at)
        while True:
            if attempt is None:
                attempt = self._begun(walk)
                if attempt is None:
                    break
            limit = NEVER if self._within is None else min(NEVER, walk.begin_us + self._within)
            before = attempt.at
            going = self._step_quick(walk, attempt, limit) if self._runs is None else self._step_runs(walk, attempt, limit)
            self._count(attempt.at - before)
            place = walk.begin + attempt.at - walk.low
            if attempt.at > before:
                walk.moment = max(walk.moment, self._moment(walk.times, place - 1))
            if going:
                if walk.times[place] <= limit if place < len(walk.times) else self._intake.watermark <= limit:
                    self._open[id_] = attempt
                    self._open_runs += len(attempt.runs)
                    break
                walk.moment = max(walk.moment, limit)
            self._decided(walk, attempt, found)
            attempt = None
        self._begin[id_] = walk.begin
        self._wait_for(walk, attempt)

    def _begun(self, walk: Walk) -> Attempt | None:
        """Return a new attempt at the next row that can begin a match, None where no row is known that can."""
        begin, size = walk.begin, walk.size
        if begin < walk.low:
            walk.look_from(begin)
        if not self._pattern.is_empty:
            low, masks, first = walk.low, walk.masks, self._pattern.first
            while begin < size and not masks[begin - low] & first:
                begin += 1
            if begin > walk.begin:
                walk.moment = max(walk.moment, self._moment(walk.times, begin - 1 - low))
                walk.begin = begin
        if begin >= size:
            return None
        walk.begin_us = walk.times[begin - walk.low]
        return Attempt(self._pattern.quick, [] if self._runs is None else self._runs.begin(), 0 if self._pattern.is_empty else -1)

    def _step_quick(self, walk: Walk, attempt: Attempt, limit: int) -> bool:
        """Let runs that look at rows alone take rows up to `limit`; return whether one is left."""
        masks, times, state, best, trail = walk.masks, walk.times, attempt.state, attempt.best, attempt.trail
        begin = walk.begin - walk.low
        place, stop = begin + attempt.at, walk.size - walk.low
        while place < stop and times[place] <= limit:
            mask = masks[place]
            step = state.steps.get(mask) or self._pattern.step(state, mask)
            place += 1
            trail.append(step)
            if step.accepted >= 0:
                best = place - begin
            if step.state is None:
                attempt.at, attempt.best = place - begin, best
                return False
            state = step.state
        attempt.at, attempt.best, attempt.state = place - begin, best, state
        return True

    def _step_runs(self, walk: Walk, attempt: Attempt, limit: int) -> bool:
        """The same with runs that read the match."""
        assert self._runs is not None
        begin = walk.begin - walk.low
        place, stop = begin + attempt.at, walk.size - walk.low
        while place < stop and walk.times[place] <= limit:
            attempt.at += 1
            if not self._runs.step(attempt, walk.masks[place], walk.base + walk.begin, place - begin, walk.id, self):
                return False
            place += 1
        return True

    def _count(self, steps: int) -> None:
        """Look at the time now and then."""
        self._steps += steps
        if self._steps > STEPS_MAX:
            self._steps = 0
            pause()

    def _wait_for(self, walk: Walk, attempt: Attempt | None) -> None:
        """Note when to look at the partition again although it gets no row."""
        if self._within is None or walk.begin >= walk.total:
            self._due.pop(walk.id, None)
            return
        times = self._rows.columns[_TIME]
        due = min(NEVER, int(times[walk.base + walk.begin]) + self._within)
        if walk.size < walk.total and walk.begin + (0 if attempt is None else attempt.at) < walk.total:  # a row is not known yet
            due = min(NEVER, int(times[walk.base + walk.size]) + self._within)
        self._due[walk.id] = due
        heapq.heappush(self._due_order, (due, walk.id))

    def _moment(self, times: list[int], place: int) -> int:
        """Return the event time by which a row is known: its own, or that of the row which its conditions look ahead to."""
        if not self._ahead:
            return times[place]
        other = place + self._ahead
        latest = NEVER if self._within is None else min(NEVER, times[place] + self._within)
        return min(times[other], latest) if other < len(times) else latest

    def _decided(self, walk: Walk, attempt: Attempt, found: FoundMatches) -> None:
        """Note the match, if there is one, and go to where the next may begin."""
        if attempt.best < 0:
            walk.begin += 1
            return
        if self._counts:
            self._numbers[walk.id] += 1
        mapped, first = attempt.mapped, walk.base + walk.begin
        if self._runs is None:
            mapped = mapped_by(attempt.trail, attempt.best)
        found.add(first, walk.id, mapped, walk.moment, int(self._numbers[walk.id]))
        walk.begin += self._skipped(mapped, first, found)

    def _skipped(self, mapped: bytes, first: int, found: FoundMatches) -> int:
        """Return how many rows behind the first of a match the next one may begin."""
        skip = self.spec.skip
        if not mapped or skip is MatchSkip.TO_NEXT:
            return 1
        if skip is MatchSkip.PAST_LAST:
            return len(mapped)
        ends = mapped.find if skip is MatchSkip.TO_FIRST else mapped.rfind
        if len(self._skip_to) == 1:
            place = max(0, ends(self._skip_to[0]))
        else:
            places = [place for variable in self._skip_to if (place := ends(variable)) >= 0]
            place = (min if skip is MatchSkip.TO_FIRST else max)(places, default=0)
        if place == 0:
            found.failed.append(first)
        return max(1, place)

    # Results out ---------------------------------------------------------------------------------------------------------

    def _emit(self, train: Train, track: Any, behind: Any, found: FoundMatches, out: Emitter) -> None:
        rows = self._rows
        listed = tuple(zip(*found.matches, strict=True))
        places, ids, moments, numbers = (np.array(listed[i], dtype=np.int64) for i in (0, 1, 3, 4))
        order = np.lexsort((rows.columns[_ORDINAL][places], moments))
        if found.failed:
            named = "first" if self.spec.skip is MatchSkip.TO_FIRST else "last"
            reason = f"no row to skip to: the {named} row of the variable is the first of the match, or it has none"
            self._report(np.array(found.failed, dtype=np.int64), reason, train, out)
        matched = MatchedRows(places[order], [listed[2][i] for i in order.tolist()], ids[order], numbers[order])
        results = matched.results(self.spec)
        claim(len(results.match) * 16 * (1 + len(self.schemas[0])), "the matches of one step")
        columns = matched_columns(self.spec, matched, results, self._single, rows)
        at_item = track.first_reaching(np.clip(moments[order], track.start, track.end - 1) + 1)
        times = rows.columns[_TIME][results.at]
        out.emit(made_train(train, self.schemas[0], columns, at_item[results.match], times, behind))

    def _forget(self, ids: Int64Array) -> None:
        """Let go the rows before those that are not decided, save for what conditions look back to."""
        if len(ids) == 0:
            return
        counts = np.maximum(0, self._begin[ids] - self._back)
        some = counts > 0
        ids, counts = ids[some], counts[some]
        self._rows.drop_front(ids, counts)
        self._begin[ids] -= counts
        self._known[ids] -= counts
        if self.spec.partition and not self._counts:
            gone = ids[self._rows.size[ids] == 0]
            if len(gone):
                self._keys.free(gone)

    # State ---------------------------------------------------------------------------------------------------------------

    def take_up(self, fields: dict[str, Any]) -> None:
        """Hold what a snapshot had; runs are found again from the rows, when these are looked at next."""
        super().take_up(fields)
        self._open.clear()
        self._open_runs = 0
        self._due.clear()
        self._due_order.clear()
        rows = self._rows
        for id_ in np.flatnonzero(self._begin < rows.size[: len(self._begin)]).tolist():
            self._wait_for(Walk(rows, id_, int(self._begin[id_]), int(self._known[id_])), None)

    def wake_at_us(self) -> int | None:
        """Return when W must tick: past the oldest row that waits for it, or past the end of a match that may be decided by then."""
        self._clean()
        found = [] if self._intake.oldest_us is None else [self._intake.oldest_us + 1]
        if self._due_order:
            found.append(self._due_order[0][0] + 1)
        return min(found, default=None)

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._intake) + self._rows.live

    def state_bytes(self) -> int:
        """Return the bytes held."""
        counters = int(self._begin.nbytes + self._known.nbytes + self._numbers.nbytes)
        open_ = OPEN_BYTES * (len(self._open) + self._open_runs) + 8 * self._rows.live  # the steps of rows so far
        return self._intake.nbytes() + self._rows.nbytes() + self._keys.nbytes() + counters + open_


def _parted(condition: Expression, near: int) -> tuple[list[Expression], list[Expression]]:
    """Return the parts of a condition that look at rows alone, and those that read the match."""
    parts = conjuncts(condition)
    return [p for p in parts if max(columns_used(p), default=0) < near], [p for p in parts if max(columns_used(p), default=0) >= near]


# What results show -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Results:
    """Of each result its match, its place in the arena, and the rows that it sees: from `low` to `high`, to `final` of the whole match."""

    match: Int64Array
    at: Int64Array
    low: Int64Array
    high: Int64Array
    final: Int64Array


class MatchedRows:
    """The rows of some matches. `places` are those of first rows in the arena, `mapped` the variable of each row, `ids` the partitions."""

    def __init__(self, places: Int64Array, mapped: Sequence[bytes], ids: Int64Array, numbers: Int64Array) -> None:
        self.places, self.ids, self.numbers = places, ids, numbers
        self.sizes: Int64Array = np.fromiter(map(len, mapped), np.int64, len(mapped))
        self.stops: Int64Array = np.cumsum(self.sizes)
        self.starts: Int64Array = self.stops - self.sizes
        self.variables = np.frombuffer(b"".join(mapped), dtype=np.uint8)
        self.at = expanded(places, self.sizes)

    def results(self, spec: MatchSpec) -> Results:
        """Return one result a match, or one a row."""
        matches = np.arange(len(self.places), dtype=np.int64)
        if not spec.all_rows:
            last = self.places + np.maximum(0, self.sizes - 1)
            return Results(matches, last, self.starts, self.stops, self.stops)
        counts = np.maximum(1, self.sizes) if spec.shows_empty else self.sizes
        match = np.repeat(matches, counts)
        place = np.arange(len(match), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        high = self.starts[match] + np.minimum(place + 1, self.sizes[match])
        return Results(match, self.places[match] + place, self.starts[match], high, self.stops[match])


def matched_columns(
    spec: MatchSpec, matched: MatchedRows, results: Results, stored: Mapping[int, StoredColumns], rows: Vectors
) -> list[Column]:
    """Return the columns of results: those kept of the input, then the measures."""

    def column(position: int, at: Int64Array) -> Column:
        return stored[position].gathered(rows, at)[0]

    chosen: dict[tuple[int, ...], Int64Array] = {}

    def rows_of(variables: tuple[int, ...]) -> Int64Array:
        """Return which rows are mapped to one of some variables; all where none is named."""
        found = chosen.get(variables)
        if found is None:
            if variables:
                found = np.flatnonzero(np.isin(matched.variables, variables))
            else:
                found = np.arange(len(matched.variables), dtype=np.int64)
            chosen[variables] = found
        return found

    def measure(value: MatchValue) -> Column:
        high = results.final if value.final or not spec.all_rows else results.high
        if value.word == "number":
            return Column(BIGINT, matched.numbers[results.match])
        if value.word == "classifier":
            last = np.where(high > results.low, high - 1, 0)
            names = [spec.variables[v] for v in matched.variables[last].tolist()] if len(matched.variables) else [""] * len(last)
            return with_nulls(Column(TEXT, pa.array(names, type=pa.string())), high > results.low)
        of = rows_of(value.variables)
        starts, stops = np.searchsorted(of, results.low), np.searchsorted(of, high)
        if value.call is not None:
            return Ranges(lambda p: column(p, matched.at[of]), len(of), starts, stops).aggregate(value.call)
        assert value.column is not None
        wanted = starts + value.offset if value.first else stops - 1 - value.offset
        there = (starts <= wanted) & (wanted < stops)
        at = results.at.copy()
        at[there] = matched.at[of[wanted[there]]] + value.shift
        there &= at >= rows.start[matched.ids[results.match]]
        return with_nulls(column(value.column, np.where(there, at, results.at)), there)

    kept = sorted(stored) if spec.all_rows else spec.partition
    return [*(column(p, results.at) for p in kept), *map(measure, spec.measures)]
