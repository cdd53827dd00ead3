"""ROUND and its kin, ABS, SIGN, and the functions that compute in DOUBLE."""

from __future__ import annotations

import decimal as python_decimal
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.types import BIGINT, DOUBLE, INT, INTERVAL, decimal
from millstream.engine.expressions.build import call
from millstream.engine.expressions.ir import Literal

MIN, MAX = -(2**63), 2**63 - 1
MODES = {
    "round": python_decimal.ROUND_HALF_UP,
    "trunc": python_decimal.ROUND_DOWN,
    "floor": python_decimal.ROUND_FLOOR,
    "ceil": python_decimal.ROUND_CEILING,
}
CONTEXT = python_decimal.Context(prec=100)


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("type_", [decimal(9, 3), decimal(18, 1), decimal(38, 20), decimal(5, 0)], ids=str)
@given(data=st.data())
@settings(deadline=None, max_examples=8)
def test_rounding_of_decimals_agrees_with_pythons(mode: str, type_: Any, data: Any, table: Any, run: Any) -> None:
    limit = 10**type_.precision - 1
    values = data.draw(st.lists(st.one_of(st.none(), st.integers(-limit, limit), st.integers(-2000, 2000)), min_size=1, max_size=8))
    rows = table((type_, values))
    choices: list[int | None] = [None, 0, 1, 2, -1, -3, 25] if mode in ("round", "trunc") else [None]
    for digits in choices:
        expression = call(mode, [rows.refs[0], *([] if digits is None else [Literal(INT, digits)])])
        step = python_decimal.Decimal(1).scaleb(-(digits or 0))
        wanted = []
        for v in values:
            if v is None:
                wanted.append(None)
                continue
            exact = python_decimal.Decimal(v).scaleb(-type_.scale, CONTEXT)
            rounded = exact if -step.as_tuple().exponent > type_.scale else exact.quantize(step, MODES[mode], CONTEXT)
            scaled = int(rounded.scaleb(expression.type.scale, CONTEXT))
            wanted.append(scaled if abs(scaled) < 10**expression.type.precision else None)
        assert run(expression, rows).values == wanted


def test_rounding_goes_half_away_from_zero_for_doubles_too(table: Any, run: Any) -> None:
    rows = table((DOUBLE, [0.5, 1.5, -0.5, -2.5, 0.49999999999999994, 2.0**52 + 1, math.nan, -math.inf, None]))
    got = run(call("round", rows.refs), rows).values
    assert got[:6] == [1.0, 2.0, -1.0, -3.0, 0.0, 2.0**52 + 1]
    assert math.isnan(got[6])
    assert got[7:] == [-math.inf, None]


@given(values=st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=1, max_size=10))
@settings(deadline=None, max_examples=20)
def test_double_functions_agree_with_duckdb(values: list[Any], table: Any, run: Any, duck: Any) -> None:
    rows = table((DOUBLE, values))
    for name, spelled in {
        "floor": "floor(a)", "ceil": "ceil(a)", "abs": "abs(a)", "cbrt": "cbrt(a)", "sin": "sin(a)", "cos": "cos(a)", "atan": "atan(a)",
        "degrees": "degrees(a)", "radians": "radians(a)", "trunc": "trunc(a)", "round": "round(a)", "sign": "sign(a)::DOUBLE",
        "isnan": "isnan(a)", "isfinite": "isfinite(a)",
    }.items():  # fmt: skip
        got, wanted = run(call(name, rows.refs), rows).values, duck(rows, spelled)[0]
        assert [v is None for v in got] == [v is None for v in wanted]
        known = [(g, w) for g, w in zip(got, wanted, strict=True) if w is not None]
        assert [g for g, _ in known] == pytest.approx([w for _, w in known], rel=1e-14, abs=1e-300), name


def test_rounding_of_doubles_to_digits(table: Any, run: Any) -> None:
    rows = table((DOUBLE, [2.675, -1234.5, 1e300, math.inf]))
    x = rows.refs[0]
    assert run(call("round", [x, Literal(INT, 2)]), rows).values == [2.68, -1234.5, 1e300, math.inf]
    assert run(call("round", [x, Literal(INT, -2)]), rows).values == [0.0, -1200.0, 1e300, math.inf]
    assert run(call("trunc", [x, Literal(INT, 1)]), rows).values == [2.6, -1234.5, 1e300, math.inf]


def test_rounding_of_integers(table: Any, run: Any) -> None:
    rows = table((BIGINT, [15, -15, 14, MAX, None]), (INT, [-1, 0, -1, -1, 1]))
    x, digits = rows.refs
    assert run(call("round", [x]), rows).values == [15, -15, 14, MAX, None]
    assert run(call("round", [x, Literal(INT, -1)]), rows) == ([20, -20, 10, None, None], {3: ["BIGINT overflow"]})
    assert run(call("round", [x, digits]), rows) == ([20, -15, 10, None, None], {3: ["BIGINT overflow"]})
    assert run(call("trunc", [x, Literal(INT, -1)]), rows).values == [10, -10, 10, MAX - 7, None]


def test_absolute_value_and_sign(table: Any, run: Any) -> None:
    rows = table((BIGINT, [MIN, -5, None, 0]), (INTERVAL, [-1, 1, 0, None]), (decimal(20, 1), [-15, 15, 0, None]))
    x, i, d = rows.refs
    assert run(call("abs", [x]), rows) == ([None, 5, None, 0], {0: ["BIGINT overflow"]})
    assert run(call("abs", [i]), rows).values == [1, 1, 0, None]
    assert run(call("abs", [d]), rows).values == [15, 15, 0, None]
    assert run(call("sign", [x]), rows).values == [-1, -1, None, 0]
    assert run(call("sign", [d]), rows).values == [-1, 1, 0, None]


@pytest.mark.parametrize(
    ("name", "arguments", "wanted", "reason"),
    [
        ("sqrt", [[4.0], [-1.0], [None]], [2.0, None, None], "square root of a negative number"),
        ("ln", [[1.0], [0.0], [None]], [0.0, None, None], "logarithm of a number that is not positive"),
        ("log10", [[1000.0], [-1.0], [None]], [3.0, None, None], "logarithm of a number that is not positive"),
        ("exp", [[0.0], [1000.0], [None]], [1.0, None, None], "DOUBLE overflow"),
        ("power", [[2.0, 10.0], [0.0, -1.0], [None, 1.0]], [1024.0, None, None], "zero to a negative power"),
        ("power", [[2.0, 0.5], [-8.0, 0.5], [1.0, None]], [math.sqrt(2), None, None], "negative number to a broken power"),
        ("asin", [[0.0], [2.0], [None]], [0.0, None, None], "arc sine outside -1 to 1"),
    ],
)
def test_what_is_not_defined_is_a_row_error(name: str, arguments: Any, wanted: Any, reason: str, table: Any, run: Any) -> None:
    rows = table(*((DOUBLE, [row[i] for row in arguments]) for i in range(len(arguments[0]))))
    assert run(call(name, rows.refs), rows) == (wanted, {1: [reason]})
