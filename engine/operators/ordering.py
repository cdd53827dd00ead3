"""ORDER BY over columns of a train: text by code point, NaN above every number, NULLs where the order says (K13)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.train import Int64Array
from millstream.engine.language.recipes import OrderColumn
from millstream.protocol.values import arrow_functions as pc


def rank_values(column: Column) -> Int64Array:
    """Return integers that are ordered, and equal, as the column's values are; NULLs get 0 and the rest at least 1."""
    valid = column.validity()
    if column.type.is_arrow:
        ranks: Int64Array = (
            pc.rank(column.values, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
        )
    else:
        values = column.values + 0.0 if column.values.dtype == np.float64 else column.values
        _, place = np.unique(values, return_inverse=True, equal_nan=True)
        ranks = place.astype(np.int64) + 1
    return ranks if valid is None else np.where(valid, ranks, 0)


def order_keys(columns: Sequence[Column], order: Sequence[OrderColumn]) -> list[Int64Array]:
    """Return one array of sort keys per ordering column, to be sorted ascending."""
    keys: list[Int64Array] = []
    for column, wanted in zip(columns, order, strict=True):
        ranks = rank_values(column)
        signed = np.where(ranks == 0, 0, -ranks if wanted.descending else ranks)
        beyond = np.iinfo(np.int64).min if wanted.nulls_first else np.iinfo(np.int64).max
        keys.append(np.where(ranks == 0, beyond, signed))
    return keys
