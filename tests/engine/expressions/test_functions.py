"""The registries: names, aliases, result types, and refusals that name function, argument and type."""

from __future__ import annotations

from typing import Any

import pytest
from millstream.engine.aggregates.table import aggregate_names, is_aggregate, resolve_aggregate
from millstream.engine.data.errors import TypeProblem, UnknownName
from millstream.engine.data.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, NULL, TEXT, TIMESTAMP, decimal, list_of
from millstream.engine.expressions.compile import BUILDERS
from millstream.engine.expressions.functions import ALIASES, RULES, function_names, is_function, resolve
from millstream.engine.expressions.signature import common_type


def test_names_fold_and_aliases_lead_to_one_name() -> None:
    assert resolve("CHAR_LENGTH", (TEXT,)).name == "length"
    assert resolve("Ceiling", (DOUBLE,)).name == "ceil"
    assert resolve("MOD", (INT, INT)) == resolve("%", (INT, INT))
    assert set(ALIASES.values()) <= set(RULES)
    assert is_function("upper")
    assert not is_function("sum")
    assert "upper" in function_names()


def test_every_function_that_resolves_can_be_computed() -> None:
    rewritten = {"mod", "date_part", "year", "quarter", "month", "week", "day", "hour", "minute", "second", "epoch"}
    rewritten |= {"dayofweek", "dayofyear", "dayofmonth", "isodow", "isoyear", "dow", "doy"}
    rewritten |= {"->", "->>", "#>", "#>>"}
    assert set(RULES) - set(BUILDERS) == rewritten


@pytest.mark.parametrize(
    ("name", "types", "message"),
    [
        ("upr", (TEXT,), "there is no function UPR; did you mean UPPER?"),
        ("+", (TEXT, INT), r"TEXT \+ INT is not defined; join texts with"),
        ("+", (TIMESTAMP, INT), r"TIMESTAMP \+ INT is not defined"),
        ("-", (INTERVAL, TIMESTAMP), "INTERVAL - TIMESTAMP is not defined"),
        ("*", (BOOLEAN, INT), r"BOOLEAN \* INT is not defined"),
        ("sqrt", (TEXT,), "argument 1 of SQRT is TEXT, it must be a number; cast it"),
        ("abs", (), "ABS takes 1 argument, not 0"),
        ("round", (INT, INT, INT), "ROUND takes 1 to 2 arguments, not 3"),
        ("coalesce", (INT, TEXT), r"COALESCE\(INT, TEXT\) is not defined"),
        ("neg", (TEXT,), "must be a number or an INTERVAL"),
        ("like", (INT, TEXT), "argument 1 of LIKE is INT"),
        ("greatest", (list_of(INT), list_of(INT)), "have no order"),
    ],
)
def test_refusals_say_what_is_wrong(name: str, types: Any, message: str) -> None:
    with pytest.raises((UnknownName, TypeProblem), match=message):
        resolve(name, types)


def test_common_types() -> None:
    for left, right, common in (
        (INT, BIGINT, BIGINT),
        (INT, decimal(5, 2), decimal(12, 2)),
        (BIGINT, decimal(38, 10), decimal(38, 10)),
        (decimal(5, 2), decimal(8, 6), decimal(9, 6)),
        (decimal(5, 2), DOUBLE, DOUBLE),
        (DATE, TIMESTAMP, TIMESTAMP),
        (NULL, TEXT, TEXT),
        (TEXT, INT, None),
        (BOOLEAN, INT, None),
        (INTERVAL, TIMESTAMP, None),
        (list_of(INT), list_of(INT), list_of(INT)),
    ):
        assert common_type(left, right) == common
        assert common_type(right, left) == common


@pytest.mark.parametrize(
    ("name", "types", "options", "result"),
    [
        ("count", (), (), BIGINT),
        ("count", (TEXT,), (), BIGINT),
        ("sum", (INT,), (), BIGINT),
        ("sum", (BIGINT,), (), decimal(38, 0)),
        ("sum", (decimal(10, 2),), (), decimal(38, 2)),
        ("sum", (DOUBLE,), (), DOUBLE),
        ("sum", (INTERVAL,), (), INTERVAL),
        ("avg", (INT,), (), DOUBLE),
        ("avg", (BIGINT,), (), DOUBLE),
        ("avg", (decimal(10, 2),), (), decimal(14, 6)),
        ("avg", (decimal(38, 36),), (), decimal(38, 38)),
        ("MIN", (TEXT,), (), TEXT),
        ("max", (TIMESTAMP,), (), TIMESTAMP),
        ("median", (INT,), (), DOUBLE),
        ("percentile_cont", (decimal(5, 1),), (0.5,), DOUBLE),
        ("percentile_disc", (TEXT,), (0.5,), TEXT),
        ("stddev_samp", (INT,), (), DOUBLE),
        ("variance", (decimal(5, 1),), (), DOUBLE),
        ("first", (TEXT,), (), TEXT),
        ("top", (INT,), (3,), list_of(INT)),
        ("array_agg", (DATE,), (), list_of(DATE)),
        ("listagg", (INT,), (";",), TEXT),
        ("approx_count_distinct", (TEXT,), (), BIGINT),
        ("approx_percentile", (INT,), (0.9,), DOUBLE),
        ("approx_top_k", (TEXT,), (2,), list_of(TEXT)),
    ],
)
def test_aggregate_result_types_follow_k13(name: str, types: Any, options: Any, result: Any) -> None:
    assert resolve_aggregate(name, types, options).result == result


@pytest.mark.parametrize(
    ("name", "types", "options", "message"),
    [
        ("sums", (INT,), (), "there is no aggregate SUMS; did you mean SUM?"),
        ("sum", (TEXT,), (), "argument 1 of SUM is TEXT"),
        ("avg", (INT, INT), (), "AVG takes 1 argument, not 2"),
        ("percentile_cont", (INT,), (), "needs its fraction"),
        ("percentile_cont", (INT,), (1.5,), "between 0 and 1"),
        ("top", (INT,), (0,), "at least 1"),
        ("top", (INT,), (True,), "at least 1"),
        ("string_agg", (TEXT,), (5,), "constant text"),
        ("max", (list_of(INT),), (), "has an order"),
    ],
)
def test_aggregate_refusals_say_what_is_wrong(name: str, types: Any, options: Any, message: str) -> None:
    with pytest.raises((UnknownName, TypeProblem), match=message):
        resolve_aggregate(name, types, options)


def test_aggregates_and_functions_have_different_names() -> None:
    assert [n for n in aggregate_names() if is_function(n)] == []
    assert is_aggregate("Count")
    assert resolve_aggregate("median", (INT,)).name == "percentile_cont"
    assert resolve_aggregate("median", (INT,)).options == (0.5,)
