"""Chain (Babcock, Babu, Datar and Motwani 2003; as in Sharaf 2007, 3.6).

    rank(x) = slope of the lower envelope of the progress chart over the segment on which x lies

The cut (`progress_chart`) computes it. Steepest first; equal slopes by the oldest tuple.
Aim: least memory in queues. Moves with time: no.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn
from millstream.scheduler.policies.base import RankingBase
from millstream.scheduler.progress_chart import envelope_slopes
from millstream.scheduler.view import View


class Chain(RankingBase):
    """Bytes per ns along the envelope."""

    oldest_first: ClassVar[bool] = True

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return the slope of each entry's segment."""
        slopes = envelope_slopes(view.ledger.network, view.estimates)
        return np.array([slopes[slot] for slot in view.units.entries[view.index].tolist()])
