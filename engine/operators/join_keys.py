"""Key ids of a join: one id space for both sides, so that equal ids are equal keys (K6, K7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.column import Column, Mask
from millstream.engine.errors import TypeProblem
from millstream.engine.operators.join_state import NO_KEY
from millstream.engine.operators.keys import key_encoder
from millstream.engine.operators.recipes import JoinRecipe
from millstream.engine.schema import Schema
from millstream.engine.train import Int64Array, Train
from millstream.engine.types import BIGINT, DOUBLE, DataType, Kind, decimal


class JoinKeys:
    """Encodes both sides' key columns, counts the rows that hold each id, and frees ids that no row holds."""

    def __init__(self, recipe: JoinRecipe, inputs: Sequence[Schema]) -> None:
        self._positions = (recipe.left_keys, recipe.right_keys)
        self._null_safe = recipe.null_safe
        pairs = zip(recipe.left_keys, recipe.right_keys, strict=True)
        self._types = [common_type(inputs[0].fields[left].type, inputs[1].fields[right].type) for left, right in pairs]
        self._encoder = key_encoder(self._types)
        self._holders: Int64Array = np.zeros(64, dtype=np.int64)

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return max(1, self._encoder.size)

    def encode(self, side: int, train: Train) -> Int64Array:
        """Return an id a row, NO_KEY where a key column is NULL that must not be."""
        positions = self._positions[side]
        if not positions:
            return np.zeros(train.rows, dtype=np.int64)
        columns = [_as_type(train.column(p), t) for p, t in zip(positions, self._types, strict=True)]
        known = self._known(columns)
        if known is None:
            ids = self._encoder.encode(columns)
            self._hold(ids)
            return ids
        ids = np.full(train.rows, NO_KEY, dtype=np.int64)
        found = self._encoder.encode([c.filter(known) for c in columns])
        self._hold(found)
        ids[known] = found
        return ids

    def _known(self, columns: Sequence[Column]) -> Mask | None:
        mask: Mask | None = None
        for column, safe in zip(columns, self._null_safe, strict=True):
            valid = None if safe else column.validity()
            if valid is not None:
                mask = valid if mask is None else mask & valid
        return None if mask is None or mask.all() else mask

    def _hold(self, ids: Int64Array) -> None:
        if self.size > len(self._holders):
            self._holders = np.concatenate((self._holders, np.zeros(max(self.size, len(self._holders)), dtype=np.int64)))
        if len(ids) * 4 > len(self._holders):
            self._holders += np.bincount(ids, minlength=len(self._holders))
        else:
            np.add.at(self._holders, ids, 1)

    def released(self, ids: Int64Array) -> None:
        """Rows with these ids are gone."""
        if not self._types:
            return
        ids = ids[ids >= 0]
        np.subtract.at(self._holders, ids, 1)
        unused = np.unique(ids[self._holders[ids] == 0])
        if len(unused):
            self._encoder.free(unused)


def common_type(left: DataType, right: DataType) -> DataType:
    """Return the type in which two key columns are compared; TypeProblem when they cannot be."""
    if left == right:
        return left
    if left.is_integer and right.is_integer:
        return BIGINT
    if left.is_numeric and right.is_numeric:
        if Kind.DOUBLE in (left.kind, right.kind):
            return DOUBLE
        return decimal(38, max(left.scale, right.scale))
    raise TypeProblem(f"join keys of types {left} and {right} cannot be compared", hint="cast one of them")


def _as_type(column: Column, type_: DataType) -> Column:
    """Convert between numeric types without loss, save integers beyond 2**53 against DOUBLE."""
    if column.type == type_:
        return column
    if type_.kind is Kind.DOUBLE:
        scale = 10.0**column.type.scale if column.type.kind is Kind.DECIMAL else 1.0
        return Column(type_, column.values.astype(np.float64) / scale, column.valid)
    if type_.kind is Kind.DECIMAL:
        return Column(type_, column.values.astype(np.object_) * 10 ** (type_.scale - column.type.scale), column.valid)
    return Column(type_, column.values.astype(np.int64), column.valid)
