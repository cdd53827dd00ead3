"""When each row of a stream arrives: Poisson, fixed, as recorded, or at once. Pure; runs on the driver and in Spark's tasks alike.

All rules give ns since the start of the feed (`max` only an order). They need the row's number in its stream and, for `original`, its
recorded time; what a block of rows must know of the rows before it is one integer, its `base`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from millstream.feeder.errors import RateError
from millstream.feeder.rates import UNIT, Profile, sum_of_gaps, unit_gaps
from numpy.typing import NDArray

Kind = Literal["poisson", "fixed", "original", "max"]
NS_PER_US = 1_000

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ArrivalRule:
    """How arrivals are timed.

    `profile` is the rate of each stream (poisson, fixed), times its entry in `shares` if there are any. `burst` rows arrive at one
    instant, the rate in rows stays. `speed` is how many times faster than recorded (original).
    """

    kind: Kind
    profile: Profile | None = None
    seed: int = 0
    burst: int = 1
    speed: float = 1.0
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind in {"poisson", "fixed"} and self.profile is None:
            raise RateError(f"{self.kind} arrivals need a rate", hint="give --rate N/s or --profile, or use --max")
        if self.burst < 1:
            raise RateError("a burst holds at least one row")
        if not 0 < self.speed < math.inf:
            raise RateError("the speed must be a number above 0")
        if any(share <= 0 for share in self.shares):
            raise RateError("every stream's share of the rate must be above 0")

    def bases(self, stream: int, firsts: list[int]) -> list[int]:
        """Return the base of each block of a stream that begins with these increasing row numbers, in one pass over the gaps."""
        if self.kind != "poisson":
            return [0] * len(firsts)
        found, total, done = [], 0, 0
        for first in firsts:
            upto = self._gaps_before(first)
            total += sum_of_gaps(self.seed, stream, done, upto)
            done = upto
            found.append(total)
        return found

    def at(self, stream: int, first: int, rows: int, base: int) -> tuple[Int64Array, int]:
        """Return the instants of `rows` rows from number `first` on, ns since the start, and the base of the row after (not original)."""
        numbers = np.arange(first, first + rows, dtype=np.int64)
        if self.profile is None:
            return numbers, 0
        bursts = numbers // self.burst
        if self.kind == "fixed":
            return self._instants(stream, (bursts + 1) * (self.burst * UNIT)), 0
        # The burst that the row before `first` belongs to is in `base` already; new ones begin with the next gap.
        start = self._gaps_before(first)
        sums = np.concatenate(([0], np.cumsum(unit_gaps(self.seed, stream, start, self._gaps_before(first + rows))))) + base
        return self._instants(stream, sums[bursts - start + 1] * self.burst), int(sums[-1])

    def rate_at(self, elapsed_ns: int, streams: int) -> float:
        """Return the rows per second asked for so long after the start, all streams together; 0 when nothing is asked."""
        if self.profile is None:
            return 0.0
        return self.profile.rate_at(max(0, elapsed_ns)) * (sum(self.shares) if self.shares else streams)

    def _instants(self, stream: int, units: Int64Array) -> Int64Array:
        assert self.profile is not None
        if self.shares:
            units = np.rint(units / self.shares[stream]).astype(np.int64)
        return self.profile.instants_ns(units)

    def recorded(self, times_us: Int64Array, origin_us: int, base_us: int) -> tuple[Int64Array, int]:
        """Return the instants of rows recorded at `times_us`, sped up, and the base of the row after.

        A row recorded earlier than one before it in its stream arrives together with that one: `base_us` is the latest before.
        """
        running = np.maximum.accumulate(np.maximum(times_us, base_us))
        instants = np.rint((running - origin_us) * (NS_PER_US / self.speed)).astype(np.int64)
        return instants, int(running[-1]) if len(running) else base_us

    def _gaps_before(self, row: int) -> int:
        """Return how many gaps lie before row number `row`: one for each burst that has begun."""
        return -(-row // self.burst)
