"""The rows that stand after a change log: what was given with '+' and not taken back with '-', in order of first standing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, column_from_arrow, column_to_arrow
from millstream.engine.data.column import concat_columns
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema


def net_rows(schema: Schema, batches: list[Any]) -> list[Any]:
    """Return the standing rows; the batches have `schema` and, last, the kind of each change.

    InvalidDefinition when a '-' takes back what was never given: the beginning of the log is not there.
    """
    if not batches:
        return []
    width = len(schema)
    columns = [concat_columns([column_from_arrow(b.column(i), f.type) for b in batches]) for i, f in enumerate(schema.fields)]
    plus = np.concatenate([np.asarray([op == "+" for op in b.column(width).to_pylist()], dtype=np.bool_) for b in batches])
    ids = key_encoder([f.type for f in schema.fields]).encode(columns)
    order = np.argsort(ids, kind="stable")
    count = np.bincount(ids, weights=np.where(plus, 1, -1)).astype(np.int64)
    if (count < 0).any():
        raise InvalidDefinition("older changes are kept no longer, so the rows that stand are not known")
    # Of each row the last `count` additions stand: an earlier one was taken back before.
    kept = []
    for position in reversed(order.tolist()):
        if plus[position] and count[ids[position]]:
            count[ids[position]] -= 1
            kept.append(position)
    index = np.sort(np.asarray(kept, dtype=np.int64))
    return [pa.record_batch([column_to_arrow(c.take(index)) for c in columns], schema=arrow_schema(schema))]
