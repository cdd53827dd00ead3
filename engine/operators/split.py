"""Split: rows where the condition is true go to output 0, all others (false or NULL) to output 1."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.data.train import Train
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.language.recipes import SplitRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.evaluate import context_of, report_errors


class Split(Operator):
    """Stateless, two outputs."""

    stateful = False

    def __init__(self, recipe: SplitRecipe) -> None:
        super().__init__([recipe.schema, recipe.schema])
        self._predicate = compile_predicate(recipe.condition)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Evaluate the condition once, send each row one way."""
        train = inputs[0]
        if train.rows == 0:
            out.emit(train, 0)
            out.emit(train, 1)
            return
        context = context_of(train)
        mask = self._predicate(train, context)
        if context.errors:
            report_errors(context, train, out)
        out.emit(train.select(mask), 0)
        out.emit(train.select(~mask), 1)
