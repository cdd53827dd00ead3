"""Results as the payload or values of a Result message. One encoder a subscription."""

from __future__ import annotations

import decimal
from typing import Any

from millstream.engine.data.arrow import arrow_schema
from millstream.engine.data.schema import Schema
from millstream.protocol.batches import BatchEncoder, encode_schema
from millstream.server.results.outcome import spell
from millstream.server.results.results import Entry
from millstream.server.results.trains import ResultRows


class ResultEncoder:
    """Turns entries of a result log into members of Result; `format_` is arrow or msgpack."""

    def __init__(self, schema: Schema, format_: str) -> None:
        self.spelled = spell(schema)
        arrow = arrow_schema(schema)
        self._batches = BatchEncoder(arrow) if format_ == "arrow" else None
        self.schema_payload = encode_schema(arrow) if format_ == "arrow" else None

    def encode(self, entry: Entry) -> dict[str, Any]:
        """Return the members that carry the rows."""
        result: ResultRows | None = entry.batch
        if result is None:
            return {}
        if self._batches is not None:
            return {"payload": result.payload() or self._batches.encode(result.to_arrow())}
        columns = [[plain_value(v) for v in column.to_pylist()] for column in _as_plain(result.to_arrow())]
        return {"values": [list(row) for row in zip(*columns, strict=True)]}


def _as_plain(batch: Any) -> list[Any]:
    """Return the columns with times as integers (µs, days), which pyarrow would give as objects of less range."""
    plain = []
    for column in batch.columns:
        storage = _storage(column.type)
        plain.append(column if storage == column.type else column.cast(storage))
    return plain


def _storage(data_type: Any) -> Any:
    """Return the integer type behind a type of times, in lists too, else the type itself."""
    import pyarrow as pa

    if pa.types.is_list(data_type):
        return pa.list_(_storage(data_type.value_type))
    if pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(data_type) else data_type


def plain_value(value: Any) -> Any:
    """Return a value as rows without Arrow carry it: DECIMAL as text."""
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return [plain_value(v) for v in value]
    return value
