"""The opening of every operator that works in order of event time: late rows out, the rest waits until W has passed it.

Rows wait in runs, each in order; runs of like size are merged, so a row is moved about log2(rows) times however trains are cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.outputs import take_out_late
from millstream.engine.state.forms import state_record

COPY_BELOW = 2  # a run that has lost this many times what is left of it is copied, so that the rest is freed


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """What a train brought: W over its interval (it began at `floor`), and the rows that W has passed, in order."""

    track: WatermarkTrack
    floor: int
    ready: BufferedRows


@state_record("intake", 1, ("_nothing", "_runs", "_made", "watermark", "ordinal"))
class Intake:
    """Rows above W. `watermark` is W so far, `ordinal` the place on the edge of the next row."""

    def __init__(self, inputs: Schema) -> None:
        self._nothing = no_rows(inputs)
        self._runs: list[BufferedRows] = []
        self._made: list[int] = []  # rows of each run when it was made
        self.watermark = TIME_MIN
        self.ordinal = 0

    def __len__(self) -> int:
        """Return the rows that wait."""
        return sum(len(run) for run in self._runs)

    @property
    def oldest_us(self) -> int | None:
        """The least event time that waits."""
        return min((int(run.time[0]) for run in self._runs), default=None)

    def take(self, train: Train, out: Emitter) -> IntakeResult:
        """Take a train up: rows below W are late (K4); return those that W has passed now, by event time, ties by arrival."""
        floor = max(self.watermark, train.track.start)
        track = minimum_track([train.track], floor)
        timely, late = take_out_late(train, track)
        if late is not None:
            out.late.append((0, late))
        return IntakeResult(track, floor, self.moved(timely, max(floor, track.end)))

    def moved(self, timely: Train, watermark_us: int) -> BufferedRows:
        """Take rows at or above W and let W move; return what it has passed now, by event time, ties by arrival."""
        self.watermark = watermark_us
        ready = self._passed()
        if timely.rows:
            new = buffered(timely, self.ordinal).in_order()
            self.ordinal += timely.rows
            stop = int(np.searchsorted(new.time, self.watermark, side="left"))
            ready.append(new.slice(0, stop))
            self._add(new.slice(stop, len(new)))
        return self._merged(ready)

    def _passed(self) -> list[BufferedRows]:
        """Cut from each run what W has passed."""
        ready: list[BufferedRows] = []
        for place, run in enumerate(self._runs):
            if int(run.time[0]) < self.watermark:
                stop = int(np.searchsorted(run.time, self.watermark, side="left"))
                ready.append(run.slice(0, stop))
                rest = run.slice(stop, len(run))
                if COPY_BELOW * len(rest) < self._made[place]:
                    rest = rest.copied()
                    self._made[place] = len(rest)
                self._runs[place] = rest
        if ready:
            kept = [i for i, run in enumerate(self._runs) if len(run)]
            self._runs, self._made = [self._runs[i] for i in kept], [self._made[i] for i in kept]
        return ready

    def _add(self, run: BufferedRows) -> None:
        if not len(run):
            return
        self._runs.append(run.copied())
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(self._merged([before, last]))
        self._made = [*self._made[: len(self._runs) - 1], len(self._runs[-1])]

    def _merged(self, parts: Sequence[BufferedRows]) -> BufferedRows:
        full = [p for p in parts if len(p)]
        if len(full) < 2:
            return full[0] if full else self._nothing
        return concat_rows(*full).in_order()

    def held(self) -> BufferedRows:
        """Return the rows that wait, in no order."""
        return concat_rows(self._nothing, *self._runs)

    def nbytes(self) -> int:
        """Return the bytes of the rows that wait."""
        return sum(run.nbytes() for run in self._runs)
