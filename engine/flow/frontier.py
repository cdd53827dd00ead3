"""How far the arrival order of an edge is known: the seq below which nothing more can come.

An operator with several inputs takes the same interval from each, up to the least frontier; so what it answers does not depend on who
ran first. Frontiers are read lazily, walking upstream, and only by such operators.

Why it is safe without a global lock. A source publishes its next seq after the rows below it are in its logs, and we read the next
seq before we look into a log; so what we do not find in the log cannot come any more. For a log behind an operator P:

1. read `started`; if it differs from `finished`, a call is under way and may still push: the log's own end is all that is known;
2. for each input of P: its frontier first, then whether work waits in it. No work waiting means that all rows below the frontier have
   been passed by P's cursor;
3. read `started` again. If it moved, a call began meanwhile and may hold rows that step 2 did not find waiting: the log's own end.

`started` moves before a call takes anything, and `finished` after its output is in the log. So if 1 and 3 agree, whatever passed P's cursor
has been answered in the log, and P will put out nothing below the least frontier of its inputs: operators only put out rows with the
seq of the item that caused them. Whoever asked looks into the log afterwards, and finds all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.flow.cursors import Cursor


def edge_frontier(cursor: Cursor) -> int:
    """Return the seq below which the consumer of an edge will get nothing more than it has got."""
    frontier = log_frontier(cursor)
    work = cursor.first_work()
    if work is None and cursor.sealed_at is not None:
        return min(frontier, cursor.sealed_at)
    return frontier if work is None else work


def log_frontier(cursor: Cursor) -> int:
    """Return the seq below which nothing more can come into the log that a cursor reads."""
    producer = cursor.log.producer
    return cursor.log.hi if producer is None else producer.frontier(cursor.log)


def interval_end(inputs: Sequence[Cursor], rows_max: int) -> int | None:
    """Return up to which seq all inputs can be taken now, about `rows_max` rows in all. None when there is nothing to do yet."""
    upto: int | None = None
    for cursor in inputs:
        frontier = log_frontier(cursor)  # before looking into the log
        reach, at_mark = cursor.reach()
        bound = reach if at_mark else max(frontier, reach)
        if cursor.sealed_at is not None:
            bound = min(bound, cursor.sealed_at)
        upto = bound if upto is None else min(upto, bound)
    assert upto is not None
    works = [w for c in inputs if (w := c.first_work()) is not None]
    if not works or min(works) >= upto:
        return None
    if sum(c.pending_rows() for c in inputs) <= rows_max:
        return upto
    seqs = np.concatenate([c.seqs_below(upto, rows_max) for c in inputs])
    if len(seqs) <= rows_max:
        return upto
    return min(upto, int(np.partition(seqs, rows_max - 1)[rows_max - 1]) + 1)


def is_blocked(inputs: Sequence[Cursor]) -> bool:
    """Return whether rows or control items wait although nothing could be taken."""
    return any(c.first_work() is not None for c in inputs)
