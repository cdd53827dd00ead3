"""Ranges evaluated part by part, and what they make asked for before it is made: the bounds of one call (K8).

Windows overlap, so a train's windows together may hold many times the rows that are kept, and texts and lists of them as many bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from millstream.engine.data import limits
from millstream.engine.data.allowance import claim, pause
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.language.recipes import AggregateCall

Int64Array = npt.NDArray[np.int64]
Evaluate = Callable[[AggregateCall, Column, Int64Array, Int64Array], Column]

GATHERING = frozenset(("array_agg", "string_agg"))  # what they answer is as large as the window
OBJECT_BYTES = 8  # a reference; the values themselves are there once


def in_parts(evaluate: Evaluate, call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """Return what `evaluate` makes of the ranges, in parts of some ms. TooMuchAtOnce or BoundReached where it is too much."""
    values = int((stops - starts).sum())
    if call.function in GATHERING:
        claim(_made_bytes(call, column, starts, stops, values), call.function.upper())
    if values <= limits.CALL_VALUES_MAX or len(starts) < 2:
        return evaluate(call, column, starts, stops)
    parts: list[Column] = []
    ends = np.cumsum(stops - starts)
    done = 0
    while done < len(starts):
        before = int(ends[done - 1]) if done else 0
        upto = max(done + 1, int(np.searchsorted(ends, before + limits.CALL_VALUES_MAX, side="right")))
        parts.append(evaluate(call, column, starts[done:upto], stops[done:upto]))
        done = upto
        pause()
    return concat_columns(parts)


def _made_bytes(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array, values: int) -> int:
    """Return how many bytes the texts or lists of these ranges are, and the objects they are made of."""
    if column.type.is_arrow and len(column):
        ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(_lengths(column))))
        made = int((ends[stops] - ends[starts]).sum())
    else:
        made = 8 * values
    separator = len(str(call.options[0])) if call.function == "string_agg" and call.options else 1
    return made + (separator + OBJECT_BYTES) * values


def _lengths(column: Column) -> Int64Array:
    """Return the bytes of each text, or of each list about."""
    offsets = column.values.buffers()[1]
    places = np.frombuffer(offsets, dtype=np.int32)[column.values.offset : column.values.offset + len(column) + 1]
    return np.diff(places).astype(np.int64)
