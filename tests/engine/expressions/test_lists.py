"""Length, elements and membership of lists, against Python's own; lists made in one query are read in another."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.arrow import arrow_type, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column
from millstream.engine.data.errors import EngineError
from millstream.engine.data.types import BIGINT, DOUBLE, TEXT, DataType, list_of
from millstream.engine.expressions import build
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.expressions.kernel import EvaluationContext

from tests.support.engine_run import SqlEngine

NAN = float("nan")
ELEMENTS = {
    BIGINT: st.one_of(st.none(), st.integers(-3, 3)),
    TEXT: st.one_of(st.none(), st.sampled_from(["", "a", "ä", "ab"])),
    DOUBLE: st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, NAN])),
}


class Table:
    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self.rows = len(columns[0])

    def column(self, position: int) -> Column:
        return self._columns[position]


def evaluated(name: str, types: list[DataType], *values: list[Any], skipped: int = 0) -> list[Any]:
    arrays = [pa.array(v, arrow_type(t)).slice(skipped) for v, t in zip(values, types, strict=True)]
    table = Table(*(column_from_arrow(a, t) for a, t in zip(arrays, types, strict=True)))
    call = build.call(name, [ColumnRef(t, i) for i, t in enumerate(types)])
    found: list[Any] = column_to_arrow(compile_expression(call)(table, EvaluationContext())).to_pylist()
    return found


def same(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)


def contains(values: list[Any] | None, wanted: Any) -> bool | None:
    if values is None or wanted is None:
        return None
    if any(v is not None and same(v, wanted) for v in values):
        return True
    return None if None in values else False


@given(st.data(), st.sampled_from(list(ELEMENTS)), st.integers(0, 2))
@settings(max_examples=80, deadline=None)
def test_lists_answer_as_pythons_do(data: st.DataObject, type_: DataType, skipped: int) -> None:
    element = ELEMENTS[type_]
    row = st.tuples(st.one_of(st.none(), st.lists(element, max_size=4)), st.one_of(st.none(), st.integers(-2, 5)), element)
    rows = data.draw(st.lists(row, min_size=3, max_size=8))
    lists, numbers, wanted = (list(column) for column in zip(*rows, strict=True))
    shown = lists[skipped:]
    assert evaluated("cardinality", [list_of(type_)], lists, skipped=skipped) == [None if v is None else len(v) for v in shown]
    elements = [v[n - 1] if v is not None and n is not None and 1 <= n <= len(v) else None for v, n in zip(lists, numbers, strict=True)]
    found = evaluated("array_element", [list_of(type_), BIGINT], lists, numbers, skipped=skipped)
    assert all(same(a, b) for a, b in zip(found, elements[skipped:], strict=True))
    held = [contains(v, w) for v, w in zip(lists, wanted, strict=True)]
    assert evaluated("array_contains", [list_of(type_), type_], lists, wanted, skipped=skipped) == held[skipped:]


@pytest.mark.parametrize("train", [1, 4096])
def test_lists_of_one_query_are_read_by_another(train: int) -> None:
    engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP, k TEXT, v BIGINT) TIMESTAMP BY ts", train=train)
    inner = "SELECT k, ARRAY_AGG(v) AS l, TOP(v, 2) AS t FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k"
    engine.select(f"SELECT k, CARDINALITY(l) AS n, t[1] AS best, l[ARRAY_LENGTH(l, 1)] AS last FROM ({inner}) WHERE ARRAY_CONTAINS(l, 3)")
    engine.put("s", [(1, "a", 5), (2, "a", None), (3, "a", 3), (4, "b", 4), (11, "b", 3)])
    engine.end()
    engine.work()
    assert engine.rows("q") == [("a", 3, 5, 3), ("b", 1, 3, 3)]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("k[1]", "must be a list"),
        ("ARRAY_AGG(v)[1:2]", "a slice of a list is not supported"),
        ("ARRAY_AGG(v)['a']", "named by a whole number"),
        ("ARRAY_CONTAINS(ARRAY_AGG(v), 'a')", "the value must be BIGINT"),
        ("ARRAY_LENGTH(ARRAY_AGG(v), 2)", "takes 1 argument, not 2"),
    ],
)
def test_what_is_no_list_is_refused(expression: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        SqlEngine("CREATE STREAM s (ts TIMESTAMP, k TEXT, v BIGINT) TIMESTAMP BY ts").select(f"SELECT {expression} AS a FROM s GROUP BY k")
