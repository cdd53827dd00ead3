"""Subscriptions that outlive their connection: servers that stop, are killed or cut connections, and results that come once each."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from millstream.client import connect, connect_async
from millstream.client.errors import MillstreamError
from millstream.client.reconnection import Reconnection
from millstream.server.live import LiveServer
from millstream.server.logs import configure_logs, finish_logs

from tests.server.test_serve_process import START_S, start
from tests.support.live_server import TEST_CONFIG, WAIT_S, until

RESTARTS = 10
STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us DURABILITY journal"


class RestartedServer:
    """A server at one port and one data directory, stopped and started again at will."""

    def __init__(self, folder: Path) -> None:
        self._config = replace(TEST_CONFIG, data_dir=str(folder))
        self.server = LiveServer(self._config)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def start(self) -> None:
        await self.server.start()
        self._config = replace(self._config, port=self.server.port)

    async def restart(self) -> None:
        await self.server.stop()
        self.server = LiveServer(self._config)
        await self.server.start()

    def cut(self) -> None:
        """Break every connection off, without a word."""
        for session in list(self.server.application.sessions.values()):
            session.transport.abort()


def run(folder: Path, test: Callable[[RestartedServer], Awaitable[None]]) -> None:
    async def whole() -> None:
        configure_logs("error", "json")
        restarted = RestartedServer(folder)
        await restarted.start()
        try:
            await asyncio.wait_for(test(restarted), 3 * WAIT_S)
        finally:
            await restarted.server.stop()
            finish_logs()

    asyncio.run(whole())


async def publish_on(address: str, acked: list[int], enough: asyncio.Event) -> None:
    """Publish numbers, never one of them twice, whatever becomes of the server; `acked` gets those that were acked."""
    number = 0
    while not enough.is_set():
        try:
            async with connect_async(address) as client:
                while not enough.is_set():
                    block = list(range(number, number + 20))
                    number += 20
                    ack = await client.publish("s", [{"ts": v, "v": v} for v in block])
                    assert ack.accepted == 20
                    acked += block
        except MillstreamError:
            await asyncio.sleep(0.01)


def test_ten_restarts_under_load_give_each_result_once(tmp_path: Path) -> None:
    async def test(restarted: RestartedServer) -> None:
        acked: list[int] = []
        seen: list[int] = []
        enough = asyncio.Event()
        client = await connect_async(restarted.address)
        notices: list[str] = []
        client.on_notice(lambda code, _: notices.append(code))
        await client.execute(STREAM)
        await client.execute("CREATE QUERY every AS SELECT v FROM s")
        subscription = await client.subscribe("every", reconnect=True)

        async def read() -> None:
            async for batch in subscription:
                seen.extend(batch.column("v").to_pylist())

        reading = asyncio.ensure_future(read())
        publishing = asyncio.ensure_future(publish_on(restarted.address, acked, enough))
        for number in range(RESTARTS):
            before = len(seen)
            await until(lambda before=before: len(seen) >= before + 100, "results come")  # type: ignore[misc]
            if number % 3 == 2:
                restarted.cut()
            else:
                await restarted.restart()
            await until(lambda number=number: subscription.reconnects > number, "the subscription is there again")  # type: ignore[misc]
        enough.set()
        await publishing
        async with connect_async(restarted.address) as other:
            await other.finish("s")
        await reading
        assert subscription.end is not None
        assert subscription.end.reason == "finished"
        assert subscription.gaps == []
        assert seen == sorted(set(seen)), "a result came twice, or in another order"
        assert set(acked) <= set(seen), "a result is missing"
        assert notices == ["disconnected", "resumed"] * subscription.reconnects
        assert subscription.reconnects == RESTARTS
        await client.close()

    run(tmp_path, test)


def test_a_query_that_is_gone_or_closed_ends_the_subscription(tmp_path: Path) -> None:
    async def test(restarted: RestartedServer) -> None:
        client = await connect_async(restarted.address)
        await client.execute(STREAM)
        for name in ("dropped", "other", "closed"):
            await client.execute(f"CREATE QUERY {name} AS SELECT v FROM s")
        dropped, other, closed = [await client.subscribe(name, reconnect=True) for name in ("dropped", "other", "closed")]
        async with connect_async(restarted.address) as admin:
            await admin.execute("DROP QUERY other")
            assert await other.next_item() is None
            assert other.end is not None
            assert (other.end.reason, other.reconnects) == ("dropped", 0)
            restarted.cut()
        waiting = asyncio.ensure_future(closed.next_item())
        await until(lambda: closed.reconnects == 1, "it is there again")
        async with connect_async(restarted.address) as admin:
            await admin.execute("DROP QUERY dropped")
        with pytest.raises(MillstreamError, match="there is no query dropped"):
            await dropped.next_item()
        await closed.close()
        assert await waiting is None
        assert closed.end is not None
        assert closed.end.reason == "unsubscribed"
        await client.close()

    run(tmp_path, test)


def test_closing_the_client_ends_what_reconnected(tmp_path: Path) -> None:
    async def test(restarted: RestartedServer) -> None:
        client = await connect_async(restarted.address)
        await client.execute(STREAM)
        await client.execute("CREATE QUERY q AS SELECT v FROM s")
        subscription = await client.subscribe("q", reconnect=True)
        waiting = asyncio.ensure_future(subscription.next_item())
        restarted.cut()
        await until(lambda: subscription.reconnects == 1, "it is there again")
        assert not client.is_open
        await client.close()
        with pytest.raises(MillstreamError, match="closed"):
            await waiting
        await until(lambda: not restarted.server.application.sessions, "no connection is left")

    run(tmp_path, test)


def test_without_a_server_the_attempts_end_when_patience_does(tmp_path: Path) -> None:
    async def test(restarted: RestartedServer) -> None:
        async with connect_async(restarted.address) as client:
            await client.execute(STREAM)
            await client.execute("CREATE QUERY q AS SELECT v FROM s")
            subscription = await client.subscribe("q", reconnect=0.2)
            await restarted.server.stop()
            with pytest.raises(MillstreamError, match=r"no connection again within 0.2 s") as caught:
                await subscription.next_item()
            assert caught.value.code == "disconnected"
            restarted.server = LiveServer(replace(restarted._config))
            await restarted.server.start()
            await restarted.restart()

    run(tmp_path, test)


def test_what_does_not_pass_is_raised_at_once() -> None:
    async def test() -> None:
        async def refused() -> Any:
            raise MillstreamError("unauthorized", "the token is not known")

        async def never(_: Any) -> None:
            raise AssertionError

        told: list[str] = []
        reconnection = Reconnection(refused, None, lambda code, message: told.append(f"{code}: {message}"))
        with pytest.raises(MillstreamError, match="the token is not known"):
            await reconnection.run(MillstreamError("disconnected", "the connection was lost"), never)
        assert told == ["disconnected: the connection was lost; connecting again"]

    asyncio.run(test())


def test_a_subscription_that_is_not_awaited_has_its_attributes(tmp_path: Path) -> None:
    async def test(restarted: RestartedServer) -> None:
        async with connect_async(restarted.address) as client:
            await client.execute(STREAM)
            await client.execute("CREATE QUERY q AS SELECT v FROM s")
            pending = client.subscribe("q", from_start=True)
            assert (pending.resume_token, pending.end, pending.schema, pending.reconnects) == (None, None, None, 0)
            assert (pending.gaps, pending.columns, pending.meta) == ([], [], {})
            await client.publish("s", [{"ts": 1, "v": 1}])
            await client.finish("s")
            rows = [row for batch in [batch async for batch in pending] for row in batch.to_pylist()]
            assert rows == [{"v": 1}]
            assert pending.end is not None
            assert pending.end.reason == "finished"
            assert pending.resume_token is not None
            assert pending.meta["resume_token"] == pending.resume_token
            assert [column.name for column in pending.columns] == ["v"]
            assert pending.schema is not None
            opened = await (again := client.subscribe("q", resume_token=pending.resume_token))
            assert again.end is opened.end

    run(tmp_path, test)


@pytest.mark.process
@pytest.mark.slow
def test_tail_follows_a_server_that_is_killed(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path), "--log-level", "info")
    process, port = start(*arguments)
    tail = None
    try:
        with connect(f"127.0.0.1:{port}") as client:
            client.execute(STREAM)
            client.execute("CREATE QUERY every AS SELECT v FROM s")
        command = [sys.executable, "-c", "from millstream.client.cli import main; main()", "tail", "every", "--from-start", "--follow"]
        environment = {**os.environ, "MILLSTREAM_SERVER": f"127.0.0.1:{port}", "PYTHONUNBUFFERED": "1"}
        tail = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert tail.stdout is not None
        lines: list[str] = []
        came = threading.Condition()

        def read() -> None:
            assert tail is not None
            assert tail.stdout is not None
            for line in tail.stdout:
                with came:
                    lines.append(line.strip())
                    came.notify()

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(3):
            with connect(f"127.0.0.1:{port}") as client:
                client.publish("s", [{"ts": number * 10 + i, "v": number * 10 + i} for i in range(10)])
                with came:
                    assert came.wait_for(lambda number=number: len(lines) == 1 + 10 * (number + 1), START_S)  # type: ignore[misc]
                if number == 2:
                    client.finish("s")
                    break
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=START_S)
            process, port = start(*arguments, "--port", str(port))
        assert tail.wait(START_S) == 0
        reader.join(START_S)
        assert lines == ["v", *map(str, range(30))]
        assert tail.stderr is not None
        told = tail.stderr.read().splitlines()
        assert [line for line in told if line == "connected again"] == ["connected again"] * 2
    finally:
        process.kill()
        process.communicate(timeout=START_S)
        if tail is not None:
            tail.kill()
            tail.communicate(timeout=START_S)
