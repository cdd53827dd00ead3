"""ALoMa: how much of the processor a class has, learnt from its response time, and so how much of its input is too much (Pham 2013, III-B).

Two monitors speak each cycle: the load L says overload when L > H, the response time R when R > target.

    L > H, R normal       H <- H + log2(k + 1) / k * (L - H)      k = max(1, 100 (L - H) / H)
    L <= H, R over        H <- 0.98 A, never under the floor
    both say overload     drop what exceeds H
    neither does          give back what fits into H

A is the load let in, L times (1 - drop). What the paper leaves open is settled so:

* A response time speaks of tuples that came that long ago. The backlog W speaks of now. What comes now waits W / H, so R counts as over as
  soon as that exceeds 35% of the target: the last tuples of a growing backlog are late long before the mean of what leaves is. By then
  nothing may have been dropped yet; what did not add to W was worked off, and H is at least that.
* W less what H works off within 35% of the target is to go within ten cycles, so it is counted into the load, while a tenth of H is let in.
  While W shrinks, H is believed.
* With L <= H the paper's formula has k = 1 and H would jump to L, which sheds nothing with R still over. So H falls to 0.98 A, which was
  let in and not worked off.
* While input is dropped, R is normal and L, that is all that came, is over H: H rises, so that no more is dropped than must be. It waits
  while a backlog of a quarter of the target or more grows, which shows that H has been passed.

On a constant load H then stays within 5% of the capacity, but for the noise of what it is shown.
"""

from __future__ import annotations

import math
from typing import Final

from millstream.scheduler.load.contract import CYCLE_NS, CYCLES_A_ROUND, NANO, ClassCycle

LOWERED: Final = 0.98
FLOOR: Final = 0.25
"""The least headroom, as a part of what it began with: H rises the slower the wider the gap is, and from nothing it would not come back."""

WAIT_SHARE: Final = 0.35
"""The part of the target that a backlog may take. Of a steady load the 99th percentile then stays about within the target, not only the
mean (virtual time, three classes at two and four times the capacity: 0.3 to 0.5 s of 0.5 s, from the second second on)."""

BACKLOG_SHARE_MAX: Final = 0.9
GROWING_FROM: Final = 0.25
CHANGED: Final = 0.01
DRAIN_S: Final = CYCLE_NS * CYCLES_A_ROUND * NANO


def raised(headroom: float, load: float) -> float:
    """Return H + log2(k+1)/k (L - H): bold where the gap is small, careful where it is wide (Pham 2013, eq. 1)."""
    k = max(1.0, 100.0 * (load - headroom) / headroom)
    return headroom + math.log2(k + 1.0) / k * (load - headroom)


class Aloma:
    """One load manager's memory: `headroom` H and `drop`, the share of the input that is not let in."""

    def __init__(self, headroom: float) -> None:
        self.headroom = headroom
        self.floor = FLOOR * headroom
        self.drop = 0.0
        self._backlog_s = 0.0

    def scale(self, factor: float) -> None:
        """The class's share of the processor was changed by this factor (Pham 2013, eq. 2)."""
        self.headroom = max(self.floor, self.headroom * factor)

    def decide(self, seen: ClassCycle) -> None:
        """Take one cycle in."""
        if seen.lateness > 1.0 or self._will_be_late(seen):
            self._late(seen)
        else:
            self._in_time(seen)
        self._backlog_s = seen.backlog_s

    def _late(self, seen: ClassCycle) -> None:
        assert seen.target_ns is not None
        admitted = seen.load * (1.0 - self.drop)
        extra = self._extra(seen.backlog_s, seen.target_ns)
        shrinks = seen.backlog_s < (1.0 - CHANGED) * self._backlog_s
        if admitted + extra <= (1.0 + CHANGED) * self.headroom and not shrinks:
            self.headroom = max(self.floor, LOWERED * admitted)
        elif seen.load > 0.0:
            self.drop = max(0.0, 1.0 - (self.headroom - extra) / seen.load)

    def _will_be_late(self, seen: ClassCycle) -> bool:
        """Whether what comes now waits for longer than it should behind what is there."""
        if seen.target_ns is None:
            return False
        waits = seen.backlog_s > WAIT_SHARE * seen.target_ns * NANO * self.headroom
        if waits and not self.drop:
            # Nothing was dropped so far: what did not add to the backlog was worked off, which may be more than the share of the class.
            worked_off = seen.load - (seen.backlog_s - self._backlog_s) / (CYCLE_NS * NANO)
            self.headroom = max(self.headroom, min(1.0, worked_off))
            return seen.backlog_s > WAIT_SHARE * seen.target_ns * NANO * self.headroom
        return waits

    def _extra(self, backlog_s: float, target_ns: float) -> float:
        """The backlog that is too much, as a load: to be gone within the time of ten cycles."""
        too_much_s = backlog_s - WAIT_SHARE * target_ns * NANO * self.headroom
        return min(BACKLOG_SHARE_MAX * self.headroom, max(0.0, too_much_s / DRAIN_S))

    def _in_time(self, seen: ClassCycle) -> None:
        if seen.load > self.headroom and not self._grows(seen):
            self.headroom = raised(self.headroom, seen.load)
        too_much = 1.0 - self.headroom / seen.load if seen.load > 0.0 else 0.0
        self.drop = min(self.drop, max(0.0, too_much))

    def _grows(self, seen: ClassCycle) -> bool:
        if seen.target_ns is None:
            return False
        return seen.backlog_s > self._backlog_s and seen.backlog_s > GROWING_FROM * seen.target_ns * NANO * self.headroom
