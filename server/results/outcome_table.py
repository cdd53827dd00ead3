"""The table of an outcome (SHOW, DESCRIBE, EXPLAIN) as a result that can be rendered like any other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INTERVAL, TEXT, TIMESTAMP, DataType
from millstream.server.results.outcome import Outcome
from millstream.server.results.render import NamedResult

_TYPES: dict[str, DataType] = {str(t): t for t in (BIGINT, BOOLEAN, DOUBLE, INTERVAL, TEXT, TIMESTAMP)}


def outcome_result(name: str, outcome: Outcome) -> NamedResult:
    """Return the outcome's table under a name."""
    schema = Schema(tuple(Field(column, _TYPES[kind], nullable) for column, kind, nullable in outcome.columns))
    arrays = [_array([row[i] for row in outcome.values], f.type) for i, f in enumerate(schema.fields)]
    return NamedResult(name, schema, [pa.record_batch(arrays, names=list(schema.names))], outcome.info.get("plan"))


def _array(values: list[Any], type_: DataType) -> Any:
    arrow = arrow_type(type_)
    if type_ in (TIMESTAMP, INTERVAL):
        return pa.array(values, pa.int64()).view(arrow)
    return pa.array(values, arrow)
