"""The worst that readers can do, each kind once, beside honest rows: nobody else loses a result, and the server stays within its memory."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from millstream.client.benchmarks import hostile
from millstream.client.benchmarks.attacks import ATTACKS, Target, one_round
from millstream.client.benchmarks.chain_workload import NAME
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.connection import AsyncClient, connect_async
from millstream.client.errors import MillstreamError

from tests.support.live_server import rows_of

START = dt.datetime(2023, 11, 14, tzinfo=dt.UTC)
ROWS = 20  # of honest work after each kind
MEMORY_MB_MAX = 1_536  # 100 of the program, 256 of all peers, the answers being made, and what a kind's query holds of a thousand rows
WITHIN_S = 240.0


def test_there_are_dozens_of_kinds() -> None:
    assert len(ATTACKS) >= 30
    assert all(attack.__doc__ for attack in ATTACKS.values())


@pytest.mark.process
@pytest.mark.slow
def test_whatever_readers_do_others_get_every_result_and_the_server_goes_on() -> None:
    with daemon("--no-rewrite", *hostile.options()) as server:
        asyncio.run(asyncio.wait_for(_attacked(server), WITHIN_S))
        assert server.process.poll() is None
        assert server.peak_rss_mb() < MEMORY_MB_MAX


async def _attacked(server: Daemon) -> None:
    await hostile.prepare(server, "q")
    target = Target(server.port, hostile.TOKENS["reader"], NAME, "held", "q")
    async with (
        await connect_async(server.address, hostile.TOKENS["writer"]) as writer,
        await connect_async(server.address, hostile.TOKENS["admin"], client_id="honest") as admin,
        await admin.subscribe("q") as results,
    ):
        for number, (kind, attack) in enumerate(ATTACKS.items()):
            attacking = asyncio.ensure_future(one_round(attack, target))
            keys = list(range(number * ROWS, (number + 1) * ROWS))
            ack = await writer.publish(NAME, [_row(key) for key in keys])
            assert ack.accepted == ROWS, kind
            assert [row["key"] for row in await rows_of(results, ROWS)] == keys, kind
            await attacking
            assert len(await admin.execute("SHOW STREAMS")) == 1, kind
        await _settled(admin)


def _row(key: int) -> dict[str, object]:
    return {"ts": START + dt.timedelta(microseconds=key), "key": key, "a": 0, "b": 0, "price": 50.0, "tag": f"t{key}"}


async def _settled(admin: AsyncClient) -> None:
    """Wait until what readers started has ended with their connections: the honest query alone is left."""
    while len(await admin.execute("SHOW QUERIES")) > 1:
        await asyncio.sleep(0.01)
    with pytest.raises(MillstreamError):
        await admin.execute("DROP QUERY nothing")
