"""INSERT INTO name VALUES (…), …: constant expressions to columns of the stream's or table's schema, all rows or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.errors import EngineError, TypeProblem, UnknownName
from millstream.engine.data.nearest import near_or_listed
from millstream.engine.data.schema import Field, StreamDefinition, TableDefinition, TimeRule
from millstream.engine.data.types import TEXT, DataType, Kind
from millstream.engine.expressions import build
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import Expression, Literal
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.expressions.values import format_value, parse_value
from millstream.engine.ingest.checks import Reasons, finish, unit_needed
from millstream.engine.language.statements import InsertValues
from millstream.engine.plan.expression_binder import ExpressionBinder
from millstream.engine.plan.rules.constant_folding import ConstantRow, fold
from millstream.engine.plan.scope import Scope, located
from sqlglot import exp

_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DECIMAL)
_READ_FROM_TEXT = (Kind.TIMESTAMP, Kind.DATE, Kind.TIME, Kind.INTERVAL, Kind.DECIMAL, Kind.BYTES)


def bind_rows(statement: InsertValues, definition: StreamDefinition | TableDefinition) -> list[Column]:
    """Return the rows as columns in the schema's order; a column that is not named is NULL.

    TypeProblem, UnknownName or a refusal of ingest (NOT NULL, event time), each naming the row, refuses the whole statement.
    """
    fields = definition.schema.fields
    places = _places(statement, definition)
    rule = definition.time if isinstance(definition, StreamDefinition) else TimeRule()
    rows = [_row(row, number, places, fields, rule) for number, row in enumerate(statement.rows, start=1)]
    columns = [_column(f.type, [row[i] for row in rows]) for i, f in enumerate(fields)]
    checked = finish(columns, len(rows), definition, Reasons(len(rows)), lambda i: str(rows[i]))
    if checked.rejected:
        first = checked.rejected[0]
        place = statement.name.place
        raise TypeProblem(f"row {first.index + 1}: {first.reason}", line=place.line, column=place.column, token=statement.name.text)
    return list(checked.columns)


def _places(statement: InsertValues, definition: StreamDefinition | TableDefinition) -> list[int]:
    """Return the position in the schema of each value of a row."""
    if not statement.columns:
        return list(range(len(definition.schema)))
    places: list[int] = []
    for name in statement.columns:
        position = definition.schema.position(name.text)
        at = {"line": name.place.line, "column": name.place.column, "token": name.text}
        if position is None:
            hint = near_or_listed(name.text, definition.schema.names, "columns")
            raise UnknownName(f"{definition.name} has no column {name.text}", hint=hint, **at)  # type: ignore[arg-type]
        if position in places:
            raise TypeProblem(f"column {name.text} is named twice", **at)  # type: ignore[arg-type]
        places.append(position)
    return places


def _row(row: Sequence[exp.Expr], number: int, places: list[int], fields: Sequence[Field], rule: TimeRule) -> list[Any]:
    if len(row) != len(places):
        raise located(TypeProblem(f"row {number} has {len(row)} values for {len(places)} columns"), row[0])
    values: list[Any] = [None] * len(fields)
    for node, place in zip(row, places, strict=True):
        try:
            values[place] = _value(node, fields[place].type, rule)
        except EngineError as problem:
            problem.message = f"row {number}, column {fields[place].name}: {problem.message}"
            raise located(problem, node) from None
    return values


def _value(node: exp.Expr, type_: DataType, rule: TimeRule) -> Any:
    bound = fold(ExpressionBinder(Scope(())).bind(node))
    if isinstance(bound, Literal) and bound.type == TEXT and bound.value is not None and type_.kind in _READ_FROM_TEXT:
        try:
            return parse_value(bound.value, type_, rule.zone, exact=type_.kind is Kind.TIMESTAMP and not rule.unit_round)
        except ValueError as problem:
            raise TypeProblem(str(problem)) from None
    if type_.kind is Kind.TIMESTAMP and isinstance(bound, Literal) and bound.value is not None and bound.type.kind in _NUMBERS:
        raise TypeProblem(unit_needed(format_value(bound.value, bound.type)))
    if not type_.is_ordered:
        return _nested_value(bound, type_)
    if bound.type == TEXT and type_ != TEXT:
        raise TypeProblem(f"a TEXT is not a {type_}", hint="leave the quotes out, or CAST it")
    value = fold(build.cast(bound, type_))
    if not isinstance(value, Literal):
        raise TypeProblem(f"the value cannot be stored as {type_}")
    return value.value


def _nested_value(bound: Expression, type_: DataType) -> Any:
    """Return the column of one row that holds a nested value or JSON; in a text it stands as JSON."""
    context = EvaluationContext()
    column = compile_expression(build.cast(bound, type_))(ConstantRow(), context)
    if context.errors:
        raise TypeProblem(context.errors[0][1], hint=f"write a value that fits {type_}, or its JSON in quotes")
    return column.values


def _column(type_: DataType, values: list[Any]) -> Column:
    if not type_.is_ordered:
        return Column(type_, pa.concat_arrays([pa.nulls(1, arrow_type(type_)) if v is None else v for v in values]))
    if type_.is_arrow:
        return Column(type_, pa.array(values, arrow_type(type_)))
    valid = np.array([v is not None for v in values], dtype=np.bool_)
    stored = np.array([0 if v is None else v for v in values], dtype=numpy_dtype(type_))
    return Column(type_, stored, None if valid.all() else valid)
