"""Peers that mean no good, or are no peers of ours (C40): an answer in time, bounded memory, and nobody else notices."""

from __future__ import annotations

import asyncio
import random

import pytest
from millstream.protocol.connection import Connection
from millstream.protocol.messages import Failure
from millstream.protocol.states import Role

from tests.support.live_server import Harness, run, until

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"


async def told(reader: asyncio.StreamReader) -> Failure:
    """Read until the server closes; return the fatal failure that it sent."""
    connection = Connection(Role.CLIENT)
    said = list(connection.receive_data(await reader.read(-1)))
    failures = [m for m in said if isinstance(m, Failure)]
    assert failures
    assert failures[-1].fatal
    return failures[-1]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x00\x00\x00\x05\xdd\xff\xff\xff\xff", None),
        (b"\xff\xff\xff\xff", "limit"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "limit"),
        ((70_000).to_bytes(4, "little") + b"\x10\x00\x00\x00", "limit"),
        (bytes(random.Random(7).randrange(256) for _ in range(4096)), None),
    ],
)
def test_bytes_that_are_no_frame_get_a_protocol_error_and_the_connection_is_closed(sent: bytes, code: str | None) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        reader, writer = await harness.raw()
        writer.write(sent)
        failure = await told(reader)
        assert code is None or failure.code == code
        writer.close()
        assert len(await client.execute("SHOW STREAMS")) == 1

    run(test, frame_s=0.3)


def test_a_hello_that_never_comes_and_a_frame_that_never_ends_are_cut_off_in_time() -> None:
    async def test(harness: Harness) -> None:
        silent_reader, silent = await harness.raw()
        slow_reader, slow = await harness.raw()
        slow.write(b"\x20\x00")
        assert (await told(silent_reader)).code == "timeout"
        assert (await told(slow_reader)).code == "timeout"
        client = await harness.client()
        client._wire._transport.write(b"\x20\x00\x00\x00\x10")
        await until(lambda: not client.is_open, "the connection with half a frame is closed")
        silent.close()
        slow.close()
        await until(lambda: not harness.server.application.sessions, "all sessions are gone")

    run(test, frame_s=0.2)


def test_a_silent_peer_is_asked_and_stays_when_it_answers() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        session = next(iter(harness.server.application.sessions.values()))
        await until(lambda: session.pinged_ns is not None, "a ping was sent")
        await until(lambda: session.pinged_ns is None, "the answer was heard")
        assert len(await client.execute("SHOW STREAMS")) == 0

    run(test, ping_s=0.1)


def test_one_connection_too_many_is_told_so() -> None:
    async def test(harness: Harness) -> None:
        await harness.client()
        with pytest.raises(Exception, match="connections_max"):
            await harness.client()

    run(test, connections_max=1)


def test_a_client_killed_in_the_middle_of_a_frame_leaves_what_it_had_published() -> None:
    async def test(harness: Harness) -> None:
        client, keeper = await harness.client(), await harness.client()
        await client.execute(STREAM)
        await client.publish("s", [{"ts": 1, "v": 1}])
        client._wire._transport.write(b"\x00\x10\x00\x00\x10\x00")
        client._wire.abort()
        await until(lambda: len(harness.server.application.sessions) == 1, "the session is gone")
        assert (await keeper.execute("SHOW STREAMS")).rows[0]["accepted"] == 1

    run(test)
