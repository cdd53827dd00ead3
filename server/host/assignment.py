"""Results of INSERT INTO … SELECT as rows of the target: columns by name or place, numbers of another kind converted by value.

A number that the target's type cannot hold refuses its row, as a bad row at ingest would; text and numbers never turn into one another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.errors import InvalidDefinition, TypeProblem
from millstream.engine.data.schema import Schema, StreamDefinition, TableDefinition
from millstream.engine.data.train import Train
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import Cast, ColumnRef
from millstream.engine.expressions.kernel import EvaluationContext, Kernel
from millstream.engine.ingest.checks import Reasons
from millstream.engine.language.names import did_you_mean


class Assignment:
    """How a SELECT's columns become a stream's. TypeProblem or InvalidDefinition when they cannot."""

    def __init__(self, target: StreamDefinition | TableDefinition, names: Sequence[str], given: Schema) -> None:
        wanted = list(names) or list(target.schema.names)
        if len(given) != len(wanted):
            raise TypeProblem(f"{target.name} takes {len(wanted)} columns here and the SELECT gives {len(given)}")
        self._schema = target.schema
        self._sources: dict[int, tuple[int, Kernel | None]] = {}
        for place, (name, field) in enumerate(zip(wanted, given.fields, strict=True)):
            position = target.schema.position(name)
            if position is None:
                raise TypeProblem(f"stream {target.name} has no column {name}", hint=did_you_mean(name, target.schema.names), token=name)
            if position in self._sources:
                raise TypeProblem(f"column {name} is named twice", token=name)
            self._sources[position] = (place, _conversion(target.name, name, place, field.type, target.schema.fields[position].type))
        for position, field in enumerate(target.schema.fields):
            if not field.nullable and position not in self._sources:
                raise InvalidDefinition(f"column {field.name} of {target.name} is NOT NULL and gets no value")

    def columns(self, train: Train, reasons: Reasons) -> list[Column]:
        """Return the target's columns for a train of results; rows that do not fit are noted in `reasons`."""
        return [self._column(position, train, reasons) for position in range(len(self._schema))]

    def _column(self, position: int, train: Train, reasons: Reasons) -> Column:
        field = self._schema.fields[position]
        source = self._sources.get(position)
        if source is None:
            return null_column(field.type, train.rows)
        place, kernel = source
        if kernel is None:
            return train.column(place)
        context = EvaluationContext()
        column = kernel(train, context)
        for rows, reason in context.errors:
            for row in np.asarray(rows).tolist():
                reasons.add(row, f"column {field.name}: {reason}")
        return column


def _conversion(stream: str, name: str, place: int, given: DataType, wanted: DataType) -> Kernel | None:
    if given == wanted:
        return None
    if given.kind is not Kind.NULL and not (given.is_numeric and wanted.is_numeric):
        raise TypeProblem(f"column {name} of {stream} is {wanted} and the SELECT gives {given}", hint="add a CAST", token=name)
    return compile_expression(Cast(wanted, ColumnRef(given, place, name)))
