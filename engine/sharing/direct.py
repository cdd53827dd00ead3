"""From a shared aggregate straight into the sinks behind it: hundreds of queries' answers need no order each.

Only where nothing stands in between: the sink reads the output alone, nothing waits before it, it is neither running nor held (PAUSE). What
goes this way is in no log and so in no receipt but the aggregate's; the results that left are told as those of the sink.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.engine.data.train import Train
from millstream.engine.operators.contract import Emitter
from millstream.engine.runtime.queues import OutputLog
from millstream.engine.runtime.running import RunningOperator

Made = list[tuple[OutputLog, Train]]
Left = Callable[[RunningOperator, Train], None]


def pass_to_sinks(made: Made, left: Left, failed: Callable[[RunningOperator, Exception], None]) -> Made:
    """Hand trains to the sinks that can take them; return the others, for their logs. `left` hears of each train with rows that left."""
    rest: Made = []
    nothing = Emitter(0)
    for log, train in made:
        sink = log.sink
        if not isinstance(sink, RunningOperator) or sink.held or len(log.cursors) != 1 or not sink.lock.acquire(blocking=False):
            rest.append((log, train))
            continue
        try:
            cursor = sink.inputs[0]
            if sink.failed or sink.started != sink.finished or cursor.is_pending:
                rest.append((log, train))
                continue
            try:
                sink.logic.process((train,), nothing)
            except Exception as error:
                failed(sink, error)
                continue
            log.bypass(cursor, train, train.rows)
            sink.counted.add(train.rows, 0, 0)
            if train.rows:
                left(sink, train)
        finally:
            sink.lock.release()
    return rest
