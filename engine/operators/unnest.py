"""UNNEST: a row for each item of a list, or each entry of a map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrow import column_from_arrow
from millstream.engine.data.column import Column, null_column, taken_or_null
from millstream.engine.data.train import Slot, Train
from millstream.engine.data.types import BIGINT, Kind
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.nested import entries_of
from millstream.engine.expressions.nested_values import offsets_of
from millstream.engine.language.recipes import UnnestRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.row_operators import context_of, report_errors


class Unnest(Operator):
    """Stateless. The items of a row carry its arrival number and its time, in their order."""

    stateful = False

    def __init__(self, recipe: UnnestRecipe) -> None:
        super().__init__([recipe.schema])
        self._items = compile_expression(recipe.items)
        self._is_map = recipe.items.type.kind is Kind.MAP
        self._numbered, self._outer = recipe.numbered, recipe.outer
        made = (2 if self._is_map else 1) + recipe.numbered
        self._types = [f.type for f in recipe.schema.fields[-made:]]

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Repeat each row as often as it has items."""
        train = inputs[0]
        width = len(self.schemas[0]) - len(self._types)
        if train.rows == 0:
            empty: list[Slot] = [null_column(type_, 0) for type_ in self._types]
            out.emit(train.replace_columns(self.schemas[0], [*(train.slot(i) for i in range(width)), *empty]))
            return
        context = context_of(train)
        column = self._items(train, context)
        if context.errors:
            report_errors(context, train, out)
        parts, offsets = self._parts(column)
        lengths = np.diff(offsets).astype(np.int64)
        repeats = np.maximum(lengths, 1) if self._outer else lengths
        rows = np.repeat(np.arange(train.rows, dtype=np.int64), repeats)
        firsts = np.cumsum(repeats) - repeats
        place = np.arange(len(rows), dtype=np.int64) - np.repeat(firsts, repeats)  # of each within its list
        at = np.where(place < lengths[rows], place + offsets[:-1][rows], -1)
        made = [taken_or_null(part, at) for part in parts]
        if self._numbered:
            given = at >= 0
            made.append(Column(BIGINT, place + 1, None if given.all() else given))
        repeated = train.take(rows)
        out.emit(repeated.replace_columns(self.schemas[0], [*(repeated.slot(i) for i in range(width)), *made]))

    def _parts(self, column: Column) -> tuple[list[Column], np.ndarray[tuple[int], np.dtype[np.int32]]]:
        """Return the items of all lists (the keys and the values of all maps) and where each list begins among them."""
        if self._is_map:
            keys, values, offsets = entries_of(column.values)
            return [column_from_arrow(part, t) for part, t in zip((keys, values), self._types, strict=False)], offsets
        flat = column.values.flatten()
        return [column_from_arrow(flat, self._types[0])], offsets_of(column.values)
