"""The load manager of a live server: how it is chosen, where it shows, and that what it says reaches the log of a class."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from millstream.scheduler.instructions import SetDropRatio
from millstream.server.config import load_config, policy_at_start
from millstream.server.errors import ConfigError
from millstream.server.net.metrics import ServerCollector, pages

from tests.support.live_server import Harness, run, until

CLASSES = (
    "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us",
    "CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS NEVER SHED",
    "CREATE CLASS low PRIORITY 1 TARGET 100 MILLISECONDS SHED",
)


async def begun(harness: Harness) -> Any:
    client = await harness.client()
    for statement in CLASSES:
        await client.execute(statement)
    await client.submit("SELECT v FROM s WITH (class = 'gold')", name="g")
    await client.submit("SELECT v FROM s WHERE v >= 0 WITH (class = 'low')", name="l")
    return client


@pytest.mark.parametrize(
    ("flags", "policy"),
    [({}, "fcfs"), ({"load": "dilos"}, "cqc"), ({"load": "class", "policy": "hnr"}, "hnr"), ({"policy": "cqc:k=5"}, "cqc:k=5")],
)
def test_a_load_manager_brings_the_policy_that_has_quotas_unless_another_is_named(flags: dict[str, str], policy: str) -> None:
    assert policy_at_start(load_config(flags, {}, None)) == policy


def test_an_unknown_load_manager_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({"load": "ration"}, {}, None)
    assert "must be one of none, common, class, dilos" in str(refused.value)


def test_classes_show_load_headroom_quota_and_drop_also_on_the_metrics_port() -> None:
    async def test(harness: Harness) -> None:
        client = await begun(harness)
        shown = {r["name"]: r for r in await client.execute("SHOW CLASSES")}
        assert shown["gold"]["load"] is None  # nothing has come yet
        host = harness.server.application.host
        for number in range(100):
            await client.publish("s", [{"ts": number, "v": number}])
            if host.runtime.loads():
                break
            await asyncio.sleep(0.01)
        shown = {r["name"]: r for r in await client.execute("SHOW CLASSES")}
        assert (shown["gold"]["quota"], shown["low"]["quota"]) == (pytest.approx(6 / 7), pytest.approx(1 / 7))
        assert (shown["low"]["headroom"], shown["low"]["drop_percent"]) == (pytest.approx(1 / 7, abs=0.2), 0.0)
        assert shown["gold"]["load"] > 0.0
        assert shown["default"]["load"] is None  # no query
        collector = ServerCollector(harness.server.application)
        await collector.measure()
        text = pages(collector)["/metrics"]()[2].decode()
        assert re.search(r'millstream_class_headroom\{class="gold"\} 0\.\d+', text)
        assert 'millstream_class_drop_ratio{class="low"} 0.0' in text

    run(test, load="class")


def test_a_drop_ratio_reaches_the_log_of_the_class_alone() -> None:
    async def test(harness: Harness) -> None:
        client = await begun(harness)
        host = harness.server.application.host
        (low,) = host.network.sources["s"].shed_logs.values()
        host._instructed(SetDropRatio(low.log.id, 1.0))
        host._instructed(SetDropRatio(host.network.sources["s"].log.id, 1.0))  # what nobody may shed
        await client.publish("s", [{"ts": number, "v": number} for number in range(20)])
        await until(lambda: host.runtime.statistics().idle, "everything has been worked off")
        shed = {name: [account.shed for account in host.accounts(host.queries.get(name))] for name in "gl"}
        assert shed == {"g": [0], "l": [20]}
        classes = {r["name"]: r["loss_percent"] for r in await client.execute("SHOW CLASSES")}
        assert (classes["gold"], classes["low"]) == (0.0, 100.0)

    run(test, load="class")
