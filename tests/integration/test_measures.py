"""What a running server measures of its outputs, and where it shows: SHOW, EXPLAIN QOS, `millstream top`, the metrics port."""

from __future__ import annotations

import re
from typing import Any

from millstream.server.net.metrics import ServerCollector, pages

from tests.support.live_server import Harness, run, until

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"


async def published(harness: Harness) -> Any:
    client = await harness.client()
    await client.execute(STREAM)
    await client.execute("CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS NEVER SHED")
    await client.submit("SELECT v FROM s WITH (class = 'gold', qos = '0ms:1, 20000ms:1, 30000ms:0')", name="fast")
    await client.submit("SELECT v FROM s WHERE v > 1000", name="silent")
    for number in range(1, 4):
        await client.publish("s", [{"ts": number, "v": number}, {"ts": number, "v": number}])
    await until(lambda: harness.server.application.host.runtime.statistics().rows_emitted == 6, "six results have left")
    return client


def test_latency_and_utility_stand_beside_queries_classes_and_promises() -> None:
    async def test(harness: Harness) -> None:
        client = await published(harness)
        queries = {r["name"]: r for r in await client.execute("SHOW QUERIES")}
        assert (queries["fast"]["results"], queries["silent"]["results"]) == (6, 0)
        assert 0 < queries["fast"]["latency_ms"] <= 1.012 * queries["fast"]["latency_p99_ms"] < 20_000
        assert queries["fast"]["slowdown"] > 0
        assert queries["fast"]["utility"] == 1.0
        assert queries["silent"]["latency_ms"] is None
        classes = {r["name"]: r for r in await client.execute("SHOW CLASSES")}
        assert classes["gold"]["results"] == 6
        assert classes["gold"]["latency_ms"] == queries["fast"]["latency_ms"]
        assert (classes["gold"]["loss_percent"], classes["default"]["results"]) == (0.0, 0)
        told = {r["promise"]: r["measured"] for r in await client.execute("EXPLAIN QOS fast")}
        assert "of 6 results" in told["delay target"]
        assert told["latency utility"] == "1 on average, 0 results later than where it begins to fall"
        assert told["shedding"] == "0 of 6 rows shed"
        assert re.fullmatch(r"p99 \S+ ms after its row, at most \S+ ms", told["deadline"])
        planned = await client.execute("EXPLAIN QOS SELECT v FROM s")
        assert {r["measured"] for r in planned} == {None}

    run(test)


def test_show_measures_has_a_row_for_all_for_each_class_and_each_query_of_the_last_run_too() -> None:
    async def test(harness: Harness) -> None:
        client = await published(harness)
        await client.execute("STOP QUERY fast")
        found = {(r["scope"], r["name"]): r for r in await client.execute("SHOW MEASURES")}
        assert set(found) == {("all", None), ("class", "default"), ("class", "gold"), ("query", "fast"), ("query", "silent")}
        for key in (("all", None), ("class", "gold"), ("query", "fast")):
            one = found[key]
            assert one["results"] == 6
            assert 0 < one["latency_p50_ms"] <= one["latency_p95_ms"] <= one["latency_p99_ms"] <= one["latency_max_ms"]
            assert one["latency_ms"] * 6**0.5 <= 1.000001 * one["latency_l2_ms"]
            assert 0 < one["staleness"] < 1 or key[0] != "query"
        whole = {r["measure"]: r["value"] for r in await client.execute("SHOW SCHEDULER")}
        assert float(whole["memory_bytes_max"]) > 0
        assert 0 < float(whole["deciding_share"]) < 1

    run(test)


def test_the_metrics_port_gives_what_was_measured() -> None:
    async def test(harness: Harness) -> None:
        await published(harness)
        collector = ServerCollector(harness.server.application)
        await collector.measure()
        status, _, body = pages(collector)["/metrics"]()
        text = body.decode()
        assert status == 200
        assert 'millstream_query_latency_seconds{quantile="0.99",query="fast"}' in text
        assert 'millstream_query_latency_results_total{query="fast"} 6.0' in text
        assert 'millstream_class_utility{class="gold"} 1.0' in text
        assert "millstream_scheduler_deciding_share 0." in text

    run(test)
