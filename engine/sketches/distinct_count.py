"""APPROX_COUNT_DISTINCT: the k least hashes of all values (Bar-Yossef et al. 2002; the estimator of Beyer et al. 2007).

Up to k different values it has them all and counts exactly. With more, the k-th least of n hashes, as a share of the range of hashes,
says how dense they lie: n is about (k − 1) / share, with a standard error of 1 / sqrt(k − 2), 1.6 % for k = 4096. The state is a
function of the set of values alone: neither their order nor the cut into panes shows in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import distinct
from millstream.engine.data.column import Column
from millstream.engine.data.hashing import Hashes, hash_column
from millstream.engine.data.types import DataType
from millstream.engine.sketches.contract import Synopsis, SynopsisKind, Values, parts_of
from millstream.engine.state.forms import state_record

HASHES_MAX = 4096
_RANGE = 2.0**64


@state_record("least_hashes", 1, ("sizes", "hashes"))
class LeastHashes(Synopsis):
    """The least hashes of the different values seen, at most HASHES_MAX + 1, sorted; the last one only says that there are more."""

    __slots__ = ("hashes",)

    def __init__(self) -> None:
        self.hashes: Hashes = np.empty(0, dtype=np.uint64)

    @classmethod
    def to_table(cls, all_: Sequence[LeastHashes]) -> tuple[Any, ...]:
        """Return how many hashes each has, and these one after another."""
        return np.array([len(one.hashes) for one in all_], dtype=np.int64), np.concatenate([one.hashes for one in all_])

    @classmethod
    def from_table(cls, fields: dict[str, Any]) -> list[LeastHashes]:
        """Return them again."""
        made = []
        for hashes in parts_of(fields["hashes"], fields["sizes"]):
            made.append(cls())
            made[-1].hashes = hashes.copy()
        return made

    def add(self, values: Values) -> None:
        """Take in hashes; those above the greatest kept cannot matter once there are enough."""
        new = values.codes
        if len(self.hashes) > HASHES_MAX:
            new = new[new < self.hashes[-1]]
        if len(new) == 0:
            return
        new = distinct(new)
        places = np.searchsorted(self.hashes, new)
        unknown = places == len(self.hashes)
        unknown[~unknown] = self.hashes[places[~unknown]] != new[~unknown]
        if unknown.any():
            self.hashes = np.insert(self.hashes, places[unknown], new[unknown])[: HASHES_MAX + 1].copy()

    def nbytes(self) -> int:
        """Return the bytes of the hashes."""
        return int(self.hashes.nbytes)


@state_record("distinct_count", 1, ())
class DistinctCount(SynopsisKind):
    """Counts different values of any type."""

    @property
    def nbytes_max(self) -> int:
        """Return the bytes of a full synopsis."""
        return 8 * (HASHES_MAX + 1)

    def encode(self, column: Column) -> npt.NDArray[Any]:
        """Return hashes."""
        return hash_column(column)

    def empty(self) -> LeastHashes:
        """Return no hashes."""
        return LeastHashes()

    def answers(self, type_: DataType, groups: Sequence[Sequence[LeastHashes]]) -> Column:
        """Return the counts."""
        return Column(type_, np.array([estimate(_merged([s.hashes for s in panes])) for panes in groups], dtype=np.int64))


def _merged(parts: list[Hashes]) -> Hashes:
    if len(parts) == 1:
        return parts[0]
    return distinct(np.concatenate(parts))[: HASHES_MAX + 1] if parts else np.empty(0, dtype=np.uint64)


def estimate(hashes: Hashes) -> int:
    """Return the number of different values behind the least hashes."""
    if len(hashes) <= HASHES_MAX:
        return len(hashes)
    return round((HASHES_MAX - 1) / (float(hashes[HASHES_MAX - 1]) / _RANGE))
