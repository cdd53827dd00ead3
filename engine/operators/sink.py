"""The end of a query: hands result trains to whoever subscribed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from millstream.engine.data.tally import Receipts
from millstream.engine.data.train import Train
from millstream.engine.language.recipes import SinkRecipe
from millstream.engine.operators.contract import Emitter, Operator


class Sink(Operator):
    """No outputs. `deliver` gets trains with rows, and the one that ends the answer; in order, from worker threads.

    Counted as stateful, so that two workers never deliver at once.
    """

    def __init__(self, recipe: SinkRecipe, deliver: Callable[[Train], None] | None) -> None:
        super().__init__([])
        self._deliver = deliver
        self._receipts: Receipts | None = None  # from the first train on that tells what it was offered

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Deliver what has rows or ends, with its receipt where load may be shed."""
        train = inputs[0]
        if train.tally is not None:
            self._receipts = self._receipts or Receipts()
            self._receipts.add(train.tally)
        if self._receipts is not None and (train.rows or train.ended):
            notes = {**(train.notes or {}), **self._receipts.take(train.receipts)}
            train = copy.copy(train)
            train.notes = notes
        if self._deliver is not None and (train.rows or train.ended):
            self._deliver(train)
