"""Reading the receipt of a result: what part of its input was seen, where the query's class may be shed.

    for batch in ms.subscribe("totals"):
        receipt = receipt_of(batch)
        if receipt is not None and receipt.share_seen < 1:
            print(receipt.rows())        # rows_seen, rows_shed and share_seen of each row of the batch

The server states it in the metadata of the result, never in a column (docs/overload.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_PREFIX = "millstream."
TOKEN_COLUMN = "resume_token"
COLUMNS = ("rows_seen", "rows_shed", "share_seen")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a batch of results saw of its input.

    `share_seen` (0 to 1) and `shed_rows` are of the batch as a whole: of the windows it answers, or of the rows that came since the last
    batch. `runs` are (rows of the batch, input rows seen, input rows shed, share seen) in order, empty where nothing was shed. `of_batch`:
    the rows belong to no window that has closed (selections, joins, change logs), and only the batch's share is known.
    `rounded`: so much had to be shed at once that the borders of these windows are only nearly exact.
    """

    batch_rows: int
    share_seen: float
    shed_rows: int = 0
    runs: tuple[tuple[int, int, int, float], ...] = ()
    rounded: bool = False
    of_batch: bool = False

    def rows(self) -> pa.RecordBatch:
        """Return a row for each row of the batch: rows_seen, rows_shed and share_seen, NULL where they are not known by row."""
        import pyarrow as pa

        nothing_shed = (self.batch_rows, None, 0, self.share_seen)
        runs = ((self.batch_rows, None, None, None),) if self.of_batch else self.runs or (nothing_shed,)
        columns = [[run[place] for run in runs for _ in range(run[0])] for place in (1, 2, 3)]
        types = (pa.int64(), pa.int64(), pa.float64())
        return pa.record_batch([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=list(COLUMNS))


def receipt_of(batch: pa.RecordBatch) -> Receipt | None:
    """Return the receipt of a batch of results; None where nothing can be shed, so that it saw all there was."""
    metadata = {k.decode(): v.decode() for k, v in (batch.schema.metadata or {}).items()}
    found = {k.removeprefix(METADATA_PREFIX): v for k, v in metadata.items() if k.startswith(METADATA_PREFIX)}
    return receipt_from(found, batch.num_rows)


def receipt_from(meta: Mapping[str, Any], rows: int) -> Receipt | None:
    """Return the receipt of `rows` results from what was said of them (`subscription.meta`, or a batch's metadata)."""
    share = meta.get("share_seen")
    if share is None:
        return None
    runs = meta.get("receipts", [])
    parsed = json.loads(runs) if isinstance(runs, str) else runs
    told = tuple((int(a), int(b), int(c), float(d)) for a, b, c, d in parsed)
    rounded, of_batch = (str(meta.get(name, False)) == "True" for name in ("share_is_rounded", "share_is_of_batch"))
    return Receipt(rows, float(share), int(meta.get("shed_rows", 0)), told, rounded, of_batch)


def with_receipt(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the three columns of its receipt appended; all was seen where there is none."""
    import pyarrow as pa

    receipt = receipt_of(batch) or Receipt(batch.num_rows, 1.0)
    told = receipt.rows()
    names = [*batch.schema.names, *(name if name not in batch.schema.names else f"receipt_{name}" for name in COLUMNS)]
    return pa.record_batch([*batch.columns, *told.columns], names=names)


def with_token(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with a column `resume_token`: the batch's token in its last row, as it is good only after all of them."""
    import pyarrow as pa

    token = (batch.schema.metadata or {}).get(f"{METADATA_PREFIX}resume_token".encode())
    tokens = [None] * (batch.num_rows - 1) + [None if token is None else token.decode()] if batch.num_rows else []
    name = TOKEN_COLUMN if TOKEN_COLUMN not in batch.schema.names else f"result_{TOKEN_COLUMN}"
    metadata = batch.schema.metadata
    return batch.append_column(pa.field(name, pa.string()), pa.array(tokens, pa.string())).replace_schema_metadata(metadata)
