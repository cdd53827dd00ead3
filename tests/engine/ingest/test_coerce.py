"""Arrow batches and Python rows into a schema's columns: exact, and each bad row refused alone."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.errors import InvalidDefinition, TypeProblem
from millstream.engine.data.event_time import event_times
from millstream.engine.data.schema import Field, Schema, TableDefinition, TimeRule
from millstream.engine.data.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, TEXT, TIMESTAMP
from millstream.engine.data.types import decimal as decimal_type
from millstream.engine.ingest.checks import Reasons
from millstream.engine.ingest.coerce import Coercer, coerce_batch

BIG = [9007199254740993, 2**63 - 1, -(2**63)]


def test_case_c26_big_integers_keep_their_last_digits_on_every_path(one_type: Any, rows_of: Any) -> None:
    bigint = one_type(BIGINT)
    assert rows_of(bigint.arrow(pa.table({"v": pa.array(BIG, pa.int64())}))) == [(v,) for v in BIG]
    assert rows_of(bigint.rows([{"v": v} for v in BIG])) == [(v,) for v in BIG]
    assert rows_of(bigint.rows([[v] for v in BIG])) == [(v,) for v in BIG]
    beyond = bigint.rows([[2**63], [1], [-(2**63) - 1], [True], [1.5], [2.0**60]])
    assert rows_of(beyond) == [(1,)]
    assert [r.index for r in beyond.rejected] == [0, 2, 3, 4, 5]
    assert beyond.rejected[0].reason == "column v: 9223372036854775808 is out of the range of BIGINT"


def test_case_c32_the_outcome_names_each_refused_row(coercer: Any, rows_of: Any) -> None:
    train = [
        {"id": 1, "n": 10},
        {"id": 2, "n": None},
        {"n": 30},
        {"id": 4, "n": "forty"},
        {"id": 5, "n": 50, "surplus": True},
        {"id": 6, "n": 60},
    ]
    columns = (("id", BIGINT, False), ("n", INT))
    allowed = coercer(*columns).rows(train)
    assert rows_of(allowed) == [(1, 10), (2, None), (5, 50), (6, 60)]
    assert [(r.index, r.reason) for r in allowed.rejected] == [
        (2, "column id is missing"),
        (3, "column n: text 'forty' is not INT"),
    ]
    assert allowed.ignored == ("surplus",)
    assert json.loads(allowed.rejected[1].raw) == {"id": 4, "n": "forty"}
    strict = coercer(*columns, extra="refuse").rows(train)
    assert [r.index for r in strict.rejected] == [2, 3, 4]
    assert strict.rejected[2].reason == "there is no column surplus"
    assert strict.rows == 3
    assert strict.index is not None
    assert strict.index.tolist() == [0, 1, 5]


def test_a_batch_of_the_right_types_passes_as_views(coercer: Any) -> None:
    values = np.arange(1000, dtype=np.int64)
    batch = pa.record_batch({"a": pa.array(values), "b": pa.array(values.astype(float)), "s": pa.array(["x"] * 1000)})
    result = coercer(("a", BIGINT), ("b", DOUBLE), ("s", TEXT)).arrow(batch)
    assert result.rows == 1000
    assert result.index is None
    for position, name in ((0, "a"), (1, "b")):
        buffer = batch.column(name).buffers()[1]
        assert result.columns[position].values.ctypes.data == buffer.address
    assert result.columns[2].values.buffers()[2].address == batch.column("s").buffers()[2].address


def test_not_null_and_missing_columns_in_arrow(coercer: Any, rows_of: Any) -> None:
    strict = coercer(("a", INT, False), ("b", INT))
    result = strict.arrow(pa.table({"a": pa.array([1, None, 3], pa.int32())}))
    assert rows_of(result) == [(1, None), (3, None)]
    assert [r.reason for r in result.rejected] == ["column a is NOT NULL"]
    none = strict.arrow(pa.table({"b": pa.array([1, 2], pa.int32())}))
    assert none.rows == 0
    assert {r.reason for r in none.rejected} == {"column a is missing"}


def test_names_match_exactly_or_by_case_alone(coercer: Any, rows_of: Any) -> None:
    both = coercer(("id", INT), ("Name", TEXT))
    table = pa.table({"ID": pa.array([1], pa.int32()), "name": ["x"], "id2": [0]})
    result = both.arrow(table)
    assert rows_of(result) == [(1, "x")]
    assert result.ignored == ("id2",)
    assert rows_of(both.rows([{"ID": 1, "NAME": "x"}])) == [(1, "x")]


ARROW_SOURCES: list[tuple[Any, Any, Any, list[Any]]] = [
    (INT, pa.int64(), [1, 2**31, None], [1, "out", None]),
    (INT, pa.uint8(), [255, None], [255, None]),
    (BIGINT, pa.uint64(), [1, 2**63], [1, "out"]),
    (BIGINT, pa.float64(), [3.0, 2.5, math.nan, None, 2.0**53], [3, "out", "out", None, 2**53]),
    (BIGINT, pa.string(), ["5"], ["out"]),
    (BIGINT, pa.bool_(), [True], ["out"]),
    (BIGINT, pa.decimal128(20, 2), [decimal.Decimal("5.00"), decimal.Decimal("5.01")], [5, "out"]),
    (DOUBLE, pa.int64(), [3, None], [3.0, None]),
    (DOUBLE, pa.float32(), [0.5], [0.5]),
    (DOUBLE, pa.string(), ["-Infinity", "1.5"], [-math.inf, "out"]),
    (DOUBLE, pa.decimal128(4, 1), [decimal.Decimal("0.1")], [0.1]),
    (decimal_type(5, 2), pa.int64(), [999, 1000], [99900, "out"]),
    (decimal_type(5, 2), pa.float64(), [1.1, 1.005, math.inf], [110, "out", "out"]),
    (decimal_type(5, 2), pa.string(), ["1.50", "1.505", "x", "1000"], [150, "out", "out", "out"]),
    (decimal_type(5, 2), pa.decimal128(9, 3), [decimal.Decimal("1.500"), decimal.Decimal("1.505")], [150, "out"]),
    (decimal_type(38, 2), pa.decimal256(40, 2), [decimal.Decimal("1" * 30)], [int("1" * 30 + "00")]),
    (TEXT, pa.large_string(), ["a", None], ["a", None]),
    (TEXT, pa.dictionary(pa.int8(), pa.string()), ["a", "a"], ["a", "a"]),
    (TEXT, pa.binary(), [b"a", b"\xff"], ["a", "out"]),
    (TEXT, pa.int64(), [1], ["out"]),
    (BOOLEAN, pa.bool_(), [True, None], [True, None]),
    (BOOLEAN, pa.int8(), [1], ["out"]),
    (TIMESTAMP, pa.timestamp("s"), [1, None, 2**60], [1_000_000, None, "out"]),
    (TIMESTAMP, pa.timestamp("ns", "UTC"), [1_500, -1_000], ["out", -1]),
    (TIMESTAMP, pa.date32(), [1], [86_400_000_000]),
    (TIMESTAMP, pa.string(), ["1970-01-01T00:00:01+01:00", "soon"], [-3_599_000_000, "out"]),
    (TIMESTAMP, pa.int64(), [5], ["out"]),
    (DATE, pa.date64(), [86_400_000], [1]),
    (DATE, pa.timestamp("us"), [1], ["out"]),
    (INTERVAL, pa.duration("ms"), [5], [5_000]),
    (INTERVAL, pa.string(), ["5 SECONDS"], [5_000_000]),
    (INT, pa.null(), [None], [None]),
]


@pytest.mark.parametrize(("type_", "source", "values", "wanted"), ARROW_SOURCES, ids=lambda v: str(v) if not isinstance(v, list) else "")
def test_arrow_types_convert_exactly_or_row_by_row_not_at_all(
    type_: Any, source: Any, values: list[Any], wanted: list[Any], one_type: Any, rows_of: Any
) -> None:
    result = one_type(type_).arrow(pa.table({"v": pa.array(values, source)}))
    assert rows_of(result) == [(w,) for w in wanted if w != "out"]
    assert [r.index for r in result.rejected] == [i for i, w in enumerate(wanted) if w == "out"]
    assert all(r.reason.startswith("column v: ") for r in result.rejected)


def test_arrow_text_that_is_not_utf8_is_a_bad_row(one_type: Any, rows_of: Any) -> None:
    broken = pa.array([b"good", b"\xff\xfe", b"fine"], pa.binary()).view(pa.string())
    result = one_type(TEXT).arrow(pa.table({"v": broken}))
    assert rows_of(result) == [("good",), ("fine",)]
    assert [(r.index, r.reason) for r in result.rejected] == [(1, "column v: invalid UTF-8 at byte 0")]
    assert json.loads(result.rejected[0].raw) == {"v": r"\xff\xfe"}


@pytest.mark.parametrize(
    ("type_", "values", "wanted"),
    [
        (INT, [1, 2**31, 1.0, decimal.Decimal(7), "7", False], [1, "out", 1, 7, "out", "out"]),
        (
            DOUBLE,
            [1, 0.5, "NaN", "x", decimal.Decimal("0.1"), True, 10**400, decimal.Decimal("1e999")],
            [1.0, 0.5, "nan", "out", 0.1, "out", "out", "out"],
        ),
        (TEXT, ["a", b"b", b"\xff", 5, "\ud800", ""], ["a", "b", "out", "out", "out", ""]),
        (BOOLEAN, [True, 1, "true", None], [True, "out", "out", None]),
        (decimal_type(4, 2), ["1.10", 1.1, 1, 100, "1.101", decimal.Decimal("9.99")], [110, 110, 100, "out", "out", 999]),
        (DATE, ["1970-01-02", datetime.date(1970, 1, 3), datetime.datetime(1970, 1, 3), 5, 2**31], [1, 2, "out", 5, "out"]),
        (INTERVAL, [datetime.timedelta(seconds=-1), "2 s", 5, True], [-1_000_000, 2_000_000, 5, "out"]),
        (
            TIMESTAMP,
            [datetime.datetime(1970, 1, 1, 0, 0, 1), datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.UTC), "1970-01-01", 7, True],
            [1_000_000, 3_600_000_000, 0, 7, "out"],
        ),
    ],
    ids=lambda v: str(v) if not isinstance(v, list) else "",
)
def test_python_values_convert_exactly_or_row_by_row_not_at_all(
    type_: Any, values: list[Any], wanted: list[Any], one_type: Any, rows_of: Any
) -> None:
    for rows in ([[v] for v in values], [{"v": v} for v in values]):
        result = one_type(type_).rows(rows)
        got = [("nan" if isinstance(v, float) and math.isnan(v) else v) for (v,) in rows_of(result)]
        assert got == [w for w in wanted if w != "out"]
        assert [r.index for r in result.rejected] == [i for i, w in enumerate(wanted) if w == "out"]


def test_rows_that_are_no_rows_are_refused(coercer: Any, rows_of: Any) -> None:
    result = coercer(("a", INT), ("b", INT)).rows([[1, 2], [1], 5, None, {"a": 3}, (4, 5), {b"a": 1, 7: 2}])
    assert rows_of(result) == [(1, 2), (3, None), (4, 5), (None, None)]
    assert [r.reason for r in result.rejected] == [
        "1 values for 2 columns",
        "a row is a list or a map, not int",
        "a row is a list or a map, not NoneType",
    ]


def test_a_null_event_time_is_a_bad_row(one_type: Any, rows_of: Any, times_of: Any) -> None:
    stream = one_type(TIMESTAMP, unit=None)
    result = stream.arrow(pa.table({"v": pa.array([1, None], pa.timestamp("us", "UTC"))}))
    assert rows_of(result) == [(1,)]
    assert [r.reason for r in result.rejected] == ["event time v is NULL"]
    assert times_of(stream, result) == [1]


@pytest.mark.parametrize(
    ("unit", "time_us", "hint"),
    [("s", 1_715_000_000_000_000, None), ("ms", 1_715_000_000_000, "UNIT s"), ("us", 1_715_000_000, "UNIT s"), ("ns", 1_715_000, "UNIT s")],
)
def test_case_c27_units_of_a_bare_integer(unit: str, time_us: int, hint: str | None, one_type: Any, times_of: Any) -> None:
    whole, instant = one_type(BIGINT, unit=unit), one_type(TIMESTAMP, unit=unit)
    assert times_of(whole, whole.rows([[1_715_000_000]])) == [time_us]
    assert times_of(whole, whole.arrow(pa.table({"v": [1_715_000_000]}))) == [time_us]
    assert times_of(instant, instant.rows([[1_715_000_000]])) == [time_us]
    warnings = whole.rows([[1_715_000_000]]).warnings
    assert len(warnings) == (hint is not None)
    assert hint is None or hint in warnings[0]


def test_case_c27_a_bare_integer_without_a_unit_is_refused(one_type: Any) -> None:
    with pytest.raises(InvalidDefinition, match="needs a unit"):
        one_type(BIGINT, unit=None)
    with pytest.raises(InvalidDefinition, match="cannot carry event time"):
        one_type(DOUBLE, unit="s")


def test_case_c27_times_out_of_range_are_refused_and_do_not_wrap(one_type: Any, times_of: Any) -> None:
    nanoseconds, seconds = one_type(BIGINT, unit="ns"), one_type(BIGINT, unit="s")
    assert times_of(nanoseconds, nanoseconds.rows([[2**63 - 1]])) == [9_223_372_036_854_776]
    result = seconds.rows([[2**62], [0], [-(2**62)]])
    assert times_of(seconds, result) == [0]
    assert [r.index for r in result.rejected] == [0, 2]
    assert "out of the range of TIMESTAMP" in result.rejected[0].reason


def test_early_times_are_ordinary_and_give_no_warning(one_type: Any) -> None:
    assert one_type(BIGINT, unit="ms").rows([[-60_001], [-1], [0], [1_000], [11_000]]).warnings == []


def test_local_times_follow_the_zone_of_the_stream(one_type: Any, texts_of: Any) -> None:
    stream = one_type(TIMESTAMP, zone="America/New_York")
    texts = ["2026-03-08 02:30:00", "2026-11-01 01:30:00", "2026-07-01T12:00:00Z", "2026-07-01T12:00:00"]
    wanted = [("2026-03-08T07:30:00Z",), ("2026-11-01T05:30:00Z",), ("2026-07-01T12:00:00Z",), ("2026-07-01T16:00:00Z",)]
    assert texts_of(stream.rows([[t] for t in texts])) == wanted
    naive = pa.array([datetime.datetime(2026, 3, 8, 2, 30), datetime.datetime(2026, 7, 1, 12)], pa.timestamp("us"))
    assert texts_of(stream.arrow(pa.table({"v": naive}))) == [wanted[0], wanted[3]]


@given(
    local=st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2037, 12, 31)),
    day=st.sampled_from([(2026, 3, 8), (2026, 11, 1), (2026, 3, 29), (2026, 10, 25), (2026, 4, 5), (2026, 10, 4), None]),
    zone=st.sampled_from(["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Monrovia", "UTC"]),
)
@settings(deadline=None, max_examples=150)
def test_local_time_is_the_earlier_instant_or_moves_forward_by_the_gap_as_zoneinfo_has_it(
    local: datetime.datetime, day: tuple[int, int, int] | None, zone: str, one_type: Any, rows_of: Any
) -> None:
    if day is not None:
        local = local.replace(*day)
    instant = local.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(datetime.UTC)  # fold 0 reads both cases so
    wanted = [((instant - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1),)]
    stream = one_type(TIMESTAMP, zone=zone)
    text = local.isoformat(sep=" ")
    assert rows_of(stream.rows([[text]])) == wanted
    assert rows_of(stream.rows([[local]])) == wanted
    assert rows_of(stream.arrow(pa.table({"v": [text]}))) == wanted
    assert rows_of(stream.arrow(pa.table({"v": pa.array([local], pa.timestamp("us"))}))) == wanted


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3), st.lists(st.integers(), max_size=2)
)


@given(rows=st.lists(st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.sampled_from("abz"), SCALARS)), max_size=8))
@settings(deadline=None, max_examples=100)
def test_any_value_is_accepted_or_refused_and_never_raises(rows: list[Any], coercer: Any) -> None:
    columns = (("a", BIGINT, False), ("b", decimal_type(6, 2)))
    for extra in ("ignore", "refuse"):
        result = coercer(*columns, extra=extra).rows(rows)
        assert result.rows + len(result.rejected) == len(rows)
        kept = result.index.tolist() if result.index is not None else list(range(len(rows)))
        assert sorted(kept + [r.index for r in result.rejected]) == list(range(len(rows)))


@given(
    values=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=20),
    offset=st.integers(0, 3),
)
@settings(deadline=None, max_examples=40)
def test_slices_of_arrow_arrays_read_right(values: list[Any], offset: int, one_type: Any, rows_of: Any) -> None:
    for type_ in (BIGINT, TIMESTAMP, INTERVAL):
        plain = [None if v is None else max(v, -(2**63) + 1) for v in values]
        array = pa.array(plain, pa.int64()).view(arrow_type(type_)).slice(offset)
        assert rows_of(one_type(type_).arrow(pa.table({"v": array}))) == [(v,) for v in plain[offset:]]
    flags = [None if v is None else v > 0 for v in values]
    assert rows_of(one_type(BOOLEAN).arrow(pa.table({"v": pa.array(flags, pa.bool_()).slice(offset)}))) == [(f,) for f in flags[offset:]]


def test_time_rule_of_a_missing_column_is_refused(coercer: Any) -> None:
    with pytest.raises(InvalidDefinition, match="no column ts"):
        coercer(("a", INT), time=TimeRule("ts"))


def test_integers_are_instants_for_plain_rows_only_and_not_for_json(one_type: Any, rows_of: Any) -> None:
    for type_ in (TIMESTAMP, INTERVAL, DATE):
        assert rows_of(one_type(type_).rows([[7], [None]])) == [(7,), (None,)]
        assert one_type(type_).rows([[7]], bare_instants=False).rows == 0
    least = one_type(TIMESTAMP).rows([[-(2**63)], [1]])
    assert rows_of(least) == [(1,)]


FINE = {1_999: 2, -1: 0, 500: 0, 1_500: 2, 2_500: 2, -500: 0, -1_500: -2, -1_501: -2, -1_499: -1}  # nanoseconds, and microseconds of them


def test_what_is_finer_than_a_microsecond_is_rounded_half_to_even_only_where_the_stream_says_so(coercer: Any, rows_of: Any) -> None:
    batch = pa.table({"v": pa.array(list(FINE), pa.timestamp("ns"))})
    texts = [[str(np.datetime64(ns, "ns")) + "Z"] for ns in FINE]
    strict = coercer(("v", TIMESTAMP), time=TimeRule("v"))
    rounding = coercer(("v", TIMESTAMP), time=TimeRule("v", unit_round=True))
    reason = "column v: not a whole number of microseconds (TIMESTAMP BY … ROUND rounds it)"
    assert [r.reason for r in strict.arrow(batch).rejected] == [reason] * len(FINE)
    assert rows_of(rounding.arrow(batch)) == [(us,) for us in FINE.values()]
    for taken in (strict.rows(texts), strict.arrow(pa.table({"v": [t for (t,) in texts]}))):
        assert [r.reason for r in taken.rejected] == [
            f"column v: '{t}' is finer than a microsecond (TIMESTAMP BY … ROUND rounds it)" for (t,) in texts
        ]
    for taken in (rounding.rows(texts), rounding.arrow(pa.table({"v": [t for (t,) in texts]}))):
        assert rows_of(taken) == [(us,) for us in FINE.values()]
    integers = coercer(("v", BIGINT), time=TimeRule("v", unit="ns", unit_round=True))
    assert integers.rows([[ns] for ns in FINE]).rows == len(FINE)
    assert event_times(integers.rows([[ns] for ns in FINE]).columns[0], integers.definition.time).tolist() == list(FINE.values())


def test_a_bare_number_is_no_instant_and_the_refusal_says_in_which_unit_it_would_be_one(one_type: Any) -> None:
    stream = one_type(TIMESTAMP)
    ways = [
        stream.rows([[1_715_000_000]], bare_instants=False),
        stream.rows([["1715000000"]]),
        stream.arrow(pa.table({"v": [1_715_000_000]})),
        stream.arrow(pa.table({"v": ["1715000000"]})),
    ]
    reason = (
        "column v: 1715000000 is a number without a unit: as s it would be 2024-05-06T12:53:20Z; declare the column BIGINT with "
        "TIMESTAMP BY … UNIT s, write the time as text, or say what it counts: --time-format s for a file, time_unit = 's' for a source"
    )
    assert [[r.reason for r in taken.rejected] for taken in ways] == [[reason]] * 4
    for number, unit in (
        ("1715000000123", "as ms "),
        ("1715000000123456789", "as ns "),
        ("7", "UNIT s, ms or us"),
        ("1e99999", "UNIT s, ms"),
    ):
        assert unit in stream.rows([[number]]).rejected[0].reason


def test_a_nested_column_is_refused_row_by_row_with_what_to_do(one_type: Any) -> None:
    for values in ([{"a": 1}, None], [[1, 2], None]):
        taken = one_type(TEXT).arrow(pa.table({"v": pa.array(values)}))
        assert taken.rows == 1
        assert (
            "is not TEXT (declare the column JSON, a STRUCT or a LIST, or give its parts columns of their own)" in taken.rejected[0].reason
        )


def test_a_column_that_stands_twice_is_refused(coercer: Any) -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "A"])
    assert coercer(("a", BIGINT)).arrow(twice).ignored == ("A",)
    with pytest.raises(TypeProblem, match="column a stands twice"):
        coercer(("a", BIGINT)).arrow(twice.rename_columns(["a", "a"]))


def test_keys_of_tables_are_never_null(rows_of: Any) -> None:
    table = TableDefinition("t", Schema((Field("k", INT), Field("v", INT))), ("k",))
    result = Coercer(table).rows([[1, None], [None, 2]])
    assert rows_of(result) == [(1, None)]
    assert result.rejected[0].reason == "column k is NOT NULL"
    assert coerce_batch(pa.table({"k": pa.array([1], pa.int32()), "x": [1]}), table).rows == 0
    assert coerce_batch(pa.table({"k": pa.array([1], pa.int32()), "x": [1]}), table, ignore_extra=True).rows == 1


EASY = {
    BIGINT: st.integers(-(2**64), 2**64),
    INT: st.integers(-(2**33), 2**33),
    DOUBLE: st.floats() | st.integers(-5, 5),
    BOOLEAN: st.booleans(),
    TEXT: st.text(max_size=5),
    TIMESTAMP: st.integers(-(2**64), 2**64) | st.sampled_from([-(2**63), 2**62, 2**62 + 1]),
    DATE: st.integers(-(2**32), 2**32),
    INTERVAL: st.integers(-(2**64), 2**64),
}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_short_way_for_a_few_rows_gives_what_the_long_way_gives(coercer: Any, texts_of: Any, data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(EASY)), min_size=1, max_size=4))
    timed = types[0] is TIMESTAMP and data.draw(st.booleans())
    stream = coercer(*[(f"c{i}", t) for i, t in enumerate(types)], time=TimeRule("c0") if timed else None)
    odd = st.none() | st.just("\ud800")
    rows = data.draw(st.lists(st.tuples(*[EASY[t] | odd if data.draw(st.booleans()) else EASY[t] for t in types]).map(list), max_size=4))
    short, long = stream.rows(rows), stream.rows(rows, Reasons(len(rows)))
    assert texts_of(short) == texts_of(long)
    assert [(r.index, r.reason, r.raw) for r in short.rejected] == [(r.index, r.reason, r.raw) for r in long.rejected]
    for one, other in zip(short.columns, long.columns, strict=True):
        assert one.type == other.type
        assert one.type.is_arrow or one.values.dtype == other.values.dtype
        assert len(one.values) == 0 or not one.type.is_integer or one.bounds() == other.bounds()
