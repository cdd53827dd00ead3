"""A fault in the scheduler itself ends the server, and says so: one that takes rows and runs nothing helps nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.events import Arrived
from millstream.server.errors import Broken
from millstream.server.live import LiveServer, _serve
from millstream.server.net.metrics import ServerCollector, pages

from tests.support.live_server import TEST_CONFIG, Harness, run, until


@pytest.fixture
def torn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scheduler fail at the first row that arrives."""
    handle = SchedulerCore.handle

    def fails(core: SchedulerCore, events: Sequence[Any], now_ns: int) -> Any:
        if any(isinstance(event, Arrived) for event in events):
            raise RuntimeError("torn")
        return handle(core, events, now_ns)

    monkeypatch.setattr(SchedulerCore, "handle", fails)


async def publish_one(client: Any) -> None:
    await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
    await client.submit("SELECT v FROM s", name="q")
    await client.publish("s", [{"ts": 1, "v": 1}])


@pytest.mark.usefixtures("torn")
def test_health_tells_that_the_scheduler_has_ended_and_the_server_can_still_be_stopped() -> None:
    async def test(harness: Harness) -> None:
        application = harness.server.application
        client = await harness.client()
        page = pages(ServerCollector(application))["/healthz"]
        assert page()[0] == 200
        await publish_one(client)
        await until(lambda: bool(application.broken), "the fault is told")
        assert application.broken == "the scheduler thread ended: RuntimeError: torn"
        assert page()[0] == 503

    run(test)


@pytest.mark.usefixtures("torn")
def test_a_server_whose_scheduler_ends_leaves_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[LiveServer] = []
    settle = LiveServer.settle

    async def settled(server: LiveServer) -> None:
        await settle(server)
        started.append(server)

    monkeypatch.setattr(LiveServer, "settle", settled)

    async def whole() -> None:
        serving = asyncio.create_task(_serve(TEST_CONFIG))
        await until(lambda: bool(started), "it has started")
        client = await Harness(started[0]).client()
        await publish_one(client)
        with pytest.raises(Broken, match=r"RuntimeError: torn.*start the server again"):
            await asyncio.wait_for(serving, 20.0)
        await client.close()

    asyncio.run(whole())
