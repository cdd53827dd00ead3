"""Which bucket a row goes to: a hash of its key, equal for equal keys (K7) in every process and on every machine."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrow import column_to_arrow, plain_values
from millstream.engine.data.column import Column, Index
from millstream.engine.data.types import Kind

UInt64Array = npt.NDArray[np.uint64]
_NULL = np.uint64(0x9E3779B97F4A7C15)


def buckets_of(keys: Sequence[Column], rows: int, buckets: int) -> Iterator[tuple[int, Index | None]]:
    """Yield each bucket that gets rows with the rows' positions, rising; without keys all go to bucket 0 (None: all rows)."""
    if not keys or buckets == 1:
        yield 0, None
        return
    numbers = (_mixed(keys) % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    stops = [*starts[1:].tolist(), rows]
    for bucket, start, stop in zip(found.tolist(), starts.tolist(), stops, strict=True):
        yield bucket, order[start:stop]


def _mixed(keys: Sequence[Column]) -> UInt64Array:
    with np.errstate(over="ignore"):
        total = np.zeros(len(keys[0]), dtype=np.uint64)
        for column in keys:
            hashed = _hashes(column)
            if column.valid is not None:
                hashed = np.where(column.valid, hashed, _NULL)
            total = _spread(total * np.uint64(31) + hashed)
    return total


def _spread(values: UInt64Array) -> UInt64Array:
    """Mix the bits of each value (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hashes(column: Column) -> UInt64Array:
    kind = column.type.kind
    if kind is Kind.DOUBLE:
        # One zero, one NaN (K7); adding 0.0 turns -0.0 into 0.0.
        values = np.where(np.isnan(column.values), np.nan, column.values + 0.0)
        return values.view(np.uint64)
    if column.type.is_nested:
        # The one NaN and the one zero stand inside too (K7).
        return _hashes_of(plain_values(column))
    if column.type.is_arrow or column.type.is_wide or kind is Kind.NULL:
        coded = column_to_arrow(column).dictionary_encode("encode")
        different = _hashes_of(coded.dictionary.to_pylist())
        hashed: UInt64Array = different[coded.indices.to_numpy(zero_copy_only=False)]
        return hashed
    plain: UInt64Array = column.values.astype(np.int64).view(np.uint64)
    return plain


def _hashes_of(values: Sequence[Any]) -> UInt64Array:
    """Hash each value by its text, which is the same in every process."""
    return np.array([_NULL if v is None else zlib.crc32(repr(v).encode()) for v in values], dtype=np.uint64)
