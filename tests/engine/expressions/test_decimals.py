"""DECIMAL arithmetic against Fractions: exact, rounded half away from zero, at most 38 digits."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, DOUBLE, INT, DataType, decimal
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import call
from millstream.engine.expressions.ir import Literal

TYPES = [decimal(5, 2), decimal(18, 6), decimal(19, 0), decimal(38, 10), decimal(4, 4), BIGINT, INT]
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def limit_of(type_: DataType) -> int:
    return {"INT": 2**31 - 1, "BIGINT": 2**63 - 1}.get(type_.kind.value, 10 ** (type_.precision or 1) - 1)


def values_of(type_: DataType) -> Any:
    limit = limit_of(type_)
    return st.one_of(st.none(), st.integers(-limit, limit), st.integers(-30, 30), st.sampled_from([limit, -limit, 0]))


def half_away(value: Fraction) -> int:
    whole = (2 * abs(value.numerator) + value.denominator) // (2 * value.denominator)
    return whole if value >= 0 else -whole


def remainder(a: Fraction, b: Fraction) -> Fraction:
    return a - b * int(a / b)


def expected(function: str, a: int | None, b: int | None, types: tuple[DataType, DataType], result: DataType) -> tuple[Any, list[str]]:
    if a is None or b is None:
        return None, []
    left, right = Fraction(a, 10 ** types[0].scale), Fraction(b, 10 ** types[1].scale)
    if function in "/%" and b == 0:
        return None, ["division by zero"]
    exact = remainder(left, right) if function == "%" else OPERATORS[function](left, right)
    scaled = half_away(exact * 10**result.scale)
    return (scaled, []) if abs(scaled) < 10**result.precision else (None, [f"{result} overflow"])


@pytest.mark.parametrize("left", TYPES, ids=str)
@pytest.mark.parametrize("right", TYPES, ids=str)
@given(data=st.data())
@settings(deadline=None, max_examples=3)
def test_decimal_arithmetic_is_exact_rounded_once_or_a_row_error(left: DataType, right: DataType, data: Any, table: Any, run: Any) -> None:
    if left.is_integer and right.is_integer:
        return
    pairs = data.draw(st.lists(st.tuples(values_of(left), values_of(right)), min_size=1, max_size=8))
    constant = data.draw(values_of(right).filter(lambda v: v is not None))
    rows = table((left, [a for a, _ in pairs]), (right, [b for _, b in pairs]))
    for function in (*OPERATORS, "%"):
        expression = call(function, rows.refs)
        wanted = [expected(function, a, b, (left, right), expression.type) for a, b in pairs]
        assert run(expression, rows) == ([w for w, _ in wanted], {i: e for i, (_, e) in enumerate(wanted) if e})
        by_constant = call(function, [rows.refs[0], Literal(right, constant)])
        right_type = by_constant.arguments[1].type
        wanted = [expected(function, a, constant, (left, right_type), by_constant.type) for a, _ in pairs]
        assert run(by_constant, rows) == ([w for w, _ in wanted], {i: e for i, (_, e) in enumerate(wanted) if e})


def test_result_types_follow_k13() -> None:
    a, b = decimal(10, 2), decimal(6, 4)
    from millstream.engine.expressions.functions import resolve

    assert resolve("+", (a, b)).result == decimal(13, 4)
    assert resolve("*", (a, b)).result == decimal(16, 6)
    assert resolve("/", (a, b)).result == decimal(20, 8)
    assert resolve("%", (a, b)).result == decimal(6, 4)
    assert resolve("+", (a, DOUBLE)).result == DOUBLE
    assert resolve("+", (a, INT)).result == decimal(13, 2)
    assert resolve("+", (decimal(38, 2), a)).result == decimal(38, 2)
    with pytest.raises(TypeProblem, match="passes 38"):
        resolve("*", (decimal(38, 20), decimal(38, 20)))


def test_overflow_of_38_digits_is_a_row_error(table: Any, run: Any) -> None:
    top = 10**38 - 1
    rows = table((decimal(38, 0), [top, 1, None]))
    outcome = run(call("+", [rows.refs[0], Literal(INT, 1)]), rows)
    assert outcome == ([None, 2, None], {0: ["DECIMAL(38, 0) overflow"]})


def test_narrow_decimals_with_room_to_spare_cannot_fail(table: Any) -> None:
    rows = table((decimal(10, 2), [1]), (decimal(38, 0), [1]))
    assert not may_fail(call("*", [rows.refs[0], rows.refs[0]]))
    assert not may_fail(call("+", [rows.refs[0], Literal(INT, 1)]))
    assert may_fail(call("+", [rows.refs[1], rows.refs[1]]))
    assert may_fail(call("/", rows.refs))
