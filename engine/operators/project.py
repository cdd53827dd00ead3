"""Projection: compute the output columns; plain column references pass on ungathered."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.data.column import null_column
from millstream.engine.data.train import Slot, Train
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.expressions.kernel import Kernel
from millstream.engine.language.recipes import ProjectRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.evaluate import context_of, report_errors


class Project(Operator):
    """Stateless; one output column per expression."""

    stateful = False

    def __init__(self, recipe: ProjectRecipe) -> None:
        super().__init__([recipe.schema])
        self._columns: list[int | Kernel] = [e.position if isinstance(e, ColumnRef) else compile_expression(e) for e in recipe.columns]
        self._empty: list[Slot] = [null_column(f.type, 0) for f in recipe.schema.fields]

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Evaluate each expression over the train."""
        train = inputs[0]
        if train.rows == 0:
            out.emit(train.replace_columns(self.schemas[0], self._empty))
            return
        context = context_of(train)
        slots = [train.slot(c) if isinstance(c, int) else c(train, context) for c in self._columns]
        if context.errors:
            report_errors(context, train, out)
        out.emit(train.replace_columns(self.schemas[0], slots))
