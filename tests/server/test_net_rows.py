"""What stands after a change log."""

from __future__ import annotations

import pyarrow as pa
import pytest
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, DOUBLE
from millstream.server.once.held import net_rows

SCHEMA = Schema((Field("k", BIGINT), Field("v", DOUBLE)))


def changes(*rows: tuple[int | None, float | None, str]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    return pa.record_batch(
        [pa.array(columns[0], pa.int64()), pa.array(columns[1], pa.float64()), pa.array(columns[2])], names=["k", "v", "op"]
    )


def test_a_row_taken_back_and_given_again_stands_once_at_its_last_place() -> None:
    batches = [
        changes((1, 0.5, "+"), (None, None, "+"), (1, 0.5, "-")),
        changes((2, float("nan"), "+"), (1, 0.5, "+"), (2, float("nan"), "+")),
    ]
    (found,) = net_rows(SCHEMA, batches)
    assert [str(row["k"]) for row in found.to_pylist()] == ["None", "2", "1", "2"]


def test_a_log_whose_beginning_is_gone_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="older changes"):
        net_rows(SCHEMA, [changes((1, 0.5, "-"))])
    assert net_rows(SCHEMA, []) == []
