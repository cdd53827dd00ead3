"""Which row of a stream an arrival number was: its number among all rows ever offered to the stream, from 1.

Arrival numbers are the whole server's; people look for a bad row by its place in what they sent. Kept only for streams with an error
output, and only for the last pushes: an error is met soon after its row came.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Int64Array

PUSHES_REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Push:
    seqs: Int64Array
    places: Int64Array


class Places:
    """The last pushes of one stream."""

    def __init__(self) -> None:
        self._pushes: deque[_Push] = deque(maxlen=PUSHES_REMEMBERED_MAX)

    def note(self, seqs: Int64Array, places: Int64Array) -> None:
        """Remember that the rows offered at `places` got the arrival numbers `seqs`; both rise."""
        self._pushes.append(_Push(seqs, places))

    def of(self, seqs: Int64Array) -> list[int | None]:
        """Return the place of each arrival number (rising), None for one that is no longer remembered."""
        found: dict[int, int] = {}
        wanted = np.asarray(seqs)
        for push in reversed(self._pushes):
            if not len(wanted) or wanted[-1] < push.seqs[0]:
                continue
            at = np.searchsorted(push.seqs, wanted)
            inside = (at < len(push.seqs)) & (push.seqs[np.minimum(at, len(push.seqs) - 1)] == wanted)
            found.update(zip(wanted[inside].tolist(), push.places[at[inside]].tolist(), strict=True))
            wanted = wanted[~inside]
            if not len(wanted):
                break
        return [found.get(seq) for seq in seqs.tolist()]
