"""The past of a stream in arrival order: committed files, then what the journal has beyond them, each row with the W that it met.

A reader opens a file when its turn has come, and holds one batch of each file that is open; files of different days cover the same
arrival numbers, so they are read side by side. Rows outside bounds of event time are passed over by file, row group and row, those that the
conditions of a query leave out by file and row group: W before the rows that are left is known all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_from_arrow
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.errors import EngineError
from millstream.engine.data.event_time import event_time, event_times, time_position
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import ARCHIVE_COLUMNS, StreamDefinition
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.flow.replay import PastControl, PastItem, PastRows
from millstream.engine.plan.demands import Demand
from millstream.server.archive.manifest import ArchiveFile, ArchiveState
from millstream.server.archive.pieces import Control, WatermarkRule, controls_in
from millstream.server.archive.places import Place
from millstream.server.journal.records import ROWS, Record

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Event times [from, to) that are asked for, in µs; None: without a bound."""

    from_us: int | None = None
    to_us: int | None = None

    def may_hold(self, least_us: int | None, greatest_us: int | None) -> bool:
        """Whether rows with these least and greatest event times may be within; None where they are not known."""
        if least_us is None or greatest_us is None:
            return True
        return (self.from_us is None or greatest_us >= self.from_us) and (self.to_us is None or least_us < self.to_us)

    def keep(self, times: Int64Array) -> Int64Array | None:
        """Return which rows are within, None when all are."""
        if self.from_us is None and self.to_us is None:
            return None
        inside = np.ones(len(times), dtype=np.bool_)
        if self.from_us is not None:
            inside &= times >= self.from_us
        if self.to_us is not None:
            inside &= times < self.to_us
        return None if inside.all() else np.flatnonzero(inside)


NO_BOUNDS = TimeBounds()


def demanded_times(definition: StreamDefinition, demands: Sequence[Demand]) -> TimeBounds:
    """Return the bounds of event time that follow from what is demanded of a stream's columns."""
    position = time_position(definition)
    demand = next((d for d in demands if d.position == position), None)
    if demand is None:
        return NO_BOUNDS
    type_, rule = definition.schema.fields[demand.position].type, definition.time
    return TimeBounds(
        None if demand.least is None else event_time(demand.least, type_, rule),
        None if demand.greatest is None else event_time(demand.greatest, type_, rule) + 1,
    )


@dataclass(frozen=True, slots=True)
class StoredPast:
    """The committed files of a stream as they stood once. It can be pickled, and read in another process.

    `bounds` are those of the rows that are yielded; where no row of a file or row group meets `demands`, it is not read.
    """

    where: Place
    definition: StreamDefinition
    state: ArchiveState
    bounds: TimeBounds = NO_BOUNDS
    demands: tuple[Demand, ...] = ()

    @property
    def gone_before_us(self) -> int | None:
        """Before which event time rows that are asked for may be kept no longer; None when all are there."""
        complete_us = self.state.complete_from_us
        asked = [b.from_us for b in (self.bounds, demanded_times(self.definition, self.demands)) if b.from_us is not None]
        return None if complete_us is None or (asked and max(asked) >= complete_us) else complete_us

    def may_hold(self, least_us: int | None, greatest_us: int | None) -> bool:
        """Whether rows with these least and greatest event times may be asked for."""
        demanded = demanded_times(self.definition, self.demands)
        return self.bounds.may_hold(least_us, greatest_us) and demanded.may_hold(least_us, greatest_us)

    def items(self, lo: int = 0) -> Iterator[PastItem]:
        """Yield what came from the arrival number `lo` on, in order. EngineError when a file cannot be read."""
        files = [f for f in self.state.files if f.hi > lo and (self.may_hold(f.time_min_us, f.time_max_us) or f.controls)]
        try:
            yield from _Merging(self, files, lo).items()
        except (OSError, pa.ArrowException) as error:
            message = f"the archive of {self.definition.name} in {self.where.text} cannot be read: {error}"
            raise EngineError(message, hint="SHOW ARCHIVES; see to the store, then try again") from error


