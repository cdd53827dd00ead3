"""What leaves an operator: trains of rows that it made itself, and W of several inputs (K3): the minimum over those that are not idle,
never going back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.column import Column, Mask, concat_columns
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Numbers, Slot, Train, empty_train
from millstream.engine.data.types import TEXT, TIMESTAMP
from millstream.engine.data.watermarks import TIME_MIN, WatermarkTrack, concat_tracks, constant_track, jump_track, minimum_track
from millstream.engine.state.forms import state_record
from millstream.protocol.values import arrow_functions as pc

Stand = tuple[int, list[int], list[bool]]
Part = tuple[list[Column], Int64Array, Int64Array]
"""Rows that an operator made: columns, seqs, event times."""


@state_record("minimum_watermark", 1, ("value", "idle", "inputs"))
class MinimumWatermark:
    """Follows the inputs' tracks. `value` is W so far; when all inputs are idle it is the greatest that they reached."""

    __slots__ = ("idle", "inputs", "value")

    def __init__(self, inputs: int) -> None:
        self.value = TIME_MIN
        self.idle = [False] * inputs
        self.inputs = [TIME_MIN] * inputs

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up where the inputs stand; return W."""
        self.inputs, self.idle = list(watermarks_us), list(idle)
        self.value = max(self.value, self._minimum())
        return self.value

    def stand(self) -> Stand:
        """Return where it stands, for `stand_at`."""
        return self.value, self.inputs, self.idle

    def stand_at(self, stand: Stand) -> None:
        """Stand where it stood; what was passed since comes again."""
        self.value, self.inputs, self.idle = stand

    def advance(self, trains: Sequence[Train]) -> WatermarkTrack:
        """Return W over the interval that the trains cover. An idle mark takes effect with the last item of the interval."""
        lo, hi = trains[0].lo, trains[0].hi
        awake = [t for t, asleep in zip(trains, self.idle, strict=True) if not asleep]
        track = minimum_track([t.track for t in awake], self.value) if awake else _greatest(trains, lo, hi, self.value)
        self.inputs = [t.track.end for t in trains]
        self.value = max(self.value, track.end)
        if any(t.idle is not None for t in trains):
            self.idle = [asleep if t.idle is None else t.idle for t, asleep in zip(trains, self.idle, strict=True)]
            after = max(self.value, self._minimum())
            if after > self.value:
                track = _with_last_step(track, lo, hi, after)
                self.value = after
        return track

    @property
    def all_idle(self) -> bool:
        """Every input is idle."""
        return all(self.idle)

    def mark(self, trains: Sequence[Train]) -> bool | None:
        """Return the idle mark of what comes of these trains: where one has a mark, though it may say what was known.

        Whoever waits behind this operator for a mark that was put into a source, as a new reader of a view does, must get one.
        """
        return self.all_idle if any(t.idle is not None for t in trains) else None

    def _minimum(self) -> int:
        awake = [w for w, asleep in zip(self.inputs, self.idle, strict=True) if not asleep]
        return min(awake) if awake else max(self.inputs)


def _greatest(trains: Sequence[Train], lo: int, hi: int, floor: int) -> WatermarkTrack:
    """All are idle, so no rows came; only a clock or the end of the stream can move W, with the last item."""
    target = max(t.track.end for t in trains)
    return jump_track(lo, hi, floor, hi - 1, target)


def _with_last_step(track: WatermarkTrack, lo: int, hi: int, value: int) -> WatermarkTrack:
    if hi - lo == 1:
        return jump_track(lo, hi, track.start, lo, value)
    body, last = track.split_at(hi - 1)
    return concat_tracks([body, jump_track(hi - 1, hi, last.start, hi - 1, value)]) if body.end < value else constant_track(lo, hi, value)


def made_train(
    train: Train,
    schema: Schema,
    columns: Sequence[Slot],
    seq: Int64Array,
    time: Int64Array,
    track: WatermarkTrack | None = None,
    notes: dict[str, Any] | None = None,
) -> Train:
    """Return rows that an operator made from the interval of `train`, with its marks; seqs do not decrease."""
    rows = len(seq)
    if rows == 0:
        return progress(train, schema, track)
    return Train(
        schema,
        columns,
        rows=rows,
        lo=train.lo,
        hi=train.hi,
        seq=Numbers(rows, array=seq),
        time=Numbers(rows, array=time),
        arrival=train.arrival,
        track=train.track if track is None else track,
        ended=train.ended,
        idle=train.idle,
        flush=train.flush,
        notes=notes or train.notes,
    )


def joined_train(train: Train, schema: Schema, track: WatermarkTrack, parts: Sequence[Part]) -> Train:
    """Return the rows of some parts, one part after the other, as `made_train` does."""
    full = [p for p in parts if len(p[1])]
    if not full:
        return progress(train, schema, track)
    columns = [concat_columns(list(c)) for c in zip(*(p[0] for p in full), strict=True)]
    return made_train(train, schema, columns, np.concatenate([p[1] for p in full]), np.concatenate([p[2] for p in full]), track)


def progress(train: Train, schema: Schema, track: WatermarkTrack | None = None) -> Train:
    """Return a train without rows over the interval of `train`, with its marks."""
    track = train.track if track is None else track
    empty = empty_train(schema, train.lo, train.hi, track, arrival=train.arrival, ended=train.ended)
    empty.idle, empty.flush, empty.notes, empty.tally = train.idle, train.flush, train.notes, train.tally
    return empty


def change_column(plus: Sequence[bool] | np.ndarray[Any, np.dtype[np.bool_]]) -> Column:
    """Return the `op` column of a change log."""
    letters = np.where(plus, ord("+"), ord("-")).astype(np.uint8)
    offsets = np.arange(len(letters) + 1, dtype=np.int32)
    return Column(TEXT, pa.StringArray.from_buffers(len(letters), pa.py_buffer(offsets), pa.py_buffer(letters)))


def is_plus(op: Column) -> Mask:
    """Return which changes of an `op` column bring a row."""
    assert op.type == TEXT
    plus: Mask = np.asarray(pc.not_equal(op.values, "-").to_numpy(zero_copy_only=False), dtype=np.bool_)
    return plus


def take_out_late(train: Train, track: WatermarkTrack) -> tuple[Train, Train | None]:
    """Part the rows with ts < W (K4) from the others. The second is None when there are none."""
    if train.rows == 0 or track.in_order:
        return train, None
    times = train.time.array()
    if int(times.min()) >= track.end:
        return train, None
    late = times < track.before(train.seq.array())
    if not late.any():
        return train, None
    return train.select(~late), train.take(np.flatnonzero(late))


def for_each_row(values: Sequence[int], sizes: Sequence[int]) -> Numbers:
    """Return the value of each answer for all of its rows, which `sizes` counts. At least one answer."""
    if len(values) == 1:
        return Numbers(sizes[0], start=values[0])
    if min(values) == max(values):
        return Numbers(sum(sizes), start=values[0])
    spread = np.repeat(np.array(values, dtype=np.int64), sizes)
    return Numbers(len(spread), array=spread)


def timestamps(values: Sequence[int], sizes: Sequence[int]) -> Column:
    """Return the same as a column, of times in µs."""
    return Column(TIMESTAMP, for_each_row(values, sizes).array())


def flushed_track(train: Train, track: WatermarkTrack, watermark_us: int) -> WatermarkTrack:
    """Return the track of a train with an idle flush, which moves W at its last seq: to the greatest end that it closed (K3, K14)."""
    seq = train.hi - 1
    if train.hi - train.lo == 1:
        return jump_track(train.lo, train.hi, track.start, seq, watermark_us)
    body, last = track.split_at(seq)
    return concat_tracks([body, jump_track(seq, train.hi, last.start, seq, watermark_us)])
