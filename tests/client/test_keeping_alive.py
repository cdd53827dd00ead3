"""A client learns of a server whose machine has failed: nothing comes any more, not even the end of the connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from millstream.client import connect_async
from millstream.client.errors import MillstreamError
from millstream.client.wire import PROBE_AFTER_S, PROBE_EVERY_S, PROBES_MAX

from tests.support.live_server import Harness, run
from tests.world.hub import NS_PER_S
from tests.world.machines import clear_away, world


def test_the_system_is_asked_to_probe_the_server() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        connected = client._wire._transport.get_extra_info("socket")  # type: ignore[union-attr]
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == PROBE_AFTER_S

    run(test)


@pytest.fixture
def cleared() -> Iterator[None]:
    yield
    clear_away()


@pytest.mark.usefixtures("cleared")
def test_a_reader_hears_that_the_server_is_gone_though_nothing_says_so() -> None:
    with world(1) as made:
        took_s: list[float] = []

        async def main() -> None:
            made.start_server()
            await made.until_up()
            client = await connect_async()
            await client.execute("CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts")
            subscription = await client.subscribe(await client.submit("SELECT v FROM s"))
            began_ns = made.hub.now_ns
            made.network.lose(made.network.alive()[0])
            with pytest.raises(MillstreamError, match="the connection was lost"):
                await subscription.next_item()
            took_s.append((made.hub.now_ns - began_ns) / NS_PER_S)

        made.run_clients(main, 3600.0)
        assert took_s[0] == pytest.approx(PROBE_AFTER_S + PROBE_EVERY_S * PROBES_MAX, abs=1.0)
