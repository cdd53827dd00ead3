"""Key ids of a join: one id space for both sides, so that equal ids are equal keys (K6, K7), and an index of one side by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import BIGINT, DOUBLE, DataType, Kind, decimal
from millstream.engine.language.recipes import KeyedJoinRecipe
from millstream.engine.operators.join_state import NO_KEY
from millstream.engine.state.forms import state_record


class KeyColumns:
    """The key columns of both sides in the types in which they are compared."""

    def __init__(self, recipe: KeyedJoinRecipe, inputs: Sequence[Schema]) -> None:
        self._positions = (recipe.left_keys, recipe.right_keys)
        self._null_safe = recipe.null_safe
        pairs = zip(*self._positions, strict=True)
        self._types = [common_type(inputs[0].fields[left].type, inputs[1].fields[right].type) for left, right in pairs]

    def _side(self, ids_of: Callable[[Sequence[Column]], Int64Array], side: int, column: Callable[[int], Column], rows: int) -> Int64Array:
        """Return ids of one side's rows, NO_KEY where a key is NULL that must not be."""
        positions = self._positions[side]
        if not positions:
            return np.zeros(rows, dtype=np.int64)
        keys = [as_type(column(p), t) for p, t in zip(positions, self._types, strict=True)]
        known = known_keys(keys, self._null_safe)
        if known is None:
            return ids_of(keys)
        ids = np.full(rows, NO_KEY, dtype=np.int64)
        ids[known] = ids_of([k.filter(known) for k in keys])
        return ids


class KeyIndex(KeyColumns):
    """Rows of the right side by key, for left rows that come later, however often: what it costs to look is up to the left rows alone.

    `ids` are the right rows' keys, NO_KEY where one is NULL that must not be.
    """

    def __init__(self, recipe: KeyedJoinRecipe, inputs: Sequence[Schema], right: Sequence[Column], rows: int) -> None:
        super().__init__(recipe, inputs)
        self._encoder = key_encoder(self._types)
        self.ids = self._side(self._encoder.encode, 1, right.__getitem__, rows)
        self._order = np.argsort(self.ids, kind="stable")
        without_key = int(np.count_nonzero(self.ids < 0))  # they stand first
        counts = np.bincount(self.ids[self.ids >= 0], minlength=max(1, self.size))
        self._ends = without_key + np.cumsum(counts)
        self._begins = self._ends - counts

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return self._encoder.size if self._types else 1

    def find(self, left: Sequence[Column], rows: int) -> Int64Array:
        """Return the ids of left rows, a negative number where no right row has the key."""
        if not len(self.ids):
            return np.full(rows, NO_KEY, dtype=np.int64)
        return self._side(self._encoder.find, 0, left.__getitem__, rows)

    def counts(self, ids: Int64Array) -> Int64Array:
        """Return how many right rows each of the ids has that `find` gave."""
        if not len(self.ids):
            return np.zeros(len(ids), dtype=np.int64)
        return np.where(ids >= 0, self._ends[ids] - self._begins[ids], 0)

    def pairs(self, ids: Int64Array, counts: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the places of left rows among the ids, and of the right rows of their keys: by left row, then right one."""
        at_left = np.repeat(np.arange(len(ids), dtype=np.int64), counts)
        if not len(at_left):
            return at_left, at_left
        before = np.cumsum(counts) - counts
        return at_left, self._order[np.arange(len(at_left), dtype=np.int64) + np.repeat(self._begins[ids] - before, counts)]

    def nbytes(self) -> int:
        """Return the bytes of the keys and of the order."""
        return self._encoder.nbytes() + sum(int(a.nbytes) for a in (self.ids, self._order, self._begins, self._ends))


@state_record("join_keys", 1, ("_positions", "_null_safe", "_types", "_encoder", "_holders"))
class JoinKeys(KeyColumns):
    """Encodes both sides' key columns, counts the rows that hold each id, and frees ids that no row holds."""

    def __init__(self, recipe: KeyedJoinRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__(recipe, inputs)
        self._encoder = key_encoder(self._types)
        self._holders: Int64Array = np.zeros(64, dtype=np.int64)

    @property
    def size(self) -> int:
        """One more than the greatest id."""
        return max(1, self._encoder.size)

    def nbytes(self) -> int:
        """Return the bytes of the keys."""
        return self._encoder.nbytes() + int(self._holders.nbytes)

    def encode(self, side: int, train: Train) -> Int64Array:
        """Return an id a row, NO_KEY where a key column is NULL that must not be."""
        return self._held(self._side(self._encoder.encode, side, train.column, train.rows))

    def encode_columns(self, side: int, columns: Sequence[Column]) -> Int64Array:
        """Do the same for rows that are no train."""
        return self._held(self._side(self._encoder.encode, side, columns.__getitem__, len(columns[0])))

    def _held(self, ids: Int64Array) -> Int64Array:
        if self._types:
            self._hold(ids if not len(ids) or int(ids.min()) != NO_KEY else ids[ids != NO_KEY])
        return ids

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
        unused = distinct(ids[self._holders[ids] == 0])
        if len(unused):
            self._encoder.free(unused)


def known_keys(columns: Sequence[Column], null_safe: Sequence[bool]) -> Mask | None:
    """Return which rows have a key that can match: no NULL save where it matches NULL. None when all do."""
    mask: Mask | None = None
    for column, safe in zip(columns, null_safe, strict=True):
        valid = None if safe else column.validity()
        if valid is not None:
            mask = valid if mask is None else mask & valid
    return None if mask is None or mask.all() else mask


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


def as_type(column: Column, type_: DataType) -> Column:
    """Convert between numeric types without loss, save integers beyond 2**53 against DOUBLE."""
    if column.type == type_:
        return column
    if type_.kind is Kind.DOUBLE:
        scale = 10.0**column.type.scale if column.type.kind is Kind.DECIMAL else 1.0
        return Column(type_, column.values.astype(np.float64) / scale, column.valid)
    if type_.kind is Kind.DECIMAL:
        return Column(type_, column.values.astype(np.object_) * 10 ** (type_.scale - column.type.scale), column.valid)
    return Column(type_, column.values.astype(np.int64), column.valid)
