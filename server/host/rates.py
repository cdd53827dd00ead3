"""How many rows a second have come on each stream lately. Noted now and then by the sweep, read when somebody plans with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

NS_PER_S = 1_000_000_000
NOTES_MAX = 11
"""Notes kept: with one each half second, the last five seconds."""


class StreamRates:
    """Totals of accepted rows by stream at the last moments. One thread notes, any may read."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, dict[str, int]]] = deque(maxlen=NOTES_MAX)

    def note(self, now_ns: int, totals: Mapping[str, int]) -> None:
        """Note the totals at a moment later than the last."""
        self._notes.append((now_ns, dict(totals)))

    def per_s(self, stream: str) -> float | None:
        """Return the rows a second over what is remembered; None before two notes know the stream."""
        known = [(at, totals[stream]) for at, totals in tuple(self._notes) if stream in totals]
        if len(known) < 2:
            return None
        (first_ns, before), (last_ns, after) = known[0], known[-1]
        return max(0.0, (after - before) * NS_PER_S / max(1, last_ns - first_ns))
