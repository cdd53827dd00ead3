"""Rows from the wire to columns: Arrow record batches, and rows as lists or maps of plain values.

Columns are matched by name, or by place for list rows. A column that is missing is NULL; one that the stream does not have is
refused (or ignored with `ignore_extra`). Rows that do not fit are refused alone, with a reason each; a batch whose column has a type
that can never fit is refused whole (TypeProblem), as no row of it could be right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.engine.column import Column, null_column
from millstream.engine.errors import TypeProblem, UnknownName
from millstream.engine.ingest.arrow_columns import arrow_column
from millstream.engine.ingest.checks import finish
from millstream.engine.ingest.outcome import Coerced, Reasons
from millstream.engine.ingest.row_values import value_column
from millstream.engine.schema import Field, Schema, StreamDefinition, TableDefinition

MISSING = object()  # a map row without the column; NULL, unless the column is NOT NULL
RAW_CHARACTERS_MAX = 4_096


def coerce_batch(batch: Any, definition: StreamDefinition | TableDefinition, *, ignore_extra: bool = False) -> Coerced:
    """Return the rows of an Arrow record batch or table as columns of the definition's schema."""
    names = batch.schema.names
    _check_names(names, definition, ignore_extra)
    reasons = Reasons(batch.num_rows)
    columns = [_batch_column(batch, names, field, definition, reasons) for field in definition.schema.fields]
    return finish(columns, batch.num_rows, definition, reasons, lambda i: _shown(batch.slice(i, 1).to_pylist()[0]))


def coerce_rows(
    rows: Sequence[Any], definition: StreamDefinition | TableDefinition, *, ignore_extra: bool = False, bare_instants: bool = True
) -> Coerced:
    """Return plain rows (lists in the schema's order, or maps by column name) as columns.

    `bare_instants`: an integer is taken as microseconds for TIMESTAMP and INTERVAL and as days for DATE (msgpack); without it those
    need text (JSON, where a bare integer has no unit, K12).
    """
    reasons = Reasons(len(rows))
    taken = [_row_values(row, definition.schema, ignore_extra, i, reasons) for i, row in enumerate(rows)]
    zone = definition.time.zone if isinstance(definition, StreamDefinition) else None
    columns = []
    for position, field in enumerate(definition.schema.fields):
        values = [row[position] for row in taken]
        columns.append(value_column(values, field, reasons, zone=zone, bare_instants=bare_instants))
    return finish(columns, len(rows), definition, reasons, lambda i: _shown(rows[i]))


def _check_names(names: Sequence[str], definition: StreamDefinition | TableDefinition, ignore_extra: bool) -> None:
    if len(set(names)) != len(names):
        twice = next(n for n in names if list(names).count(n) > 1)
        raise TypeProblem(f"column {twice} stands twice in the batch for {definition.name}")
    extra = [n for n in names if definition.schema.position(n) is None]
    if extra and not ignore_extra:
        known = ", ".join(definition.schema.names)
        raise UnknownName(f"{definition.name} has no column {extra[0]}", hint=f"its columns are {known}")


def _batch_column(
    batch: Any, names: Sequence[str], field: Field, definition: StreamDefinition | TableDefinition, reasons: Reasons
) -> Column:
    if field.name not in names:
        return null_column(field.type, batch.num_rows)
    time = definition.time if isinstance(definition, StreamDefinition) else None
    return arrow_column(batch.column(names.index(field.name)), field, reasons, time)


def _row_values(row: Any, schema: Schema, ignore_extra: bool, index: int, reasons: Reasons) -> Sequence[Any]:
    """Return a row's values in the schema's order; of a row of the wrong shape all NULL, with the reason noted."""
    if isinstance(row, Mapping):
        values = [row.get(name) for name in schema.names]
        if len(row) > len(values) or any(key not in schema.names for key in row):
            extra = next((key for key in row if key not in schema.names), None)
            if extra is not None and not ignore_extra:
                reasons.add(index, f"there is no column {extra}")
        return values
    if isinstance(row, Sequence) and not isinstance(row, str | bytes):
        if len(row) == len(schema):
            return row
        reasons.add(index, f"{len(row)} values for {len(schema)} columns")
    else:
        reasons.add(index, f"a row is a list or a map, not {type(row).__name__}")
    return [None] * len(schema)


def _shown(row: Any) -> str:
    text = json.dumps(row, ensure_ascii=False, default=_spelled)
    return text if len(text) <= RAW_CHARACTERS_MAX else text[:RAW_CHARACTERS_MAX] + "…"


def _spelled(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
