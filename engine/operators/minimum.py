"""The watermark of an operator with several inputs (K3): the minimum over those that are not idle, never going back."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import TIME_MIN, WatermarkTrack, concat_tracks, constant_track, jump_track, minimum_track

Stand = tuple[int, list[int], list[bool]]


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