class _OpenFile:
    """One file that is read: its present batch, and what is left."""

    def __init__(self, past: StoredPast, file: ArchiveFile, lo: int) -> None:
        import pyarrow.parquet as pq

        self._past = past
        self._lo = lo
        self._opened = past.where.open(file.path)
        self._parquet = pq.ParquetFile(self._opened)
        self.controls: list[Control] = [c for c in controls_in(self._parquet) if c[0] >= lo]
        groups = (
            [g for g in range(self._parquet.num_row_groups) if self._may_hold(g)]
            if past.may_hold(file.time_min_us, file.time_max_us)
            else []
        )
        self._batches = self._parquet.iter_batches(BATCH_ROWS, row_groups=groups)
        self.rows: PastRows | None = None
        self.advance()

    def _may_hold(self, group: int) -> bool:
        """Whether a row group may have rows that are asked for, by its statistics."""
        metadata = self._parquet.metadata.row_group(group)
        by_name = {metadata.column(i).path_in_schema: metadata.column(i).statistics for i in range(metadata.num_columns)}
        arrivals = by_name.get(ARCHIVE_COLUMNS[0])
        if arrivals is not None and arrivals.has_min_max and arrivals.max < self._lo:
            return False
        definition = self._past.definition
        position = time_position(definition)
        ends = None if position is None else self._ends(by_name, position)
        if ends is not None and not self._past.bounds.may_hold(*event_times(ends, definition.time).tolist()):
            return False
        for demand in self._past.demands:
            ends = self._ends(by_name, demand.position)
            if ends is not None and not demand.may_hold(*(_plain(value) for value in ends.values)):
                return False
        return True

    def _ends(self, by_name: Mapping[str, Any], position: int) -> Column | None:
        """Return the least and the greatest value of a column in a row group; None where its statistics do not say."""
        field = self._past.definition.schema.fields[position]
        said = by_name.get(field.name)
        if said is None or not said.has_min_max:
            return None
        return column_from_arrow(pa.array([said.min, said.max], type=arrow_type(field.type)), field.type)

    def advance(self) -> None:
        """Go on to the next batch with rows; `rows` is None when there is none."""
        self.rows = None
        for batch in self._batches:
            rows = past_rows(self._past.definition, batch, self._past.bounds, self._lo)
            if rows is not None:
                self.rows = rows
                return
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._parquet.close()
        self._opened.close()


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else int(value)


def past_rows(definition: StreamDefinition, batch: Any, bounds: TimeBounds, lo: int) -> PastRows | None:
    """Return the rows of a batch of an archive that are asked for; None when none is."""
    width = batch.num_columns - len(ARCHIVE_COLUMNS)  # the stream may have been given more since
    columns = [
        column_from_arrow(batch.column(i), f.type) if i < width else null_column(f.type, batch.num_rows)
        for i, f in enumerate(definition.schema.fields)
    ]
    seqs = np.asarray(batch.column(width))
    marks = batch.column(width + 1)
    before = np.where(np.asarray(marks.is_valid()), np.asarray(marks.view(pa.int64()).fill_null(0)), TIME_MIN)
    came = np.asarray(batch.column(width + 2).view(pa.int64()))
    times, after = times_of(definition, columns, before, came)
    rows = PastRows(seqs, columns, times, before, after)
    kept = bounds.keep(times)
    if lo > int(seqs[0]):
        behind = np.flatnonzero(seqs >= lo)
        kept = behind if kept is None else np.intersect1d(kept, behind)
    if kept is not None:
        rows = rows.take(kept)
    return rows if len(rows.seqs) else None


