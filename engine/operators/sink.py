"""The end of a query: hands result trains to whoever subscribed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.recipes import SinkRecipe
from millstream.engine.train import Train


class Sink(Operator):
    """No outputs. `deliver` gets trains with rows, and the one that ends the answer; in order, from worker threads.

    Counted as stateful, so that two workers never deliver at once.
    """

    def __init__(self, recipe: SinkRecipe, deliver: Callable[[Train], None] | None) -> None:
        super().__init__([])
        self._deliver = deliver

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Deliver what has rows or ends."""
        train = inputs[0]
        if self._deliver is not None and (train.rows or train.ended):
            self._deliver(train)
