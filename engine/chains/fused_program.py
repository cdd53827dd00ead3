"""A chain of selections and projections as one program over the columns that enter it.

Projected expressions are put into the conditions behind them, so all conditions speak of the entering columns; cheap ones are
evaluated over the whole train and their masks combined, and rows are gathered once, at the end. A condition that is not cheap, or
that few rows reach, is evaluated over the rows left so far. Expressions that can fail row by row are not fused: they would see rows
that an earlier condition has dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
from millstream.engine.chains.column_program import COMPACT_BELOW, ColumnProgram, column_program
from millstream.engine.chains.row_program import ROWS_MAX, RowChain
from millstream.engine.data.column import Column, Index, Mask, null_column
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Selection, Slot, Train
from millstream.engine.expressions.bounds import is_cheap, may_fail
from millstream.engine.expressions.compile import compile_expression, compile_predicate
from millstream.engine.expressions.ir import ColumnRef, Expression, Literal, transform, walk
from millstream.engine.expressions.kernel import Kernel, Predicate
from millstream.engine.language.recipes import ProjectRecipe, Recipe, SelectRecipe
from millstream.engine.operators.row_operators import context_of


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing to do: computed columns that conditions need, a condition, or neither (a projection's place in the counts).

    `computed` and `condition` are what `virtual` and `predicate` were compiled from.
    """

    virtual: tuple[Kernel, ...] = ()
    predicate: Predicate | None = None
    cheap: bool = True
    computed: tuple[Expression, ...] = ()
    condition: Expression | None = None


def can_fuse(recipe: Recipe) -> bool:
    """Whether it is a selection or projection none of whose expressions can fail on a row."""
    if isinstance(recipe, SelectRecipe):
        return not may_fail(recipe.condition)
    return isinstance(recipe, ProjectRecipe) and not any(may_fail(e) for e in recipe.columns)


class ChainRows:
    """The entering columns and the computed ones behind them."""

    __slots__ = ("_train", "_width", "computed", "rows")

    def __init__(self, train: Train, width: int, virtual: list[Column]) -> None:
        self._train = train
        self._width = width
        self.computed = virtual
        self.rows = train.rows

    def column(self, position: int) -> Column:
        """Return an entering or a computed column."""
        return self._train.column(position) if position < self._width else self.computed[position - self._width]

    def append(self, column: Column) -> None:
        """Add a computed column."""
        self.computed.append(column)

    def compacted(self, mask: Mask) -> tuple[Train, ChainRows]:
        """Return the rows where the mask is true, computed columns with them."""
        (index,) = mask.nonzero()
        train = self._train.take(index)
        return train, ChainRows(train, self._width, [c.take(index) for c in self.computed])


