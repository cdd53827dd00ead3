"""FETCH is answered outside the server's process: bounded, in turn, and ended with whoever asked."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.server.errors import GivenUp

from tests.support.live_server import Harness, run, until

ENDLESS = "FETCH SELECT COUNT(*) AS n FROM a, b, c WHERE a.v + b.v + c.v < 0"


async def tables(harness: Harness, rows: int = 3_000) -> Any:
    """Make three tables, whose cross join nobody sees the end of."""
    client = await harness.client()
    for name in "abc":
        await client.execute(f"CREATE TABLE {name} (k BIGINT PRIMARY KEY, v BIGINT)")
        await client.publish(name, [{"k": k, "v": k} for k in range(rows)])
    return client


def workers() -> list[int]:
    """Return the processes that answer FETCHes."""
    mark = b"millstream.server.once.child"
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "cmdline").read_bytes() and f"\nPPid:\t{os.getpid()}\n" in (path / "status").read_text("ascii"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("way", ["cancel", "disconnect", "stop"])
def test_a_fetch_ends_at_once_with_whoever_asked(way: str) -> None:
    async def test(harness: Harness) -> None:
        await tables(harness)
        client, other = await harness.client(), await harness.client()
        asking = asyncio.ensure_future(client.execute(ENDLESS))
        await until(lambda: bool(workers()), "its process runs")
        assert list(await other.execute("SHOW STREAMS")) == []
        if way == "cancel":
            asking.cancel()
        elif way == "disconnect":
            client._wire.abort()
        else:
            await harness.server.stop()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not workers(), "its process is gone")
        fetches = harness.server.application.aside.fetches
        assert fetches is not None
        await until(lambda: fetches.places_taken == 0, "its place is free")
        if way == "cancel":
            assert list(await client.execute("SHOW STREAMS")) == []

    run(test, drain_s=1.0)


def test_more_fetches_than_processes_wait_and_too_many_are_refused() -> None:
    async def test(harness: Harness) -> None:
        await tables(harness)
        clients = [await harness.client() for _ in range(4)]
        asking = [asyncio.ensure_future(c.execute(ENDLESS)) for c in clients[:3]]
        await until(lambda: len(workers()) == 2, "two run")
        fetches = harness.server.application.aside.fetches
        assert fetches is not None
        await until(lambda: fetches.waiting == 1, "one waits")
        with pytest.raises(MillstreamError, match="fetch_waiting_max") as caught:
            await clients[3].execute("FETCH SELECT k FROM a")
        assert caught.value.code == "overloaded"
        for one in asking[:2]:
            one.cancel()
        await until(lambda: fetches.waiting == 0, "the third has its turn")
        asking[2].cancel()
        await until(lambda: fetches.places_taken == 0, "all places are free")
        assert (await clients[3].query_once("SELECT COUNT(*) AS n FROM a")).to_pylist() == [{"n": 3_000}]
        await asyncio.gather(*asking, return_exceptions=True)

    run(test, fetch_workers=2, fetch_waiting_max=1)


def test_a_fetch_is_bounded_in_memory_and_says_so() -> None:
    async def test(harness: Harness) -> None:
        client = await tables(harness)
        with pytest.raises(MillstreamError, match="fetch_memory_bytes_max") as caught:
            await client.execute("FETCH SELECT a.k AS x, b.k AS y FROM a, b")
        assert caught.value.code == "overloaded"
        assert (await client.query_once("SELECT COUNT(*) AS n FROM a")).to_pylist() == [{"n": 3_000}]

    run(test, fetch_memory_bytes_max=64 * 2**20, within_s=60)


def test_a_fetch_is_bounded_in_processor_time_and_says_so() -> None:
    async def test(harness: Harness) -> None:
        client = await tables(harness, rows=30_000)
        with pytest.raises(MillstreamError, match="fetch_cpu_s_max") as caught:
            await client.execute("FETCH SELECT COUNT(*) AS n FROM a, b WHERE a.v + b.v < 0")
        assert caught.value.code == "overloaded"
        assert (await client.query_once("SELECT COUNT(*) AS n FROM a")).to_pylist() == [{"n": 30_000}]

    run(test, fetch_cpu_s_max=1.0, within_s=60)


def test_a_process_is_asked_again_while_it_is_warm_and_ended_when_nobody_asks() -> None:
    async def test(harness: Harness) -> None:
        client = await tables(harness, rows=10)
        seen = set()
        for _ in range(3):
            assert (await client.query_once("SELECT COUNT(*) AS n FROM a")).to_pylist() == [{"n": 10}]
            with pytest.raises(MillstreamError, match="more than one frame holds"):
                await client.query_once("SELECT REPEAT('x', 100000) AS t, REPEAT('y', 100000) AS u FROM a")
            seen.update(workers())
        assert len(seen) == 1
        fetches = harness.server.application.aside.fetches
        assert fetches is not None
        fetches.end_idle()
        await until(lambda: not workers(), "it is gone")

    run(test, frame_bytes_max=1_000_000)


def test_users_functions_are_called_in_a_fetch(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text("def twice(x):\n    return x * 2\n", "utf-8")

    async def test(harness: Harness) -> None:
        client = await tables(harness, rows=3)
        await client.execute(f"CREATE FUNCTION twice (x BIGINT) RETURNS BIGINT FROM '{tmp_path / 'twice.py'}'")
        assert (await client.query_once("SELECT twice(k) AS t FROM a")).to_pylist() == [{"t": 0}, {"t": 2}, {"t": 4}]

    run(test)


def test_statements_of_a_peer_take_turns_with_those_of_others() -> None:
    async def test(harness: Harness) -> None:
        one, other = await harness.client(), await harness.client()
        many = [asyncio.ensure_future(one.execute("SHOW STREAMS")) for _ in range(200)]
        assert list(await other.execute("SHOW STREAMS")) == []
        assert sum(m.done() for m in many) < 100, "it had its turn before all of the first"
        await asyncio.gather(*many)

    run(test)


def test_a_request_given_up_while_it_waits_leaves_the_line() -> None:
    from millstream.server.net.session import Running
    from millstream.server.once.fetches import Fetches

    async def test() -> None:
        fetches = Fetches(lambda: pytest.fail("nobody is asked"), workers_max=1, waiting_max=5, idle_s=1.0)  # type: ignore[arg-type,return-value]
        loop = asyncio.get_running_loop()
        held = loop.create_future()
        first = asyncio.ensure_future(fetches.answer("a", Running(loop.create_future()), loop.create_future(), lambda: held))
        await until(lambda: fetches.places_taken == 1, "the first has its turn")
        done = loop.create_future()
        running = Running(done)
        second = asyncio.ensure_future(fetches.answer("a", running, done, lambda: held))
        await until(lambda: fetches.waiting == 1, "the second waits")
        running.give_up()
        with pytest.raises(GivenUp):
            await second
        assert fetches.waiting == 0
        held.set_exception(GivenUp("the first too"))
        with pytest.raises(GivenUp):
            await first
        assert fetches.places_taken == 0

    asyncio.run(test())


def test_peers_take_turns() -> None:
    from millstream.server.once.fetches import FairQueue

    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queue.push(item[0], item)
    queue.remove("a", "a2")
    assert len(queue) == 5
    assert [queue.pop() for _ in range(5)] == ["a1", "b1", "c1", "a3", "c2"]
