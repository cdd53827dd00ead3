"""What the tests of expressions share: small tables in storage form, and the evaluation of an expression over one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from millstream.engine.data.arrow import column_to_arrow
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.compile import compile_expression, compile_predicate
from millstream.engine.expressions.ir import ColumnRef, Expression
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.expressions.strings import as_list


def column_of(type_: DataType, values: Sequence[Any]) -> Column:
    """Return a column of values in storage form; the value under a NULL is an awkward one on purpose."""
    if type_.kind is Kind.TEXT:
        return Column(type_, pa.array(values, pa.string()))
    if type_.is_arrow:
        return Column(type_, pa.array(values, pa.list_(pa.int64())))
    under_null: Any = math.nan if type_.kind is Kind.DOUBLE else type_.kind is Kind.BOOLEAN and True
    array = np.empty(len(values), dtype=numpy_dtype(type_))
    array[:] = [under_null if v is None else v for v in values]
    valid = np.array([v is not None for v in values], dtype=np.bool_)
    return Column(type_, array, None if valid.all() else valid)


class Table:
    """Rows for kernels. `a`, `b` … are references to its columns."""

    def __init__(self, *columns: tuple[DataType, Sequence[Any]]) -> None:
        self.rows = len(columns[0][1]) if columns else 0
        self._columns = [column_of(t, v) for t, v in columns]
        self.refs = tuple(ColumnRef(t, i, "abcdefgh"[i]) for i, (t, _) in enumerate(columns))

    def column(self, position: int) -> Column:
        return self._columns[position]


class Outcome(NamedTuple):
    values: list[Any]
    errors: dict[int, list[str]]


def evaluate(expression: Expression, table: Table) -> Outcome:
    """Return the values as Python objects and the reasons recorded per row; checks what every kernel must hold to."""
    context = EvaluationContext(lambda: np.arange(table.rows, dtype=np.int64))
    column = compile_expression(expression)(table, context)
    assert column.type == expression.type
    assert len(column) == table.rows
    if not column.type.is_arrow:
        assert column.values.dtype == numpy_dtype(column.type)
    values = as_list(column)
    errors: dict[int, list[str]] = {}
    for positions, reason in context.errors:
        for p in positions.tolist():
            errors.setdefault(p, []).append(reason)
    if expression.type.kind is Kind.BOOLEAN:
        _check_predicates(expression, table, values)
    return Outcome(values, errors)


def _check_predicates(expression: Expression, table: Table, values: list[Any]) -> None:
    mask = compile_predicate(expression)(table, EvaluationContext(lambda: np.arange(table.rows, dtype=np.int64)))
    assert mask.dtype == np.bool_
    assert mask.tolist() == [v is True for v in values]


@pytest.fixture(scope="session")
def duck() -> Iterator[Callable[..., list[list[Any]]]]:
    """What DuckDB gives for scalar expressions over a table's columns a, b …: a list per expression, in the order of the rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")

        def answers(table: Table, *expressions: str) -> list[list[Any]]:
            arrays = [column_to_arrow(table.column(i)) for i in range(len(table.refs))]
            rows = pa.table([pa.array(range(table.rows)), *arrays], names=["row", *(r.name for r in table.refs)])
            connection.register("t", rows)
            found = connection.execute(f"SELECT {', '.join(expressions)} FROM t ORDER BY row").fetchall()
            connection.unregister("t")
            return [[row[i] for row in found] for i in range(len(expressions))]

        yield answers


@pytest.fixture(scope="session")
def table() -> type[Table]:
    return Table


@pytest.fixture(scope="session")
def run() -> Callable[[Expression, Table], Outcome]:
    return evaluate
