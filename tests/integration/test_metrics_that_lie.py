"""Counts of what was late, refused, failed and shed are the same everywhere, and add up (C42, C31, C32)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from millstream.client import cli

from tests.support.live_server import Harness, rows_of, run, until
from tests.support.services import free_port

WINDOW = "SELECT window_start, COUNT(*) AS n, SUM(100 / v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
EXPECTED = {"accepted": 995, "processed": 846, "late": 37, "failed": 12, "shed": 100}


async def metrics(harness: Harness) -> dict[str, float]:
    """Return the samples of the metrics page by name and labels."""
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.server.metrics_port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return {m[1]: float(m[2]) for m in re.finditer(r"^(\w+(?:\{[^}]*\})?) ([0-9.e+-]+)$", text, re.MULTILINE)}


Printed = Callable[..., Awaitable[tuple[list[str], list[str]]]]


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Printed:
    """Run a command in a thread of its own; returns the lines that it wrote to stdout and stderr."""

    async def call(harness: Harness, *arguments: str) -> tuple[list[str], list[str]]:
        capfd.readouterr()
        await asyncio.to_thread(cli.run, [*arguments, "--server", harness.address])
        out, err = capfd.readouterr()
        return out.splitlines(), err.splitlines()

    return call


def test_late_malformed_failed_and_shed_rows_are_the_same_numbers_in_metrics_cli_and_final_frame(printed: Printed) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        host = harness.server.application.host
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
        await client.execute("CREATE CLASS low PRIORITY 1 SHED")
        await client.submit(WINDOW, name="sums", class_="low")
        subscription = await client.subscribe("sums")

        def shed(ratio: float) -> None:
            host.network.set_drop_ratio("s", host.class_nodes["low"].id, ratio)

        bad = [{"ts": 100, "v": "x"}, {"ts": None, "v": 1}, {"ts": 100, "v": 1.5}, {"v": 3}, {"ts": "soon", "v": 1}]
        ack = await client.publish("s", [*[{"ts": 100 + n // 100, "v": n + 1} for n in range(846)], *bad])
        assert (ack.accepted, ack.rejected_rows) == (846, 5)
        await client.publish("s", [{"ts": 120, "v": 0}] * 12)
        await client.publish("s", [{"ts": 1, "v": 1}] * 37)
        shed(1.0)
        await client.publish("s", [{"ts": 130, "v": 1}] * 100)
        shed(0.0)
        await until(lambda: host.counts(host.queries.get("sums")).get("queued") == 0, "all is worked off")

        found = await metrics(harness)
        assert {n: int(found[f'millstream_query_{n}_total{{query="sums"}}']) for n in EXPECTED} == EXPECTED
        assert found['millstream_stream_accepted_total{stream="s"}'] == 995
        assert found['millstream_stream_refused_total{stream="s"}'] == 5
        assert found['millstream_stream_shed_total{class="low",stream="s"}'] == 100
        ((query_line,), _) = await printed(harness, "query", "list", "--format", "json")
        query = json.loads(query_line)
        assert {n: query[n] for n in EXPECTED} == EXPECTED
        ((stream_line,), _) = await printed(harness, "stream", "list", "--format", "json")
        stream = json.loads(stream_line)
        assert (stream["accepted"], stream["refused"]) == (995, 5)
        await client.finish("s")
        rows = (await subscription.to_arrow()).to_pylist()
        assert sum(row["n"] for row in rows) == 846 + 12
        assert subscription.end is not None
        assert {n: subscription.end.counts[n] for n in EXPECTED} == EXPECTED
        assert not host.unbalanced()

    run(test, metrics_port=free_port())


def test_after_a_malformed_record_good_ones_pass_and_the_bad_ones_are_told(printed: Printed, tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (t BIGINT, w BIGINT) TIMESTAMP BY t UNIT s ON ERROR INTO bad")
        await client.submit("SELECT t, w FROM s", name="good")
        good = await client.subscribe("good")
        lines = [b'{"t":1,"w":1}', b'{"t":1234567890iiii,"w":1}', b'{"t":2,"w":2}', b'{"t":3,"w":"\xff\xfe"}', b'{"t":3,"w":3}']
        file = tmp_path / "rows.jsonl"
        file.write_bytes(b"\n".join(lines) + b"\n")
        _, messages = await printed(harness, "publish", "s", str(file))
        assert any("2" in message for message in messages), messages
        assert [r["w"] for r in await rows_of(good, 3)] == [1, 2, 3]
        host = harness.server.application.host
        assert host.intakes["s"].accepted_total == 3

    run(test)


def test_an_ack_counts_what_a_later_count_finds() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (k BIGINT NOT NULL, v INT)")
        await client.submit("SELECT COUNT(*) AS n FROM s EMIT FINAL", name="counted")
        subscription = await client.subscribe("counted")
        train = [{"k": 1, "v": 1}, {"v": 2}, {"k": 2, "v": 2}, {"k": 3, "v": "text"}, {"k": 4, "v": 4}, {"k": 5, "v": 5, "extra": 1}]
        ack = await client.publish("s", train)
        assert ack.accepted + ack.rejected_rows == 6
        assert [r.index for r in ack.rejected][:2] == [1, 3]
        assert all(r.reason for r in ack.rejected)
        await client.finish("s")
        assert (await subscription.to_arrow()).to_pylist() == [{"n": ack.accepted}]

    run(test)
