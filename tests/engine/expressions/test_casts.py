"""CAST and TRY_CAST between every pair of types that has one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, NULL, TEXT, TIMESTAMP, decimal, list_of
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import cast
from millstream.engine.expressions.ir import Literal

MIN, MAX = -(2**63), 2**63 - 1
DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("source", "target", "values", "wanted"),
    [
        (INT, BIGINT, [1, -(2**31), None], [1, -(2**31), None]),
        (BIGINT, INT, [1, 2**31, -(2**31), None], [1, "bad", -(2**31), None]),
        (BIGINT, DOUBLE, [2**53 + 1, None], [float(2**53 + 1), None]),
        (BIGINT, decimal(20, 2), [MAX, MIN, None], ["bad", "bad", None]),
        (BIGINT, decimal(22, 2), [MAX, MIN, None], [MAX * 100, MIN * 100, None]),
        (INT, decimal(4, 2), [99, 100, None], [9900, "bad", None]),
        (
            DOUBLE,
            BIGINT,
            [0.5, 1.5, 2.5, -0.5, math.nan, math.inf, 2.0**63, -(2.0**63), None],
            [0, 2, 2, 0, "bad", "bad", "bad", MIN, None],
        ),
        (DOUBLE, INT, [2147483647.4, 2147483647.5, None], [2147483647, "bad", None]),
        (DOUBLE, decimal(10, 2), [2.675, -2.675, 0.1, 1e8, math.nan, None], [268, -268, 10, "bad", "bad", None]),
        (decimal(10, 2), BIGINT, [150, 149, -150, None], [2, 1, -2, None]),
        (decimal(38, 0), BIGINT, [MAX, MAX + 1, None], [MAX, "bad", None]),
        (decimal(10, 2), DOUBLE, [150, 1, None], [1.5, 0.01, None]),
        (decimal(38, 10), DOUBLE, [12345678901234567890123, None], [1234567890123.456789, None]),
        (decimal(10, 4), decimal(10, 2), [12345, 12350, -12350, None], [123, 124, -124, None]),
        (decimal(10, 2), decimal(10, 4), [10**8, 10**10 - 1, None], ["bad", "bad", None]),
        (decimal(10, 2), decimal(30, 4), [10**8, None], [10**10, None]),
        (BOOLEAN, INT, [True, False, None], [1, 0, None]),
        (INT, BOOLEAN, [2, 0, None], [True, False, None]),
        (TIMESTAMP, DATE, [0, -1, DAY, None], [0, -1, 1, None]),
        (DATE, TIMESTAMP, [1, -1, 2**31 - 1, None], [DAY, -DAY, "bad", None]),
        (TEXT, INT, ["1", " -7 ", "x", "2147483648", "1.0", None], [1, -7, "bad", "bad", "bad", None]),
        (TEXT, BIGINT, [str(MAX), str(MIN), str(MAX + 1), "١", "1_0", None], [MAX, MIN, "bad", "bad", "bad", None]),
        (
            TEXT,
            DOUBLE,
            ["1e3", "-Infinity", ".5", "5.", "1e400", "0x1p3", "", None],
            [1000.0, -math.inf, 0.5, 5.0, "bad", "bad", "bad", None],
        ),
        (TEXT, decimal(5, 2), ["1.005", "-1.005", "1e2", "1000", "abc", None], [101, -101, 10000, "bad", "bad", None]),
        (TEXT, BOOLEAN, ["true", "F", "yes", "0", "maybe", None], [True, False, True, False, "bad", None]),
        (TEXT, DATE, ["1970-01-02", "1969-12-31", "2023-02-29", "1970-01-02 00:00", None], [1, -1, "bad", "bad", None]),
        (TEXT, TIMESTAMP, ["1970-01-01T00:00:01Z", "1970-01-02", "then", None], [1_000_000, DAY, "bad", None]),
        (TEXT, INTERVAL, ["10 seconds", "x", None], [10_000_000, "bad", None]),
        (INT, TEXT, [-5, None], ["-5", None]),
        (DOUBLE, TEXT, [1.0, math.nan, -math.inf, 1e300, None], ["1.0", "NaN", "-Infinity", "1e+300", None]),
        (decimal(30, 2), TEXT, [5, -12345, None], ["0.05", "-123.45", None]),
        (BOOLEAN, TEXT, [True, False, None], ["true", "false", None]),
        (TIMESTAMP, TEXT, [0, 1_500, None], ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.001500Z", None]),
        (DATE, TEXT, [-1, None], ["1969-12-31", None]),
        (INTERVAL, TEXT, [-1_500_000, None], ["-00:00:01.500", None]),
    ],
    ids=lambda v: str(v) if not isinstance(v, list) else "",
)
def test_casts(source: Any, target: Any, values: list[Any], wanted: list[Any], table: Any, run: Any) -> None:
    rows = table((source, values))
    outcome = run(cast(rows.refs[0], target), rows)
    expected = [None if w == "bad" else w for w in wanted]
    assert outcome.values == expected
    assert sorted(outcome.errors) == [i for i, w in enumerate(wanted) if w == "bad"]
    assert may_fail(cast(rows.refs[0], target)) or not outcome.errors
    assert run(cast(rows.refs[0], target, quiet=True), rows) == (expected, {})


def test_casts_that_have_no_meaning_are_refused(table: Any) -> None:
    rows = table((BIGINT, [1]), (TIMESTAMP, [1]), (list_of(BIGINT), [[1]]))
    for ref, target, hint in (
        (rows.refs[0], TIMESTAMP, "TO_TIMESTAMP"),
        (rows.refs[1], BIGINT, "EXTRACT"),
        (rows.refs[2], BIGINT, "cannot be cast"),
        (rows.refs[1], BOOLEAN, "cannot be cast"),
    ):
        with pytest.raises(TypeProblem, match=hint):
            cast(ref, target)


def test_a_bare_null_casts_to_anything(table: Any, run: Any) -> None:
    rows = table((BIGINT, [1, 2]))
    for target in (INT, DOUBLE, decimal(20, 2), TEXT, TIMESTAMP, BOOLEAN):
        assert run(cast(Literal(NULL, None), target), rows).values == [None, None]


@given(scaled=st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1, max_size=20))
@settings(deadline=None, max_examples=40)
def test_decimals_become_the_nearest_double(scaled: list[int], table: Any, run: Any) -> None:
    rows = table((decimal(18, 5), scaled))
    assert run(cast(rows.refs[0], DOUBLE), rows).values == [float(Fraction(v, 10**5)) for v in scaled]


@given(values=st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=20))
@settings(deadline=None, max_examples=40)
def test_doubles_become_text_and_come_back(values: list[float], table: Any, run: Any) -> None:
    rows = table((DOUBLE, values))
    there = cast(rows.refs[0], TEXT)
    assert run(cast(there, DOUBLE), rows).values == values
