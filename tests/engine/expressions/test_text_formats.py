"""Instants by a pattern, SPLIT, URLs, buckets and the extremes of lists, against DuckDB or by their definition."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, DOUBLE, INTERVAL, TEXT, TIMESTAMP
from millstream.engine.expressions.build import call
from millstream.engine.expressions.ir import Literal
from millstream.engine.expressions.values import parse_timestamp
from millstream.server.run.embedded import Replay, run_replay

YEAR_1000, YEAR_9999 = -30_610_224_000_000_000, 253_402_300_799_999_999
INSTANTS = st.one_of(st.none(), st.integers(YEAR_1000, YEAR_9999), st.integers(-(10**12), 10**12))
FORMATS = ["%Y-%m-%d %H:%M:%S", "%d/%m/%Y", "%b %d %Y, %I:%M %p", "%A %B %d %Y", "%Y%m%dT%H%M%S.%f", "%j of %Y", "%-d.%-m.%Y %-H h"]


def text(value: str) -> Literal:
    return Literal(TEXT, value)


@given(values=st.lists(INSTANTS, min_size=1, max_size=20))
@settings(deadline=None, max_examples=20)
def test_an_instant_is_written_and_read_as_by_duckdb(values: list[Any], table: Any, run: Any, duck: Any) -> None:
    ours, theirs = table((TIMESTAMP, values)), table((BIGINT, values))
    for form in FORMATS:
        (written,) = duck(theirs, f"strftime(make_timestamp(a), '{form}')")
        assert run(call("strftime", [ours.refs[0], text(form)]), ours).values == written, form
        texts = table((TEXT, written))
        (read,) = duck(texts, f"epoch_us(strptime(a, '{form}')::TIMESTAMP)")
        assert run(call("strptime", [texts.refs[0], text(form)]), texts).values == read, form


def test_what_is_no_instant_fails_alone(table: Any, run: Any) -> None:
    rows = table((TEXT, ["31/12/2024", "31/02/2024", "29/02/2023", "", "1/1/99", None, "32/01/2024", "01/13/2024", "01/00/2024"]))
    values, errors = run(call("to_timestamp", [rows.refs[0], text("DD/MM/YYYY")]), rows)
    assert values == [1_735_603_200_000_000, *[None] * 8]
    assert sorted(errors) == [1, 2, 3, 4, 6, 7, 8]
    local = run(call("parse_timestamp", [rows.refs[0], text("DD/MM/YYYY"), text("Asia/Kolkata")]), rows).values
    assert local[0] == 1_735_603_200_000_000 - 19_800_000_000


@pytest.mark.parametrize("pattern", ["HH24:MI", "YYYY-MM-DD MM", "YYYY Q", "YYYY-MM-DDThh"])
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str, table: Any) -> None:
    with pytest.raises(TypeProblem):
        call("to_timestamp", [table((TEXT, ["x"])).refs[0], text(pattern)])


def test_what_strftime_does_not_know_is_named(table: Any) -> None:
    with pytest.raises(TypeProblem, match="does not know %Z"):
        call("strptime", [table((TEXT, ["x"])).refs[0], text("%Y %Z")])
    rows = table((TEXT, ["x"]), (TEXT, ["%Y"]))
    with pytest.raises(TypeProblem, match="as a constant"):
        call("strptime", list(rows.refs))


@given(
    values=st.lists(st.tuples(INSTANTS, st.sampled_from([1, 7_000_000, 900_000_000, 3_600_000_000, 604_800_000_000])), min_size=1),
    origin=st.sampled_from(["1970-01-01", "2024-02-29 10:30:00", "1999-12-31 23:59:59.5"]),
)
@settings(deadline=None, max_examples=20)
def test_buckets_of_time_are_those_of_duckdb(values: list[Any], origin: str, table: Any, run: Any, duck: Any) -> None:
    """Not of instants before the origin by less than a bucket of years: widths are durations here."""
    ours = table((TIMESTAMP, [v for v, _ in values]), (INTERVAL, [w for _, w in values]))
    theirs = table((BIGINT, [v for v, _ in values]), (BIGINT, [w for _, w in values]))
    width, instant = "to_microseconds(b)", "make_timestamp(a)"
    asked = [f"time_bucket({width}, {instant})", f"time_bucket({width}, {instant}, TIMESTAMP '{origin}')"]
    plain, moved = duck(theirs, *(f"epoch_us({one}::TIMESTAMP)" for one in asked))
    micros = parse_timestamp(origin)
    assert run(call("time_bucket", [ours.refs[1], ours.refs[0]]), ours).values == plain
    for name in ("time_bucket", "date_bin"):
        assert run(call(name, [ours.refs[1], ours.refs[0], Literal(TIMESTAMP, micros)]), ours).values == moved


def test_a_stride_must_be_positive(table: Any, run: Any) -> None:
    rows = table((TIMESTAMP, [5, 5, -7]), (INTERVAL, [0, -1, 2]))
    assert run(call("date_bin", [rows.refs[1], rows.refs[0]]), rows).values == [None, None, -8]


@given(
    rows=st.lists(
        st.tuples(*[st.one_of(st.none(), st.integers(-9, 9).map(float))] * 3, st.one_of(st.none(), st.integers(-1, 9))), min_size=1
    )
)
@settings(deadline=None, max_examples=60)
def test_a_bucket_of_numbers_is_that_of_its_definition(rows: list[Any], table: Any, run: Any) -> None:
    """ISO/IEC 9075-2, 6.28: 0 and n + 1 outside, by exact fractions."""
    ours = table(*((DOUBLE, [r[i] for r in rows]) for i in range(3)), (BIGINT, [r[3] for r in rows]))

    def bucket(x: Any, low: Any, high: Any, n: Any) -> Any:
        if None in (x, low, high, n) or low == high or n <= 0:
            return None
        part = Fraction(x - low) / Fraction(high - low)
        return 0 if part < 0 else n + 1 if part >= 1 else math.floor(part * n) + 1

    found = run(call("width_bucket", list(ours.refs)), ours).values
    exact = [bucket(*r) for r in rows]
    near = [a is None or b is None or abs(a - b) <= 1 for a, b in zip(found, exact, strict=True)]
    assert all(near)
    assert [a for a, r in zip(found, rows, strict=True) if r[3] in (1, 2, 4, 8, None)] == [
        b for b, r in zip(exact, rows, strict=True) if r[3] in (1, 2, 4, 8, None)
    ]


@given(values=st.lists(st.one_of(st.none(), st.text("a,;é", max_size=8)), min_size=1), delimiter=st.sampled_from([",", ";", ",;", "", "é"]))
@settings(deadline=None, max_examples=40)
def test_split_is_that_of_duckdb(values: list[Any], delimiter: str, table: Any, run: Any, duck: Any) -> None:
    rows = table((TEXT, values))
    (wanted,) = duck(rows, f"string_split(a, '{delimiter}')")
    if delimiter == "":  # DuckDB gives one empty text for an empty one
        wanted = [[] if v == "" else w for v, w in zip(values, wanted, strict=True)]
    assert run(call("split", [rows.refs[0], text(delimiter)]), rows).values == wanted


URLS = [
    "https://u@Host.example:8443/a/b%20c?x=1&y=a+b&x=2&z=#frag",
    "ftp://h/",
    "/only/path?q",
    "",
    "http://h:port/",
    None,
    "http://[::1/x",
]


def test_parts_of_urls(table: Any, run: Any) -> None:
    rows = table((TEXT, URLS))

    def part(name: str, *more: str) -> Any:
        return run(call(f"url_extract_{name}", [rows.refs[0], *map(text, more)]), rows)

    assert part("host").values == ["host.example", "h", None, None, "h", None, None]
    assert sorted(part("host").errors) == [6]
    assert part("port").values == [8443, None, None, None, None, None, None]
    assert sorted(part("port").errors) == [4, 6]
    assert part("parameter", "x").values[:3] == ["1", None, None]
    assert part("parameter", "y").values[0] == "a b"
    assert part("parameter", "z").values[0] == ""
    for name, attribute in (("path", "path"), ("fragment", "fragment"), ("query", "query"), ("protocol", "scheme")):
        wanted = [getattr(urlsplit(u), attribute) for u in URLS[:4] if u is not None]
        assert [v or "" for v in part(name).values[:4]] == wanted, name


@given(values=st.lists(st.one_of(st.none(), st.text(max_size=6)), min_size=1))
@settings(deadline=None, max_examples=30)
def test_a_parameter_goes_there_and_back(values: list[Any], table: Any, run: Any) -> None:
    rows = table((TEXT, values))
    written = table((TEXT, run(call("url_encode_param", list(rows.refs)), rows).values))
    assert run(call("url_decode_param", list(written.refs)), written).values == values


def test_functions_in_queries_and_extremes_of_lists() -> None:
    script = """
    CREATE TABLE t (id INT, n INT[], x DOUBLE[], w TEXT[], PRIMARY KEY (id));
    INSERT INTO t VALUES (1, ARRAY[3, NULL, 1], ARRAY[1e0, CAST('NaN' AS DOUBLE), 2e0], ARRAY['b', 'é', 'a']), (2, NULL, NULL, NULL);
    FETCH SELECT id, GREATEST(n) AS g, LEAST(n) AS l, ARRAY_MAX(x) AS gx, LIST_MIN(x) AS lx, GREATEST(w) AS gw, LEAST(w) AS lw,
        GREATEST(ARRAY[CAST(NULL AS INT)]) AS nothing, DIV(-7, 2) AS d, SPLIT('a-b', '-')[2] AS b FROM t ORDER BY id
    """
    outcome = run_replay(Replay(script))
    assert outcome.failure is None
    first, second = (row for batch in outcome.results[0].batches for row in batch.to_pylist())
    assert (first["g"], first["l"], first["lx"], first["gw"], first["lw"]) == (3, 1, 1.0, "é", "a")
    assert math.isnan(first["gx"])
    assert (first["nothing"], first["d"], first["b"]) == (None, -3, "b")
    assert [second[n] for n in ("g", "l", "gx", "lx", "gw", "lw")] == [None] * 6
