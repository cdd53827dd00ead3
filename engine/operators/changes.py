"""What changed of the answers of some groups: a '-' for each that is taken back, a '+' for each that is given anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrow import mask_from_arrow
from millstream.engine.data.column import Column, Mask, concat_columns
from millstream.engine.data.keys import key_bits, key_encoder
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import Kind
from millstream.engine.operators.outputs import change_column
from millstream.protocol.values import arrow_functions as pc


class Changes:
    """Groups that had an answer (`was`) and have one now (`is_`), and the answers: a row for each group that had, or has, one.

    `minus` and `plus` are the groups whose answer is taken back and given: all but those with equal answers then and now. `compared`
    columns decide that, if not all. A group is named by its place in the masks.
    """

    def __init__(self, before: Sequence[Column], after: Sequence[Column], was: Mask, is_: Mask, compared: int | None = None) -> None:
        place_before, place_after = np.cumsum(was) - 1, np.cumsum(is_) - 1
        equal = np.flatnonzero(was & is_)
        pairs = list(zip(before, after, strict=True))
        for one, other in sorted(
            pairs[:compared], key=lambda pair: pair[0].type.is_arrow
        ):  # most differ in a number: texts are not read then
            if len(equal):
                equal = equal[equal_values(_at(one, place_before[equal]), _at(other, place_after[equal]))]
        same = np.zeros(len(was), dtype=np.bool_)
        same[equal] = True
        self.minus, self.plus = np.flatnonzero(was & ~same), np.flatnonzero(is_ & ~same)
        self.groups: Int64Array = np.concatenate((self.minus, self.plus))
        self._pairs = pairs
        self._places = place_before[self.minus], place_after[self.plus]
        self._added: list[Column] = []

    def append(self, column: Column) -> None:
        """Add a column: a row for each of `minus`, then for each of `plus`."""
        self._added.append(column)

    def ordered(self, *keys: Int64Array) -> tuple[list[Column], Int64Array]:
        """Return the columns and `op`, and the groups, in order of the keys, the last of them first, at equal ones '-' before '+'."""
        plus = np.arange(len(self.groups)) >= len(self.minus)
        order = np.lexsort((plus, *keys))
        columns = [self._changed(before, after, order) for before, after in self._pairs]
        return [*columns, *(c.take(order) for c in self._added), change_column(plus[order])], self.groups[order]

    def _changed(self, before: Column, after: Column, order: Int64Array) -> Column:
        """Return the values taken back and those given, in an order."""
        taken, given = self._places
        if not len(taken):
            return after.take(given[order])
        return concat_columns([before, after]).take(np.concatenate((taken, given + len(before)))[order])


def _at(column: Column, places: Int64Array) -> Column:
    """Return the values at rising places; the column itself where these are all."""
    return column if len(places) == len(column) else column.take(places)


def equal_values(left: Column, right: Column) -> Mask:
    """Return where two columns are not distinct: NULL equals NULL, NaN equals NaN."""
    if len(left) == 0:
        return np.ones(0, dtype=np.bool_)
    equal: Mask
    if left.type.kind in (Kind.TEXT, Kind.BYTES):
        equal = mask_from_arrow(pc.fill_null(pc.equal(left.values, right.values), False))
    elif left.type.is_arrow or left.type.is_wide:
        ids = key_encoder([left.type]).encode([concat_columns([left, right])])
        return np.asarray(ids[: len(left)] == ids[len(left) :])
    else:
        equal = key_bits(left) == key_bits(right)
    one, other = left.validity(), right.validity()
    if one is None and other is None:
        return equal
    one, other = (np.ones(len(left), dtype=np.bool_) if valid is None else valid for valid in (one, other))
    return (equal & one & other) | ~(one | other)


def canonical_key(column: Column) -> Column:
    """Return a key column with -0.0 as 0.0 and one NaN (K7)."""
    if column.type.kind is not Kind.DOUBLE:
        return column
    return Column(column.type, key_bits(column).view(np.float64), column.valid)
