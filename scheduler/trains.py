"""How many tuples a unit takes at a time (Carney 2005, 3.3.1: trains)."""

from __future__ import annotations

import math

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.limits import ADAPTIVE_ROWS_MIN, ADAPTIVE_TRAIN_NS, STEP_NS_MAX, TRAIN_ROWS_MAX
from millstream.scheduler.spec import OptionValue
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TrainShape:
    """Shape of a train: exactly one of the fields says it.

    `count` is a number of tuples, `share` a part of the queue (1.0 is all of it), `adaptive` as many as fit into some ms by the
    estimates, at least some hundred. `quantum_ns` is a time that every operator has for itself (Pajjuri 2004, 5.1.3): it takes as many
    tuples as its own cost lets into it, at least one, and what is left over waits for its next turn.
    """

    count: int = 0
    share: float = 0.0
    adaptive: bool = False
    quantum_ns: int = 0

    @classmethod
    def parse(cls, value: OptionValue) -> TrainShape:
        """Read `all`, `adaptive`, a count (an integer) or a share (a number with a point, at most 1.0)."""
        if value == "adaptive":
            return cls(adaptive=True)
        if value == "all":
            return cls(share=1.0)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return cls(count=value)
        if isinstance(value, float) and 0.0 < value <= 1.0:
            return cls(share=value)
        raise PolicyError(f"train '{value}' is neither a count, a share of the queue up to 1.0, 'all' nor 'adaptive'")

    @classmethod
    def of_quantum(cls, value: OptionValue) -> TrainShape:
        """Read a quantum in ms."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
            raise PolicyError(f"policy option quantum={value} is not a positive number of ms")
        return cls(quantum_ns=max(1, round(value * 1e6)))

    def taken(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what is taken of each of these queues, if that does not follow from costs; else all of it."""
        if self.count:
            return np.minimum(waiting, self.count)
        return np.ceil(waiting * self.share).astype(np.int64) if 0.0 < self.share < 1.0 else waiting

    def taken_of_one(self, waiting: int) -> int:
        """Return the same of one queue."""
        if self.count:
            return min(waiting, self.count)
        return math.ceil(waiting * self.share) if 0.0 < self.share < 1.0 else waiting

    def rows(self, waiting: int, cost_ns: float, factor: float = 1.0) -> int:
        """Return the tuples to take of `waiting`, whose cost to the end of the unit is `cost_ns` each (with a quantum: at the operator)."""
        if waiting <= 1:
            return 1 if waiting == 1 else 0
        if self.quantum_ns:
            return min(waiting, max(1, int(self.quantum_ns * factor / cost_ns)))
        if self.count:
            return min(waiting, max(1, round(self.count * factor)))
        if self.share:
            return min(waiting, max(1, math.ceil(waiting * self.share)))
        fitting = int(ADAPTIVE_TRAIN_NS * factor / cost_ns)
        least = min(ADAPTIVE_ROWS_MIN, int(STEP_NS_MAX / cost_ns))  # rows that are dear come in shorter trains: others wait meanwhile
        return min(waiting, TRAIN_ROWS_MAX, max(1, least, fitting))