class FusedProgram:
    """Selections and projections as one pass over a train.

    `run` returns the train that leaves the chain and the rows that left each of its operators.
    """

    def __init__(self, recipes: Sequence[Recipe], schema: Schema) -> None:
        self._width = len(schema)
        self._schema = recipes[-1].schema
        self._virtual_count = 0
        self._columns: list[Expression] = [ColumnRef(f.type, i, f.name) for i, f in enumerate(schema.fields)]
        self._stages: list[Stage] = []
        for place, recipe in enumerate(recipes):
            self._stages.append(self._stage(recipe, recipes[place + 1 :]))
        self._outputs: list[int | Kernel] = [e.position if isinstance(e, ColumnRef) else compile_expression(e) for e in self._columns]
        self._leaving = [(output, output < self._width) for output in self._outputs if isinstance(output, int)]
        self._gathers_only = len(self._leaving) == len(self._outputs)
        # Where no row is dropped and nothing computed, the columns that leave are places among those that enter.
        places = [output for output, enters in self._leaving if enters]
        drops = any(stage.predicate is not None for stage in self._stages)
        self._picked = None if drops or len(places) < len(self._outputs) else places
        self._empty: list[Slot] = [null_column(f.type, 0) for f in self._schema.fields]
        self._rows = RowChain([(s.computed, s.condition) for s in self._stages], self._columns, self._width, self._schema)
        self._program: ColumnProgram | None = None

    def _stage(self, recipe: Recipe, following: Sequence[Recipe]) -> Stage:
        if isinstance(recipe, SelectRecipe):
            condition = self._over_entering(recipe.condition)
            return Stage(predicate=compile_predicate(condition), cheap=is_cheap(condition), condition=condition)
        assert isinstance(recipe, ProjectRecipe)
        computed = self._read_twice(recipe.columns)
        columns = [self._over_entering(e) for e in recipe.columns]
        if any(isinstance(r, SelectRecipe) for r in following):
            for i, e in enumerate(columns):
                if not isinstance(e, ColumnRef | Literal) and is_cheap(e) and _is_tested(i, following):
                    computed.append(e)
                    columns[i] = self._next_column(e)
        self._columns = columns
        cheap = all(is_cheap(e) for e in computed)
        return Stage(virtual=tuple(compile_expression(e) for e in computed), cheap=cheap, computed=tuple(computed))

    def _read_twice(self, expressions: Sequence[Expression]) -> list[Expression]:
        """Give what these read more than once a column of its own, and return it: written out where it is read, it would double at
        each projection of a chain.
        """
        uses = Counter(part.position for e in expressions for part in walk(e) if isinstance(part, ColumnRef))
        shared = [
            position for position, count in uses.items() if count > 1 and not isinstance(self._columns[position], ColumnRef | Literal)
        ]
        computed = [self._columns[position] for position in shared]
        for position in shared:
            self._columns[position] = self._next_column(self._columns[position])
        return computed

    def _next_column(self, expression: Expression) -> ColumnRef:
        self._virtual_count += 1
        return ColumnRef(expression.type, self._width + self._virtual_count - 1)

    def _over_entering(self, expression: Expression) -> Expression:
        return transform(expression, lambda e: self._columns[e.position] if isinstance(e, ColumnRef) else e)

    def run(self, train: Train) -> tuple[Train, list[int]]:
        """Run the chain over one train."""
        if self._picked is not None and train.rows:
            slots = train.slots
            return train.replace_columns(self._schema, [slots[p] for p in self._picked]), [train.rows] * len(self._stages)
        if 0 < train.rows <= ROWS_MAX and (found := self._rows.run(train)) is not None:
            return found
        if train.rows == 0:
            return train.replace_columns(self._schema, self._empty), [0] * len(self._stages)
        done, mask, live, counts, computed = (self._program or self._written())(train, train.rows)
        if self._gathers_only and mask is not None and done == len(self._stages) and 0 < live < train.rows:
            return self._gathered(train, computed, mask.nonzero()[0]), counts
        rows = ChainRows(train, self._width, computed)
        if done < len(self._stages):
            train, rows, mask, live = self._go_on(done, train, rows, mask, live, counts)
        return self._leave(train, rows, mask, live), counts

    def _written(self) -> ColumnProgram:
        """Return the program of the cheap stages. Threads that race for it first write the same."""
        cheap = takewhile(lambda stage: stage.cheap, self._stages)
        self._program = column_program([(s.computed, s.condition) for s in cheap], self._width)
        return self._program

    def _go_on(
        self, done: int, train: Train, rows: ChainRows, mask: Mask | None, live: int, counts: list[int]
    ) -> tuple[Train, ChainRows, Mask | None, int]:
        """Do the stages from `done` on by their kernels."""
        context = context_of(train)
        for stage in self._stages[done:]:
            if mask is not None and (not stage.cheap or live * COMPACT_BELOW < rows.rows):
                train, rows = rows.compacted(mask)
                context, mask = context_of(train), None
            for kernel in stage.virtual:
                rows.append(kernel(rows, context))
            if stage.predicate is not None and live:
                passed = stage.predicate(rows, context)
                mask = passed if mask is None else np.logical_and(mask, passed)
                live = int(np.count_nonzero(mask))
            counts.append(live)
        return train, rows, mask, live

    def _leave(self, train: Train, rows: ChainRows, mask: Mask | None, live: int) -> Train:
        if live == 0:
            return (train if mask is None else train.take(_NO_ROWS)).replace_columns(self._schema, self._empty)
        if mask is not None and live < rows.rows:
            if self._gathers_only:
                return self._gathered(train, rows.computed, mask.nonzero()[0])
            train, rows = rows.compacted(mask)
        context = None if self._gathers_only else context_of(train)
        slots: list[Slot] = []
        for output in self._outputs:
            if not isinstance(output, int):
                assert context is not None
                slots.append(output(rows, context))
            elif output < self._width:
                slots.append(train.slot(output))
            else:
                slots.append(rows.column(output))
        return train.replace_columns(self._schema, slots)

    def _gathered(self, train: Train, computed: Sequence[Column], index: Index) -> Train:
        """Leave with some of the rows: only columns that leave are touched, entering ones gathered when someone asks for them."""
        selection = Selection(index)
        slots: list[Slot] = []
        for output, enters in self._leaving:
            if enters:
                slots.append(train.deferred(output, selection))
            else:
                slots.append(computed[output - self._width].take(index))
        return train.picked(selection, self._schema, slots)


_NO_ROWS: Index = np.empty(0, dtype=np.int64)


def _is_tested(position: int, following: Sequence[Recipe]) -> bool:
    """Whether a later condition of the chain reads this column, also through projections that pass it on."""
    positions = {position}
    for recipe in following:
        if isinstance(recipe, SelectRecipe):
            if any(isinstance(e, ColumnRef) and e.position in positions for e in walk(recipe.condition)):
                return True
        elif isinstance(recipe, ProjectRecipe):
            positions = {
                i for i, c in enumerate(recipe.columns) if any(isinstance(e, ColumnRef) and e.position in positions for e in walk(c))
            }
    return False
