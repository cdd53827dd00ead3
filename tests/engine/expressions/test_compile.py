"""Building and compiling as a whole: constants folded and adapted, no warnings, subsets, speed of the plain path."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from millstream.engine.data.column import Column
from millstream.engine.data.errors import TypeProblem, Unsupported
from millstream.engine.data.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, TEXT, TIMESTAMP, decimal
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import call, case, cast, convert_literal, integer_literal
from millstream.engine.expressions.compile import compile_expression, compile_predicate, fold
from millstream.engine.expressions.ir import Call, ColumnRef, Literal
from millstream.engine.expressions.kernel import EvaluationContext


def test_constants_are_folded_and_failing_ones_fail_at_each_row(table: Any, run: Any) -> None:
    two = call("+", [Literal(INT, 1), Literal(INT, 1)])
    assert fold(two) == Literal(BIGINT, 2)
    assert fold(call("upper", [Literal(TEXT, "é")])) == Literal(TEXT, "É")
    assert fold(call("is_null", [Literal(NULL, None)])) == Literal(BOOLEAN, True)
    broken = call("/", [Literal(INT, 1), Literal(INT, 0)])
    assert isinstance(fold(broken), Call)
    rows = table((INT, [1, 2]))
    assert run(call("+", [rows.refs[0], broken]), rows).errors == {0: ["division by zero"], 1: ["division by zero"]}
    assert isinstance(fold(call("current_watermark", [])), Call)


def test_constants_take_the_type_beside_them() -> None:
    price, money, ts = ColumnRef(DOUBLE, 0), ColumnRef(decimal(10, 2), 1), ColumnRef(TIMESTAMP, 2)
    assert call("*", [price, Literal(decimal(2, 1), 11)]) == Call(DOUBLE, "*", (price, Literal(DOUBLE, 1.1)))
    assert call("+", [money, Literal(INT, 5)]).type == decimal(11, 2)
    assert call(">", [ts, Literal(TEXT, "1970-01-02")]) == Call(BOOLEAN, ">", (ts, Literal(TIMESTAMP, 86_400_000_000)))
    assert call("-", [ts, Literal(TEXT, "1 second")]).type == TIMESTAMP
    assert integer_literal(2**31) == Literal(BIGINT, 2**31)
    assert integer_literal(2**64).type == decimal(20, 0)
    with pytest.raises(TypeProblem, match="38 digits"):
        integer_literal(10**40)


def test_literals_are_converted_only_without_loss() -> None:
    assert convert_literal(Literal(BIGINT, 2**40), INT) is None
    assert convert_literal(Literal(decimal(3, 2), 150), decimal(3, 1)) is None
    assert convert_literal(Literal(decimal(3, 2), 150), DOUBLE) == Literal(DOUBLE, 1.5)
    assert convert_literal(Literal(DATE, 1), TIMESTAMP) == Literal(TIMESTAMP, 86_400_000_000)
    assert cast(Literal(INT, 5), INT) == Literal(INT, 5)


def test_no_warning_escapes_whatever_the_floats(table: Any) -> None:
    extremes = [math.nan, math.inf, -math.inf, 0.0, 1e308, -1e308, 5e-324, None]
    rows = table((DOUBLE, extremes), (BIGINT, [-(2**63), 0, -1, 1, 2**63 - 1, 5, 7, None]))
    x, n = rows.refs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("sqrt", "ln", "exp", "sin", "acos", "round", "floor", "neg", "abs", "isnan"):
            compile_expression(call(name, [x]))(rows, EvaluationContext())
        for name in ("+", "-", "*", "/", "%", "power", "atan2", "=", "<"):
            compile_expression(call(name, [x, x]))(rows, EvaluationContext())
            compile_expression(call(name, [n, n]))(rows, EvaluationContext())
            compile_expression(call(name, [x, n]))(rows, EvaluationContext())
        compile_predicate(call(">", [call("*", [x, x]), Literal(INT, 1)]))(rows, EvaluationContext())
        for target in (INT, BIGINT, decimal(10, 2)):
            compile_expression(cast(x, target))(rows, EvaluationContext())


def test_no_rows_at_all_are_fine(table: Any, run: Any) -> None:
    rows = table((BIGINT, []), (DOUBLE, []), (TEXT, []), (decimal(30, 2), []), (TIMESTAMP, []))
    n, x, s, d, t = rows.refs
    for expression in (
        call("+", [n, n]), call("/", [n, n]), call("%", [x, x]), call("*", [d, d]), call("/", [d, d]), call("upper", [s]),
        call("like", [s, s]), call("in", [n, *(Literal(INT, i) for i in range(6))]), call("between", [n, n, n]), call("concat", [s, n]),
        call("split_part", [s, Literal(TEXT, ","), Literal(INT, 1)]), call("strpos", [s, Literal(TEXT, "a")]), call("greatest", [n, n]),
        call("coalesce", [s, s]), call("extract", [t], ("year",)), call("date_trunc", [Literal(TEXT, "day"), t]), cast(s, BIGINT),
        cast(x, TEXT), cast(d, TEXT), cast(t, TEXT), case([(call("is_null", [n]), s)], s), call("round", [d, n]), cast(n, decimal(30, 3)),
    ):  # fmt: skip
        assert run(expression, rows).values == []


def test_may_fail_is_true_wherever_an_error_was_recorded(table: Any, run: Any) -> None:
    rows = table((BIGINT, [2**63 - 1, 0]), (INT, [0, 5]), (DOUBLE, [-1.0, 0.0]), (TEXT, ["x", "1"]), (TIMESTAMP, [2**63 - 1, 0]))
    n, i, x, s, t = rows.refs
    failing = [
        call("+", [n, i]), call("*", [n, n]), call("/", [n, i]), call("sqrt", [x]), cast(s, INT), cast(n, INT),
        cast(s, TIMESTAMP), call("extract", [t], ("epoch",)), call("ln", [x]), call("chr", [i]), call("to_timestamp", [n]),
        call("round", [n, Literal(INT, -1)]), call("repeat", [s, n]), case([(call("=", [i, Literal(INT, 0)]), call("/", [i, i]))], n),
    ]  # fmt: skip
    for expression in failing:
        outcome = run(expression, rows)
        assert may_fail(expression) or not outcome.errors, expression
    for expression in (
        call("+", [i, i]),
        call("<", [n, i]),
        call("upper", [s]),
        cast(i, BIGINT),
        call("*", [x, x]),
        cast(s, INT, quiet=True),
    ):
        assert not may_fail(expression)
        assert run(expression, rows).errors == {}


def test_unknown_functions_are_refused_when_compiled() -> None:
    with pytest.raises(Unsupported, match="FROBNICATE"):
        compile_expression(Call(INT, "frobnicate", (ColumnRef(INT, 0),)))


def test_columns_keep_their_bounds_through_selection_and_arithmetic() -> None:
    column = Column(BIGINT, np.array([5, -7, 3], dtype=np.int64))
    assert column.bounds() == (-7, 5)
    assert column.take(np.array([0])).bounds() == (-7, 5)
    assert column.filter(np.array([True, False, False])).bounds() == (-7, 5)
    assert Column(BIGINT, np.empty(0, dtype=np.int64)).bounds() == (0, 0)


class _Repeated:
    def __init__(self, columns: list[Column], rows: int) -> None:
        self._columns, self.rows = columns, rows

    def column(self, position: int) -> Column:
        return self._columns[position]


def test_plain_kernels_make_no_array_besides_their_result() -> None:
    """A comparison with a constant and a product with one must not materialise the constant or copy the input."""
    import tracemalloc

    rows = 1_000_000
    data = _Repeated([Column(DOUBLE, np.ones(rows)), Column(INT, np.ones(rows, dtype=np.int32))], rows)
    x, n = ColumnRef(DOUBLE, 0), ColumnRef(INT, 1)
    for kernel, bytes_per_row in (
        (compile_predicate(call("<=", [x, Literal(INT, 80)])), 1),
        (compile_predicate(call(">", [x, Literal(INT, 20)])), 1),
        (compile_predicate(call("<=", [n, Literal(INT, 80)])), 1),
        (compile_expression(call("*", [x, Literal(decimal(2, 1), 11)])), 8),
    ):
        tracemalloc.start()
        kernel(data, EvaluationContext())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < rows * bytes_per_row + 100_000
