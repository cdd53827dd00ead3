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
