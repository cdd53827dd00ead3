"""Building output trains of operators that make rows of their own, and what the rows of a window's answer have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.column import Column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Numbers, Slot, Train, empty_train
from millstream.engine.data.types import TEXT, TIMESTAMP
from millstream.engine.data.watermarks import WatermarkTrack, concat_tracks, jump_track


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
        arrival=Numbers(rows, array=train.arrivals_at(seq)),
        track=train.track if track is None else track,
        ended=train.ended,
        idle=train.idle,
        flush=train.flush,
        notes=notes or train.notes,
    )


def progress(train: Train, schema: Schema, track: WatermarkTrack | None = None) -> Train:
    """Return a train without rows over the interval of `train`, with its marks."""
    track = train.track if track is None else track
    empty = empty_train(schema, train.lo, train.hi, track, arrival_ns=train.newest_arrival(), ended=train.ended)
    empty.idle, empty.flush, empty.notes, empty.tally = train.idle, train.flush, train.notes, train.tally
    return empty


def change_column(plus: Sequence[bool] | np.ndarray[Any, np.dtype[np.bool_]]) -> Column:
    """Return the `op` column of a change log."""
    return Column(TEXT, pa.array(["+" if p else "-" for p in plus], type=pa.string()))


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
