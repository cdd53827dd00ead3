"""Results that one reader cannot be sent are that reader's trouble alone."""

from __future__ import annotations

import pyarrow as pa

from tests.support.live_server import Harness, rows_of, run


def test_a_result_too_large_for_a_readers_frames_ends_its_subscription_and_nothing_else() -> None:
    async def test(harness: Harness) -> None:
        client, plain = await harness.client(), await harness.client()
        await client.execute("CREATE STREAM s (ts BIGINT, t TEXT) TIMESTAMP BY ts UNIT us")
        await client.submit("SELECT ts, t FROM s", name="q")
        without_arrow = await plain.subscribe("q", format="msgpack")
        with_arrow = await client.subscribe("q")
        ack = await client.publish("s", pa.table({"ts": [1], "t": ["x" * 18_000_000]}))
        assert ack.accepted == 1
        assert [len(row["t"]) for row in await rows_of(with_arrow, 1)] == [18_000_000]
        assert [batch async for batch in without_arrow] == []
        assert without_arrow.end is not None
        assert without_arrow.end.reason == "failed"
        assert "1 rows cannot be sent" in without_arrow.end.message
        assert (await client.publish("s", [{"ts": 2, "t": "y"}])).accepted == 1

    run(test)
