"""Rows that come behind W at a shared synopsis: for whom each is late (K4), and when windows close between them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MIN, WatermarkTrack
from millstream.engine.operators.contract import Emitter
from millstream.engine.synopses.frames import Frame


def told_late(frames: Iterable[Frame], train: Train, behind: Int64Array, watermark: Int64Array, out: Emitter) -> npt.NDArray[np.bool_]:
    """Tell each output which of the rows at `behind` are late or partly late for it; return which of them somebody wants."""
    times, seqs = train.time.array()[behind], train.seq.array()[behind]
    wanted = np.zeros(len(behind), dtype=np.bool_)
    for frame in frames:
        first, last = frame.assigner.closings(times)
        inside = last != TIME_MIN
        seen = inside & (seqs >= frame.from_seq)
        late = seen & (last <= watermark)
        partly = seqs[seen & ~late & (first <= watermark)]
        wanted |= (inside if frame.only_whole else seen) & (last > watermark)
        if len(partly) or late.any():
            rows = train.take(behind[late]) if late.any() else None
            for port in frame.ports:
                out.late_of_output.append((port, rows, partly))
    return wanted


def border_crossings(track: WatermarkTrack, step_us: int) -> list[tuple[int, int]]:
    """Return (seq, W then) for the items that moved W past a border of panes: only there a window can close."""
    if track.end == track.start:
        return []
    seqs, reached = track.steps()
    borders = np.floor_divide(reached, step_us)
    before = np.concatenate((np.array([track.start // step_us], dtype=np.int64), borders[:-1]))
    places = np.flatnonzero(borders > before)
    return list(zip(seqs[places].tolist(), reached[places].tolist(), strict=True))
