"""Users' functions in the daemon: admins make them, a restart finds them without their file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, rows_of, run, running

CREATE = "CREATE FUNCTION double_of(x BIGINT) RETURNS BIGINT FROM '{file}'"


def test_a_restart_finds_a_function_and_the_queries_that_call_it(tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text("def double_of(x):\n    return 2 * x\n", "utf-8")

    async def first() -> None:
        async with running(data_dir=str(tmp_path / "data")) as harness:
            client = await harness.client()
            await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
            await client.execute(CREATE.format(file=file))
            await client.execute("CREATE STREAM doubled AS SELECT ts, double_of(v) AS v FROM s")
            await client.submit("SELECT double_of(v) AS w FROM doubled", name="q")
            with pytest.raises(MillstreamError, match="called by doubled, q"):
                await client.execute("DROP FUNCTION double_of")

    async def again() -> None:
        async with running(data_dir=str(tmp_path / "data")) as harness:
            client = await harness.client()
            subscription = await client.subscribe("q")
            await client.publish("s", [{"ts": 1, "v": 3}])
            assert await rows_of(subscription, 1) == [{"w": 12}]

    asyncio.run(first())
    file.unlink()
    asyncio.run(again())


def test_only_an_admin_makes_functions(tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text("def double_of(x):\n    return 2 * x\n", "utf-8")

    async def test(harness: Harness) -> None:
        for token in ("w", "r"):
            client = await harness.client(token=token)
            with pytest.raises(MillstreamError) as caught:
                await client.execute(CREATE.format(file=file))
            assert caught.value.code == "forbidden"
            assert list(await client.execute("SHOW FUNCTIONS")) == []

    run(test, admin_token="a", writer_token="w", reader_token="r")
