"""GROUP BY over hopping and tumbling windows: against a naive reference, for any train, and the cases from the field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INT, TEXT, TIMESTAMP, DataType, decimal
from millstream.engine.language.recipes import AggregateCall, AggregateRecipe, WindowKind, WindowSpec
from millstream.engine.plan.physical import PhysicalNode, SourceNode

from tests.support.engine_run import SECOND, Engine, SqlEngine, node, schema_of
from tests.support.reference_windows import HoppingReference, average, extreme, fold_sum, rounded_average, same

WIDE = decimal(38, 0)
PRICE = decimal(9, 2)
SCHEMA = schema_of(ts=TIMESTAMP, k=BIGINT, v=DOUBLE, b=BIGINT, i=INT, p=PRICE, t=TEXT, f=BOOLEAN)
CALLS: list[tuple[str, int | None, DataType, int | None]] = [
    ("count", None, BIGINT, None),
    ("count", 2, BIGINT, None),
    ("sum", 2, DOUBLE, None),
    ("avg", 2, DOUBLE, None),
    ("min", 2, DOUBLE, None),
    ("max", 2, DOUBLE, None),
    ("sum", 3, WIDE, None),
    ("avg", 3, DOUBLE, None),
    ("max", 3, BIGINT, None),
    ("sum", 4, BIGINT, 7),
    ("sum", 5, decimal(38, 2), None),
    ("avg", 5, decimal(13, 6), None),
    ("min", 6, TEXT, None),
    ("max", 6, TEXT, 7),
    ("count", None, BIGINT, 7),
]


def aggregate(
    source: SourceNode | PhysicalNode,
    schema: Schema,
    window: WindowSpec,
    keys: tuple[int, ...],
    calls: Sequence[tuple[str, int | None, DataType, int | None]],
) -> PhysicalNode:
    fields = [schema.fields[k] for k in keys]
    fields += [Field(f"a{n}", c[2]) for n, c in enumerate(calls)]
    fields += [Field("window_start", TIMESTAMP), Field("window_end", TIMESTAMP)]
    made = tuple(AggregateCall(c[0], () if c[1] is None else (c[1],), c[2], c[3]) for c in calls)
    return node(AggregateRecipe(Schema(tuple(fields)), window, keys, made), source)


def hopping(size: int, slide: int, offset: int = 0) -> WindowSpec:
    return WindowSpec(WindowKind.HOPPING, range_us=size, slide_us=slide, offset_us=offset)


def tumbling(size: int) -> WindowSpec:
    return hopping(size, size)


VALUES = st.tuples(
    st.integers(0, 3) | st.none(),
    st.floats(width=32) | st.none(),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.none(),
    st.integers(-(2**31), 2**31 - 1) | st.none(),
    st.decimals("-9999999.99", "9999999.99", places=2) | st.none(),
    st.text(max_size=2) | st.none(),
    st.booleans() | st.none(),
)


def expected_row(reference: HoppingReference, end: int, start: int, group: Any, rows: list[Any]) -> tuple[Any, ...]:
    def column(i: int, filter_: bool = False) -> list[list[Any]]:
        return [[r[i] for r in pane if not filter_ or r[7]] for pane in reference.panes(rows)]

    def flat(i: int, filter_: bool = False) -> list[Any]:
        return [v for pane in column(i, filter_) for v in pane]

    prices = [v for v in flat(5) if v is not None]
    totals = fold_sum(column(3))
    return (
        *group,
        len(rows),
        sum(v is not None for v in flat(2)),
        fold_sum(column(2)),
        average(column(2)),
        extreme(flat(2), False),
        extreme(flat(2), True),
        None if totals is None else Decimal(totals),
        average(column(3)),
        extreme(flat(3), True),
        fold_sum(column(4, True)),
        fold_sum(column(5)),
        rounded_average(prices, 6) if prices else None,
        extreme(flat(6), False),
        extreme(flat(6, True), True),
        sum(bool(r[7]) for r in rows),
        start,
        end,
    )


ZEROS = (0, 0.0, 0, 0, None, None, False)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(-3, 3),
    st.integers(0, 6),
    st.booleans(),
    st.lists(st.tuples(st.integers(-4, 6), VALUES), max_size=40),
    st.sampled_from([1, 3, 7, 4096]),
    st.sampled_from([1, 5, 100]),
)
@example(1, 1, 0, 1, False, [*[(0, ZEROS)] * 3, (-1, ZEROS)], 3, 1)  # in order by W, though a later row has an earlier time
def test_any_hopping_window_agrees_with_the_reference(
    size: int, slide: int, offset: int, delay: int, keyed: bool, drawn: list[Any], train: int, chunk: int
) -> None:
    now = 0
    rows = []
    for step, values in drawn:
        now += step
        rows.append((now, *values))
    reference = HoppingReference(size, slide, delay, offset, (lambda r: (r[1],)) if keyed else lambda r: ())
    engine = Engine(train=train)
    source = engine.stream("s", SCHEMA, delay_us=delay)
    keys = (1,) if keyed else ()
    engine.query("q", aggregate(source, SCHEMA, hopping(size, slide, offset), keys, CALLS))
    for start in range(0, len(rows), chunk):
        engine.put("s", rows[start : start + chunk])
        if start % 2:
            engine.work()
    engine.end()
    engine.work()
    for row in rows:
        reference.row(row)
    reference.advance(math.inf)
    expected = [expected_row(reference, *answer) for answer in reference.answers]
    assert same(engine.rows("q"), expected), (engine.rows("q"), expected)
    account = engine.account("q")["s"]
    assert account.balances
    assert (account.late, account.partly_late) == (len(reference.late), reference.partly_late)


def counts(window: WindowSpec, chunks: Sequence[Sequence[int]], **rule: Any) -> tuple[list[tuple[Any, ...]], Any]:
    schema = schema_of(ts=TIMESTAMP)
    engine = Engine()
    engine.query("q", aggregate(engine.stream("s", schema, **rule), schema, window, (), [("count", None, BIGINT, None)]))
    for chunk in chunks:
        engine.put("s", [(t,) for t in chunk])
        engine.work()
    engine.end()
    engine.work()
    return [(start, n) for n, start, _ in engine.rows("q")], engine.account("q")["s"]


def test_windows_before_the_epoch_floor_c01() -> None:
    rows, _ = counts(tumbling(60_000), [[-60_001, -60_000, -1, 0]])
    assert rows == [(-120_000, 1), (-60_000, 2), (0, 1)]


def test_a_hop_need_not_divide_the_size_c03() -> None:
    rows, _ = counts(hopping(5, 2), [[-1, 4, 7]])
    assert rows == [(-4, 1), (-2, 1), (0, 1), (2, 1), (4, 2), (6, 1)]


@pytest.mark.parametrize(("size", "slide"), [(0, 1), (1, 0), (-1, -1)])
def test_zero_and_negative_sizes_are_refused_c03(size: int, slide: int) -> None:
    with pytest.raises(InvalidDefinition, match="must be positive"):
        counts(hopping(size, slide), [])


def test_the_first_window_starts_at_the_data_not_at_the_clock_c04() -> None:
    results = []
    for year in (2020, 2040):
        schema = schema_of(ts=TIMESTAMP)
        engine = Engine()
        engine.now_us = (year - 1970) * 31_557_600 * SECOND
        engine.query("q", aggregate(engine.stream("s", schema), schema, tumbling(10_000), (), [("count", None, BIGINT, None)]))
        engine.put("s", [(1000,), (2000,), (11_000,)])
        engine.end()
        engine.work()
        results.append(engine.rows("q"))
    assert results[0] == results[1] == [(2, 0, 10_000), (1, 10_000, 20_000)]


@pytest.mark.parametrize("cuts", [[[10, 10, 20]], [[10], [10], [20]], [[10, 10], [20]]])
def test_equal_times_with_no_delay_are_not_late_c06(cuts: list[list[int]]) -> None:
    rows, account = counts(tumbling(10), cuts)
    assert rows == [(10, 2), (20, 1)]
    assert account.late == 0


def test_late_inside_the_bound_counts_c09() -> None:
    rows, account = counts(tumbling(60), [[0, 61, 30, 125, 50]], delay_us=60)
    assert rows == [(0, 2), (60, 1), (120, 1)]
    assert account.late == 1


def test_the_end_of_the_stream_closes_each_open_window_once_c11() -> None:
    rows, _ = counts(tumbling(10), [[1, 11], [12]])
    assert rows == [(0, 1), (10, 2)]


def test_a_future_row_beyond_the_skew_does_not_move_the_watermark_c07() -> None:
    minute = 60 * SECOND
    schema = schema_of(ts=TIMESTAMP)
    engine = Engine()
    source = engine.stream("s", schema, delay_us=minute, skew_us=5 * minute)
    engine.query("q", aggregate(source, schema, tumbling(minute), (), [("count", None, BIGINT, None)]))
    for stamp in (0, 2, 24 * 60, *range(3, 13)):
        engine.now_us = (stamp if stamp < 100 else 2) * minute
        engine.put("s", [(stamp * minute,)])
    engine.work()
    engine.end()
    engine.work()
    assert [n for n, *_ in engine.rows("q")] == [1] * 13
    assert engine.account("q")["s"].late == 0
    assert engine.network.sources["s"].future_skew == 1


def test_sums_of_big_integers_do_not_wrap_c21() -> None:
    schema = schema_of(ts=TIMESTAMP, v=BIGINT)
    engine = Engine()
    call: list[tuple[str, int | None, DataType, int | None]] = [("sum", 1, WIDE, None)]
    engine.query("q", aggregate(engine.stream("s", schema), schema, hopping(4, 2), (), call))
    engine.put("s", [(0, 2**63 - 1), (1, 1), (3, -5)])
    engine.end()
    engine.work()
    assert [row[0] for row in engine.rows("q")] == [Decimal(2**63), Decimal(2**63 - 5), Decimal(-5)]


def test_equal_doubles_are_one_group_c22() -> None:
    schema = schema_of(ts=TIMESTAMP, d=DOUBLE)
    engine = Engine()
    engine.query("q", aggregate(engine.stream("s", schema), schema, tumbling(10), (1,), [("count", None, BIGINT, None)]))
    engine.put("s", [(0, 0.0), (0, -0.0), (1, math.nan), (1, -math.nan)])
    engine.end()
    engine.work()
    assert same([row[:2] for row in engine.rows("q")], [(0.0, 2), (math.nan, 2)])


def test_a_nan_leaves_with_its_window_c19() -> None:
    schema = schema_of(ts=TIMESTAMP, v=DOUBLE)
    engine = Engine()
    call: list[tuple[str, int | None, DataType, int | None]] = [("avg", 1, DOUBLE, None), ("max", 1, DOUBLE, None)]
    engine.query("q", aggregate(engine.stream("s", schema), schema, hopping(3, 1), (), call))
    engine.put("s", [(i, v) for i, v in enumerate([1.0, 2.0, 3.0, math.nan, 1.0, 2.0, 3.0, 4.0])])
    engine.end()
    engine.work()
    means = [row[0] for row in engine.rows("q")]
    assert same(means, [1.0, 1.5, 2.0, math.nan, math.nan, math.nan, 2.0, 3.0, 3.5, 4.0])


def test_state_is_freed_with_its_windows() -> None:
    schema = schema_of(ts=TIMESTAMP, k=BIGINT)
    engine = Engine()
    delta = engine.query("q", aggregate(engine.stream("s", schema), schema, hopping(20, 10), (1,), [("count", None, BIGINT, None)]))
    operator = engine.network.operators[next(o.id for o in delta.operators if o.kind == "aggregate")].logic
    for start in range(0, 20_000, 100):
        engine.put("s", [(t, t * 1_000_003) for t in range(start, start + 100)])
        engine.work()
        assert operator.state_rows() <= 4 * 200
    assert operator.state_bytes() < 200_000
    engine.end()
    engine.work()
    assert operator.state_rows() == 0


def test_a_row_between_windows_is_processed_and_not_late() -> None:
    rows, account = counts(hopping(2, 5), [[0, 3, 5, 9, 10]])
    assert rows == [(0, 1), (5, 1), (10, 1)]
    assert (account.late, account.processed) == (0, 5)


def test_an_idle_flush_closes_open_windows_and_later_rows_are_late_c10() -> None:
    schema = schema_of(ts=TIMESTAMP)
    engine = Engine()
    source = engine.stream("s", schema, idle_us=3 * SECOND, idle_flush=True)
    engine.query("q", aggregate(source, schema, tumbling(2 * SECOND), (), [("count", None, BIGINT, None)]))
    engine.put("s", [(t,) for t in (0, 1, 2, 3)])
    engine.tick(2 * SECOND)
    engine.work()
    assert engine.rows("q") == []
    assert engine.network.ticks.next_us() == 3 * SECOND
    engine.tick(3 * SECOND)
    engine.work()
    assert engine.rows("q") == [(4, 0, 2 * SECOND)]
    engine.put("s", [(5,), (2 * SECOND,)])
    engine.end()
    engine.work()
    assert engine.rows("q")[1:] == [(1, 2 * SECOND, 4 * SECOND)]
    assert engine.account("q")["s"].late == 1


def test_windows_by_arrival_fire_by_the_clock_c10() -> None:
    schema = schema_of(v=BIGINT)
    engine = Engine()
    engine.query("q", aggregate(engine.stream("s", schema, time=None), schema, tumbling(2 * SECOND), (), [("count", None, BIGINT, None)]))
    engine.tick(SECOND)
    engine.put("s", [(1,), (2,), (3,), (4,)])
    engine.work()
    assert engine.network.ticks.next_us() == 2 * SECOND
    engine.tick(2 * SECOND)
    engine.work()
    assert engine.rows("q") == [(4, 0, 2 * SECOND)]


STREAM = "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts"


def sql_counts(query: str, times: Sequence[int], chunk: int) -> list[Any]:
    engine = SqlEngine(STREAM)
    engine.select(query)
    engine.put("s", [(t,) for t in times], chunk=chunk)
    engine.end()
    engine.work()
    return engine.rows("q")


HOUR = 3600 * SECOND


def instant(text: str) -> int:
    return int(datetime.fromisoformat(text + "+00:00").timestamp()) * SECOND


@pytest.mark.parametrize("chunk", [1, 100])
def test_daily_windows_follow_the_local_calendar_c05(chunk: int) -> None:
    spring = ["2026-03-08T04:59:59", "2026-03-08T05:00:00", "2026-03-09T03:59:59", "2026-03-09T04:00:00"]
    query = "SELECT COUNT(*) AS n, window_start AS a, window_end AS b FROM s [RANGE 1 DAY SLIDE 1 DAY{}]"
    times = [instant(t) for t in spring]
    found = sql_counts(query.format(" TIME ZONE 'America/New_York'"), times, chunk)
    assert [(n, (b - a) // HOUR) for n, a, b in found] == [(1, 24), (2, 23), (1, 24)]
    assert [n for n, *_ in sql_counts(query.format(""), times, chunk)] == [2, 2]


@pytest.mark.parametrize("chunk", [1, 100])
def test_hours_that_occur_twice_are_two_windows_c05(chunk: int) -> None:
    query = "SELECT COUNT(*) AS n, window_start AS a FROM s [RANGE 1 HOUR SLIDE 1 HOUR TIME ZONE 'America/New_York']"
    times = [instant("2026-11-01T05:30:00"), instant("2026-11-01T06:30:00")]
    assert sql_counts(query, times, chunk) == [(1, instant("2026-11-01T05:00:00")), (1, instant("2026-11-01T06:00:00"))]


@pytest.mark.parametrize("chunk", [1, 100])
def test_early_answers_hold_the_rows_below_their_moment(chunk: int) -> None:
    query = "SELECT COUNT(*) AS n, window_start AS a FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] EMIT EVERY 4 MICROSECONDS"
    found = sql_counts(query, [0, 3, 5, 9, 13], chunk)
    assert found == [(2, 0), (3, 0), (4, 0), (1, 10)]


@pytest.mark.parametrize("chunk", [1, 100])
def test_empty_windows_between_the_first_and_the_last_row(chunk: int) -> None:
    query = "SELECT COUNT(*) AS n, MAX(ts) AS m, window_start AS a FROM s [RANGE 2 MICROSECONDS SLIDE 2 MICROSECONDS] EMIT EMPTY"
    assert sql_counts(query, [1, 7], chunk) == [(1, 1, 0), (0, None, 2), (0, None, 4), (1, 7, 6)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 24), max_size=8), st.booleans())
@example([20, 13], False)  # the second comes when the first of its windows has closed: only the other is answered, and what follows
def test_empty_windows_begin_with_the_first_that_was_open_to_a_row(times: list[int], sharing: bool) -> None:
    first, counts = None, dict[int, int]()
    for place, time in enumerate(times):
        passed = max(times[:place], default=-9) - 5
        open_ends = [end for end in range(time // 2 * 2 + 2, time + 5, 2) if end > passed and end - 4 <= time]
        for end in open_ends:
            counts[end] = counts.get(end, 0) + 1
        first = min([*open_ends, *([] if first is None else [first])], default=first)
    last = max(times, default=0) // 2 * 2 + 4
    expected = [] if first is None else [(end, counts.get(end, 0)) for end in range(first, last + 1, 2)]
    for chunk in (1, 3, 100):
        engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts DELAY 5 MICROSECONDS", sharing=sharing)
        engine.select("SELECT window_end, COUNT(*) AS n FROM s [RANGE 4 MICROSECONDS SLIDE 2 MICROSECONDS] EMIT EMPTY")
        for start in range(0, len(times), chunk):
            engine.put("s", [(time,) for time in times[start : start + chunk]])
            engine.work()
        engine.end()
        engine.work()
        assert engine.rows("q") == expected, chunk


@pytest.mark.parametrize("together", [True, False])
def test_groups_come_by_their_first_row_whether_a_pane_was_begun_by_rows_of_many_panes_or_of_one(together: bool) -> None:
    """Rows out of order over several panes are folded at once, later ones of one pane by themselves."""
    begun = [(SECOND * 3, 3), (SECOND * 1, 2), (SECOND * 3, 1), (SECOND * 2, 1)]
    later = [(SECOND * 3, key) for key in (2, 3)]
    engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts DELAY 9 SECONDS")
    engine.select("SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k")
    for rows in (begun, later) if together else [[row] for row in (*begun, *later)]:
        engine.put("s", rows)
        engine.work()
    engine.end()
    engine.work()
    assert [(end // SECOND, key, n) for end, key, n in engine.rows("q")] == [
        (2, 2, 1),
        *((3, key, 1) for key in (2, 1)),
        *((4, 3, 2), (4, 1, 2), (4, 2, 1)),
        *((5, 3, 2), (5, 1, 1), (5, 2, 1)),
    ]
