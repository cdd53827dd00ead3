"""Selection: keep the rows where the condition is true."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.data.train import Train
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.language.recipes import SelectRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.evaluate import context_of, report_errors


class Select(Operator):
    """Stateless; columns of the rows kept are gathered when somebody asks for them."""

    stateful = False

    def __init__(self, recipe: SelectRecipe) -> None:
        super().__init__([recipe.schema])
        self._predicate = compile_predicate(recipe.condition)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Evaluate the condition once over the train."""
        train = inputs[0]
        if train.rows == 0:
            out.emit(train)
            return
        context = context_of(train)
        mask = self._predicate(train, context)
        if context.errors:
            report_errors(context, train, out)
        out.emit(train.select(mask))