def times_of(
    definition: StreamDefinition, columns: Sequence[Column], before: Int64Array, came: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the event times of rows and W after each, from W before each and when it came."""
    rule, position = definition.time, time_position(definition)
    if position is None:
        times = moving = np.where(before == TIME_MAX, came, np.maximum(came, before))
    else:
        times = moving = event_times(columns[position], rule)
        if rule.skew_us is not None:
            moving = np.where(times > came + rule.skew_us, TIME_MIN, times)
    reached = np.maximum(moving, TIME_MIN + rule.delay_us) - rule.delay_us
    return times, np.maximum(before, reached)


class _Merging:
    """Reads files side by side."""

    def __init__(self, past: StoredPast, files: Sequence[ArchiveFile], lo: int) -> None:
        self._past = past
        self._files = sorted(files, key=lambda file: (file.lo, file.hi, file.path))
        self._lo = lo
        self._next = 0
        self._open: list[_OpenFile] = []
        self._controls: list[Control] = []

    def items(self) -> Iterator[PastItem]:
        """Yield all, and close what is open whatever happens."""
        try:
            while self._next < len(self._files) or self._open:
                self._open_due()
                upto = self._upto()
                yield from cut_at_controls(self._taken(upto), self._controls_before(upto))
            yield from (PastControl(seq, said) for seq, said in self._controls)
        finally:
            for one in self._open:
                one.close()

    def _open_due(self) -> None:
        """Open the files whose first row may come before what is open says."""
        while self._next < len(self._files):
            heads = [int(one.rows.seqs[0]) for one in self._open if one.rows is not None]
            if heads and self._files[self._next].lo > min(heads):
                return
            opened = _OpenFile(self._past, self._files[self._next], self._lo)
            self._next += 1
            self._controls = sorted([*self._controls, *opened.controls], key=lambda control: control[0])
            if opened.rows is not None:
                self._open.append(opened)

    def _upto(self) -> int:
        """Return the arrival number before which all rows are at hand."""
        ends = [int(one.rows.seqs[-1]) + 1 for one in self._open if one.rows is not None]
        if self._next < len(self._files):
            ends.append(self._files[self._next].lo)
        return min(ends, default=self._past.state.upto)

    def _taken(self, upto: int) -> PastRows | None:
        parts: list[PastRows] = []
        for one in tuple(self._open):
            assert one.rows is not None
            first, rest = one.rows.split(upto)
            if first is not None:
                parts.append(first)
            one.rows = rest
            if rest is None:
                one.advance()
                if one.rows is None:
                    self._open.remove(one)
        if len(parts) < 2:
            return parts[0] if parts else None
        return _in_order(parts)

    def _controls_before(self, upto: int) -> list[Control]:
        due = [control for control in self._controls if control[0] < upto]
        self._controls = self._controls[len(due) :]
        return due


def _in_order(parts: Sequence[PastRows]) -> PastRows:
    columns = [concat_columns([part.columns[i] for part in parts]) for i in range(len(parts[0].columns))]
    joined = PastRows(
        np.concatenate([p.seqs for p in parts]),
        columns,
        np.concatenate([p.times for p in parts]),
        np.concatenate([p.before for p in parts]),
        np.concatenate([p.after for p in parts]),
    )
    return joined.take(np.argsort(joined.seqs, kind="stable"))


def cut_at_controls(rows: PastRows | None, controls: Iterable[Control]) -> Iterator[PastItem]:
    """Yield rows and control items in arrival order."""
    left = rows
    for seq, said in controls:
        if left is not None:
            first, left = left.split(seq)
            if first is not None:
                yield first
        yield PastControl(seq, said)
    if left is not None:
        yield left


def journal_items(
    definition: StreamDefinition, rule: WatermarkRule, records: Iterable[Record], bounds: TimeBounds = NO_BOUNDS
) -> Iterator[PastItem]:
    """Yield what records of the journal hold; `rule` knows W before the first of them, and afterwards behind the last."""
    for record in records:
        if record.kind != ROWS:
            rule.control(record.meta)
            yield PastControl(record.lo, record.meta)
            continue
        columns = record.columns(definition.schema, definition.added)
        times, before = rule.rows(record.lo, columns, record.now_us)
        after = np.append(before[1:], rule.watermark_us)
        rows = PastRows(np.arange(record.lo, record.hi, dtype=np.int64), columns, times, before, after)
        kept = bounds.keep(times)
        if kept is not None:
            rows = rows.take(kept)
        if len(rows.seqs):
            yield rows
