"""Times and dates that the wire can carry and Python's own cannot."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.live_server import Harness, rows_of, run

DAYS = [2**31 - 1, -(2**31), 2_932_897]  # the last: the day after the year 9999
MICROSECONDS = 1 << 61
STREAM = "CREATE STREAM s (ts BIGINT, d DATE, at TIMESTAMP, k BIGINT) TIMESTAMP BY ts UNIT us{}"


def rows(days: int, times: list[int | None]) -> Any:
    count = len(times)
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "d": pa.array([days] * count, pa.int32()).view(pa.date32()),
            "at": pa.array([MICROSECONDS] * count, pa.int64()).view(pa.timestamp("us", "UTC")),
            "k": pa.array([0] * count, pa.int64()),
        }
    )


@pytest.mark.parametrize("days", DAYS)
def test_a_bad_row_with_a_far_date_is_refused_alone(days: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format(""))
        async with await client.publisher("s") as channel:
            await channel.send(rows(days, [5, None]))
            ack = await channel.flush()
        assert (ack.accepted, [r.index for r in ack.rejected]) == (1, [1])

    run(test)


@pytest.mark.parametrize("days", DAYS)
def test_far_times_and_dates_reach_a_reader_without_arrow(days: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format(""))
        await client.submit("SELECT d, at FROM s", name="plain")
        lists = "ARRAY_AGG(d) AS days, ARRAY_AGG(at) AS times, TOP(d, 1) AS best, APPROX_TOP_K(at, 1) AS often"
        await client.submit(f"SELECT {lists} FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]", name="lists")
        plain = await client.subscribe("plain", format="msgpack")
        listed = await client.subscribe("lists", format="msgpack")
        async with await client.publisher("s") as channel:
            await channel.send(rows(days, [5]))
            await channel.flush()
        await client.finish("s")
        far = MICROSECONDS
        assert await anext(aiter(plain)) == [{"d": days, "at": far}]
        assert await anext(aiter(listed)) == [{"days": [days], "times": [far], "best": [days], "often": [far]}]

    run(test)


@pytest.mark.parametrize("days", DAYS)
def test_a_row_with_far_times_that_fails_goes_to_the_error_output(days: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM bad (query TEXT, reason TEXT, position BIGINT, raw TEXT)")
        await client.execute(STREAM.format(" ON ERROR INTO bad"))
        await client.submit("SELECT 1 / k AS x FROM s", name="q")
        await client.submit("SELECT raw FROM bad", name="errors")
        results, errors = await client.subscribe("q"), await client.subscribe("errors")
        async with await client.publisher("s") as channel:
            await channel.send(rows(days, [5]))
            await channel.flush()
        assert await rows_of(errors, 1) == [{"raw": f"5,{days},{MICROSECONDS},0"}]
        assert await rows_of(results, 1) == [{"x": None}]

    run(test)


LISTS = "(SELECT k, ARRAY_AGG({0}) AS l, ARRAY_AGG({0}) AS m FROM s [RANGE 1 MICROSECONDS SLIDE 1 MICROSECONDS] GROUP BY k)"
WINDOWS = [
    "[RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]",
    "[RANGE 10 MICROSECONDS]",
    "[ROWS 2]",
    "[SESSION 3 MICROSECONDS]",
    "EMIT CHANGES",
]


@pytest.mark.parametrize(("column", "value"), [("at", MICROSECONDS), ("d", DAYS[0]), ("d", DAYS[1]), ("at - zero", MICROSECONDS)])
def test_lists_of_far_times_are_compared_counted_and_kept(column: str, value: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM.format("").replace(", k", ", zero TIMESTAMP, k"))
        lists = LISTS.format(column)
        queries = {f"ends{n}": f"SELECT FIRST(l) AS a, LAST(m) AS b FROM {lists} {window}" for n, window in enumerate(WINDOWS)}
        queries["distinct"] = f"SELECT COUNT(DISTINCT l) AS a, APPROX_COUNT_DISTINCT(l) AS b FROM {lists} {WINDOWS[0]}"
        queries["equal"] = f"SELECT l AS a, m AS b FROM {lists} WHERE l = m AND NOT l <> m AND l IS NOT DISTINCT FROM m"
        for name, text in queries.items():
            await client.submit(text, name=name)
        read = {name: await client.subscribe(name, format="msgpack") for name in queries}
        async with await client.publisher("s") as channel:
            table = rows(value if column == "d" else 0, [5]).append_column("zero", pa.array([0], pa.timestamp("us", "UTC")))
            await channel.send(table)
            await channel.flush()
        await client.finish("s")
        for name, subscription in read.items():
            answer = await anext(aiter(subscription))
            op = {"op": "+"} if "EMIT CHANGES" in queries[name] else {}
            assert answer == [({"a": 1, "b": 1} if name == "distinct" else {"a": [value], "b": [value]}) | op], name

    run(test)
