"""EXTRACT, DATE_TRUNC and their kin against DuckDB and Python's calendar, in UTC and in zones."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.calendar import civil_from_days, days_from_civil, zone
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, DATE, DOUBLE, INT, INTERVAL, TEXT, TIMESTAMP, decimal
from millstream.engine.expressions.build import call, text_constant
from millstream.engine.expressions.ir import Call, Literal
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.expressions.values import format_timestamp, parse_timestamp

DAY = 86_400_000_000
YEAR_1 = -62_135_596_800_000_000
YEAR_9999 = 253_402_300_799_999_999
INSTANTS = st.one_of(
    st.none(),
    st.integers(YEAR_1, YEAR_9999),
    st.integers(-3 * DAY, 3 * DAY),
    st.sampled_from([0, -1, 1, DAY - 1, -DAY, 951_782_400_000_000, 1_709_164_800_000_000, -2_208_988_800_000_000]),
)
FIELDS = ["millennium", "century", "decade", "year", "isoyear", "quarter", "month", "week", "day", "dow", "isodow", "doy", "hour", "minute"]
FIELDS += ["second", "milliseconds", "microseconds"]


def as_instants(table: Any, values: list[Any]) -> tuple[Any, Any]:
    """Return the table for us, and the one from which DuckDB makes plain timestamps."""
    return table((TIMESTAMP, values)), table((BIGINT, values))


@given(values=st.lists(INSTANTS, min_size=1, max_size=30))
@settings(deadline=None, max_examples=25)
def test_fields_agree_with_duckdb(values: list[Any], table: Any, run: Any, duck: Any) -> None:
    ours, theirs = as_instants(table, values)
    wanted = duck(theirs, *(f"extract({f} FROM make_timestamp(a))" for f in FIELDS))
    for field, answers in zip(FIELDS, wanted, strict=True):
        assert run(call("extract", ours.refs, (field,)), ours).values == answers, field
    assert run(call("extract", ours.refs, ("epoch",)), ours).values == values


@given(values=st.lists(INSTANTS, min_size=1, max_size=30))
@settings(deadline=None, max_examples=25)
def test_truncation_agrees_with_duckdb(values: list[Any], table: Any, run: Any, duck: Any) -> None:
    ours, theirs = as_instants(table, values)
    units = ["microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade"]
    wanted = duck(theirs, *(f"epoch_us(date_trunc('{u}', make_timestamp(a))::TIMESTAMP)" for u in units))
    for unit, answers in zip(units, wanted, strict=True):
        assert run(call("date_trunc", [Literal(TEXT, unit), ours.refs[0]]), ours).values == answers, unit


def test_centuries_and_millennia_begin_in_year_one(table: Any, run: Any) -> None:
    rows = table((TIMESTAMP, [parse_timestamp("2000-12-31"), parse_timestamp("2001-01-01")]))
    for unit, wanted in (("century", ["1901-01-01", "2001-01-01"]), ("millennium", ["1001-01-01", "2001-01-01"])):
        assert run(call("date_trunc", [Literal(TEXT, unit), rows.refs[0]]), rows).values == [parse_timestamp(w) for w in wanted]


@given(days=st.integers(-(10**8), 10**8))
@settings(deadline=None)
def test_the_calendar_goes_there_and_back(days: int) -> None:
    year, month, day = civil_from_days(days)
    assert days_from_civil(year, month, day) == days
    if 1 <= year <= 9999:
        assert datetime.date(year, month, day) == datetime.date(1970, 1, 1) + datetime.timedelta(days=days)


ZONES = ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca", "UTC", "America/Sao_Paulo"]


@pytest.mark.parametrize("name", ZONES)
@given(seconds=st.lists(st.integers(-4_000_000_000, 9_000_000_000), min_size=1, max_size=30))
@settings(deadline=None, max_examples=20)
def test_zones_agree_with_zoneinfo_in_both_directions(name: str, seconds: list[int]) -> None:
    info = ZoneInfo(name)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    instants = np.array(seconds, dtype=np.int64) * 1_000_000
    moments = [epoch + datetime.timedelta(seconds=s) for s in seconds]
    offsets = [int(m.astimezone(info).utcoffset().total_seconds()) for m in moments]
    assert zone(name).offset_us(instants).tolist() == [o * 1_000_000 for o in offsets]
    # The same numbers read as local times; fold 0 is the earlier of two, and in a gap the offset before it.
    local = [(epoch + datetime.timedelta(seconds=s)).replace(tzinfo=info, fold=0) for s in seconds]
    wanted = [int((m.astimezone(datetime.UTC) - epoch).total_seconds()) * 1_000_000 for m in local]
    assert zone(name).to_utc(instants).tolist() == wanted


def test_truncation_in_a_zone_follows_its_clocks(table: Any, run: Any) -> None:
    texts = ["2026-03-08T04:59:59Z", "2026-03-08T05:00:00Z", "2026-03-09T03:59:59Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]
    rows = table((TIMESTAMP, [parse_timestamp(t) for t in texts]))
    place = Literal(TEXT, "America/New_York")
    days = run(call("date_trunc", [Literal(TEXT, "day"), rows.refs[0], place]), rows).values
    assert [format_timestamp(d) for d in days] == [
        "2026-03-07T05:00:00Z",
        "2026-03-08T05:00:00Z",
        "2026-03-08T05:00:00Z",
        "2026-11-01T04:00:00Z",
        "2026-11-01T04:00:00Z",
    ]
    hours = run(call("date_trunc", [Literal(TEXT, "hour"), rows.refs[0], place]), rows).values
    assert [format_timestamp(h) for h in hours[3:]] == ["2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z"]
    assert run(call("extract", rows.refs, ("hour", "America/New_York")), rows).values == [23, 0, 23, 1, 1]


def test_dates_and_intervals_have_fields_too(table: Any, run: Any) -> None:
    rows = table((DATE, [0, -1, None]), (INTERVAL, [DAY + 3_661_500_000, -90_000_000, None]))
    day, step = rows.refs
    assert run(call("extract", [day], ("year",)), rows).values == [1970, 1969, None]
    assert run(call("extract", [day], ("hour",)), rows).values == [0, 0, None]
    assert run(call("year", [day]), rows).values == [1970, 1969, None]
    parts = {"day": [1, 0], "hour": [25, 0], "minute": [1, -1], "second": [1, -30], "milliseconds": [1_500, -30_000]}
    for field, wanted in {**parts, "epoch": [DAY + 3_661_500_000, -90_000_000]}.items():
        assert run(call("extract", [step], (field,)), rows).values == [*wanted, None], field
    assert run(call("date_trunc", [Literal(TEXT, "minute"), step]), rows).values == [DAY + 3_660_000_000, -60_000_000, None]
    with pytest.raises(TypeProblem, match="does not know the unit 'year'"):
        call("extract", [step], ("year",))


def test_far_ends_are_row_errors_and_do_not_wrap(table: Any, run: Any) -> None:
    least = -(2**63) + 1
    rows = table((TIMESTAMP, [least, 2**63 - 1, 0]))
    for unit in ("hour", "week", "year"):
        outcome = run(call("date_trunc", [Literal(TEXT, unit), rows.refs[0]]), rows)
        assert outcome.values[0] is None
        assert outcome.values[1] is not None
        assert outcome.errors == {0: ["TIMESTAMP overflow"]}
    assert run(call("extract", rows.refs, ("epoch",)), rows).values == [None, None, 0]
    assert run(call("extract", rows.refs, ("year",)), rows).values == [-290308, 294247, 1970]


def test_to_timestamp_takes_seconds_exactly(table: Any, run: Any) -> None:
    rows = table((BIGINT, [1, 2**62, None]), (decimal(20, 7), [15_000_004, 15_000_005, None]), (DOUBLE, [0.5, float("nan"), None]))
    whole, exact, real = rows.refs
    assert run(call("to_timestamp", [whole]), rows) == ([1_000_000, None, None], {1: ["TIMESTAMP overflow"]})
    assert run(call("to_timestamp", [exact]), rows).values == [1_500_000, 1_500_001, None]
    assert run(call("to_timestamp", [real]), rows) == ([500_000, None, None], {1: ["TIMESTAMP overflow"]})


def test_the_watermark_is_per_row_and_unknown_without_one(table: Any, run: Any) -> None:
    from millstream.engine.expressions.compile import compile_expression

    rows = table((INT, [1, 2, 3]))
    now = call("current_watermark", [])
    assert run(now, rows).values == [0, 1, 2]
    assert run(call("if", [call(">", [rows.refs[0], Literal(INT, 1)]), now, Literal(TIMESTAMP, 9)]), rows).values == [9, 1, 2]
    column = compile_expression(now)(rows, EvaluationContext())
    assert column.valid is not None
    assert not column.valid.any()
    unset = compile_expression(now)(rows, EvaluationContext(lambda: np.array([-(2**63), 0, 1])))
    assert unset.valid is not None
    assert unset.valid.tolist() == [False, True, True]


def test_units_and_zones_are_checked_when_bound(table: Any) -> None:
    rows = table((TIMESTAMP, [0]), (TEXT, ["hour"]))
    for arguments, message in (
        ([Literal(TEXT, "fortnight"), rows.refs[0]], "does not know the unit 'fortnight'"),
        ([Literal(TEXT, "day"), rows.refs[0], Literal(TEXT, "Mars/Olympus")], "no time zone 'Mars/Olympus'"),
        ([rows.refs[1], rows.refs[0]], "needs its unit as a constant"),
        ([Literal(TEXT, "day"), rows.refs[1]], "must be a TIMESTAMP, DATE or INTERVAL"),
    ):
        with pytest.raises(TypeProblem, match=message):
            call("date_trunc", arguments)
    with pytest.raises(TypeProblem, match="needs a field"):
        call("extract", [rows.refs[0]])


def test_constants_of_time_are_written_out() -> None:
    assert text_constant("1970-01-02", DATE) == Literal(DATE, 1)
    assert text_constant("1 day", INTERVAL) == Literal(INTERVAL, DAY)
    with pytest.raises(TypeProblem, match="is not TIMESTAMP"):
        text_constant("noon", TIMESTAMP)
    assert isinstance(call("date_trunc", [Literal(TEXT, "day"), text_constant("1970-01-02", TIMESTAMP)]), Call)
