"""What changed of the answers of some groups: a '-' for each that is taken back, a '+' for each that is given anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column, Mask, concat_columns
from millstream.engine.data.keys import key_bits, key_encoder
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import Kind
from millstream.engine.operators.outputs import change_column


class Changes:
    """Groups that had an answer (`was`) and have one now (`is_`), and the answers: a row for each group that had, or has, one.

    `minus` and `plus` are the groups whose answer is taken back and given: all but those with equal answers then and now. `compared`
    columns decide that, if not all. A group is named by its place in the masks.
    """

    def __init__(self, before: Sequence[Column], after: Sequence[Column], was: Mask, is_: Mask, compared: int | None = None) -> None:
        both = was & is_
        same = both.copy()
        if both.any():
            pairs = zip(before[:compared], after[:compared], strict=True)
            equal = [equal_values(a.filter(both[was]), b.filter(both[is_])) for a, b in pairs]
            same[both] = np.logical_and.reduce(equal) if equal else True
        self.minus, self.plus = np.flatnonzero(was & ~same), np.flatnonzero(is_ & ~same)
        self.groups: Int64Array = np.concatenate((self.minus, self.plus))
        self._columns = [concat_columns([a.filter(~same[was]), b.filter(~same[is_])]) for a, b in zip(before, after, strict=True)]

    def append(self, column: Column) -> None:
        """Add a column: a row for each of `minus`, then for each of `plus`."""
        self._columns.append(column)

    def ordered(self, *keys: Int64Array) -> tuple[list[Column], Int64Array]:
        """Return the columns and `op`, and the groups, in order of the keys, the last of them first, at equal ones '-' before '+'."""
        plus = np.arange(len(self.groups)) >= len(self.minus)
        order = np.lexsort((plus, *keys))
        return [*(c.take(order) for c in self._columns), change_column(plus[order])], self.groups[order]


def equal_values(left: Column, right: Column) -> Mask:
    """Return where two columns are not distinct: NULL equals NULL, NaN equals NaN."""
    if len(left) == 0:
        return np.ones(0, dtype=np.bool_)
    ids = key_encoder([left.type]).encode([concat_columns([left, right])])
    equal: Mask = ids[: len(left)] == ids[len(left) :]
    return equal


def canonical_key(column: Column) -> Column:
    """Return a key column with -0.0 as 0.0 and one NaN (K7)."""
    if column.type.kind is not Kind.DOUBLE:
        return column
    return Column(column.type, key_bits(column).view(np.float64), column.valid)
