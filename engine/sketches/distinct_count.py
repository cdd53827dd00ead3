"""APPROX_COUNT_DISTINCT: the k least hashes of all values (Bar-Yossef et al. 2002; the estimator of Beyer et al. 2007).

Up to k different values it has them all and counts exactly. With more, the k-th least of n hashes, as a share of the range of hashes,
says how dense they lie: n is about (k − 1) / share, with a standard error of 1 / sqrt(k − 2), 1.6 % for k = 4096. The state is a
function of the set of values alone: neither their order nor the cut into panes shows in the answer.

64-bit hashes of values, equal on every machine and run, computed for whole columns.

Numbers go through the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection: different numbers never collide. Texts are
folded eight bytes at a time with the same mixing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrow import plain_values
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_bits
from millstream.engine.data.types import DataType, Kind
from millstream.engine.sketches.contract import Synopsis, SynopsisKind, Values, parts_of
from millstream.engine.state.forms import state_record

Hashes = npt.NDArray[np.uint64]

FOLDED_BYTES_MAX = 256  # longer texts are hashed one by one
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: Hashes) -> Hashes:
    """Return splitmix64's finaliser of each value; arithmetic wraps by intent."""
    z = values + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = z ^ (z >> np.uint64(31))
    return mixed


def hash_column(column: Column) -> Hashes:
    """Return a hash a row, the same for values that are equal as keys (K7). The column has no NULLs."""
    if column.type.kind in (Kind.TEXT, Kind.BYTES):
        return _hash_texts(column.values)
    if column.type.is_wide or not column.type.is_ordered:
        values = plain_values(column) if column.type.is_arrow else column.values.tolist()
        return np.fromiter((_digest(repr(v).encode()) for v in values), dtype=np.uint64, count=len(values))
    return mix(key_bits(column).view(np.uint64))


def _digest(raw: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


def _hash_texts(array: Any) -> Hashes:
    rows = len(array)
    if rows == 0:
        return np.empty(0, dtype=np.uint64)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[array.offset : array.offset + rows + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, dtype=np.uint8)[first:last] if data_buffer is not None else np.empty(0, dtype=np.uint8)
    padded = np.concatenate((data, np.zeros(8, dtype=np.uint8)))
    words = np.ndarray(shape=(len(data) + 1,), dtype="<u8", buffer=padded, strides=(1,))  # the eight bytes from each place on
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    hashes = mix(lengths.astype(np.uint64))
    _fold_words(hashes, words, starts, lengths)
    for row in np.flatnonzero(lengths > FOLDED_BYTES_MAX).tolist():
        hashes[row] = _digest(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return hashes


def _fold_words(hashes: Hashes, words: Hashes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
    """Mix in the bytes of each text that is not too long, eight at a time; bytes beyond its end count as zero."""
    for place in range(0, min(int(lengths.max()), FOLDED_BYTES_MAX), 8):
        here = np.flatnonzero((lengths > place) & (lengths <= FOLDED_BYTES_MAX))
        left = np.minimum(lengths[here] - place, 8).astype(np.uint64)
        mask = np.where(left == 8, np.uint64(0xFFFFFFFFFFFFFFFF), (np.uint64(1) << (left * np.uint64(8) % np.uint64(64))) - np.uint64(1))
        hashes[here] = mix(hashes[here] ^ (words[starts[here] + place] & mask))


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
