"""64-bit hashes of values, equal on every machine and run, computed for whole columns; and which part of the keys a row is in.

Numbers go through the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection: different numbers never collide. Texts are
folded eight bytes at a time with the same mixing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrow import plain_values
from millstream.engine.data.column import Column, Index
from millstream.engine.data.keys import key_bits
from millstream.engine.data.types import Kind

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


def parts_by_key(columns: Sequence[Column], parts: int) -> Index:
    """Return for each row which of so many parts its key is in: rows with equal keys (K7), NULL one of them, are in the same."""
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        valid = column.validity()
        if valid is None:
            hashes = mix(hashes ^ hash_column(column))
            continue
        known = np.flatnonzero(valid)
        own = np.zeros(len(column), dtype=np.uint64)
        own[known] = hash_column(column.take(known))
        hashes = mix(hashes ^ own)
    return ((hashes >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)


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
