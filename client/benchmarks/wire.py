"""Frames a second through the server's sockets: rows one a frame, small trains, results."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from millstream.client.benchmarks.chain_workload import NAME, START_US, STREAM, trains
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit, spread
from millstream.client.benchmarks.raw import RawPublisher
from millstream.client.blocking import _new_loop, connect
from millstream.client.connection import connect_async
from millstream.protocol.batches import BatchEncoder, encode_schema
from millstream.protocol.messages import ChannelSchema, Train

RUNS = 5
ROWS_A_TRAIN = 100
ALL_ROWS = f"SELECT ts, key, a, b, price, tag FROM {NAME}"
NO_ROWS = f"SELECT key FROM {NAME} WHERE a < 0"


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Frames a second: one row each, trains of 100 rows, in and out; frames are made before the clock starts."""
    with daemon() as server:
        with connect(server.address) as client:
            client.execute(STREAM)
            client.submit(NO_ROWS, name="nothing")
            yield _rows_in(kit, server)
            yield _trains_in(kit, server)
            client.query("nothing").drop()
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            yield runner.run(_client_rows(kit, server))
            yield runner.run(_results_out(kit, server))


def _rows_in(kit: Kit, server: Daemon) -> Figures:
    """Row frames as fast as the server acks them; the client does nothing but write."""
    count = kit.size(50_000, 5_000)

    def frames(publisher: RawPublisher) -> list[bytes]:
        return [publisher.row_frame([START_US + i, i % 1000, i % 100, i % 97, 50.0, "tag"]) for i in range(count)]

    return _sent(kit, server, "wire-rows-in", frames, count, 1)


def _trains_in(kit: Kit, server: Daemon) -> Figures:
    batches = trains(kit.size(200_000, 20_000), ROWS_A_TRAIN)

    def frames(publisher: RawPublisher) -> list[bytes]:
        encoder = BatchEncoder(batches[0].schema)
        made = [publisher.frame(ChannelSchema(publisher.channel, encode_schema(batches[0].schema)))]
        for number, batch in enumerate(batches, 1):
            made.append(publisher.frame(Train(publisher.channel, number, batch.num_rows, encoder.encode(batch))))
        return made

    return _sent(kit, server, "wire-trains-in", frames, len(batches), ROWS_A_TRAIN)


def _sent(kit: Kit, server: Daemon, name: str, frames_of: Callable[[RawPublisher], list[bytes]], count: int, rows_each: int) -> Figures:
    speeds = []
    cpu_before = server.cpu_s()
    runs = kit.size(RUNS, 2)
    for _ in range(runs):
        publisher = RawPublisher(server.port, NAME)
        frames = frames_of(publisher)
        started = time.perf_counter()
        publisher.send_all(frames)
        publisher.wait_for_acks(count)
        speeds.append(count / (time.perf_counter() - started))
        kit.require(publisher.accepted == count * rows_each, "the server accepted another number of rows")
        publisher.close()
    return _figures(name, speeds, rows_each, (server.cpu_s() - cpu_before) / runs)


def _figures(name: str, speeds: list[float], rows_each: int, cpu_s: float) -> Figures:
    frames_per_s = statistics.median(speeds)
    return {
        "name": name,
        "rows_per_s": frames_per_s * rows_each,
        "frames_per_s": frames_per_s,
        "train": rows_each,
        "noise": spread(speeds),
        "cpu_s": cpu_s,
    }


async def _client_rows(kit: Kit, server: Daemon) -> Figures:
    """What the Python client itself can say: one row a frame, made and written as it goes."""
    count = kit.size(20_000, 2_000)
    speeds = []
    async with await connect_async(server.address) as client:
        for _ in range(kit.size(RUNS, 2)):
            async with await client.publisher(NAME) as publisher:
                started = time.perf_counter()
                for i in range(count):
                    await publisher.send_row([START_US + i, i % 1000, i % 100, i % 97, 50.0, "tag"])
                ack = await publisher.flush()
                speeds.append(count / (time.perf_counter() - started))
                kit.require(ack.accepted == count, "the server accepted another number of rows")
    return _figures("wire-rows-client", speeds, 1, 0.0)


async def _results_out(kit: Kit, server: Daemon) -> Figures:
    """All columns of every row back to the subscriber, in trains of 10,000."""
    batches = trains(kit.size(1_000_000, 100_000), 10_000)
    rows = sum(batch.num_rows for batch in batches)
    speeds = []
    async with await connect_async(server.address) as publisher, await connect_async(server.address) as reader:
        await reader.submit(ALL_ROWS, name="everything")
        for _ in range(kit.size(RUNS, 2)):
            async with await reader.subscribe("everything") as results, await publisher.publisher(NAME) as channel:
                started = time.perf_counter()
                sending = asyncio.get_running_loop().create_task(_send(channel, batches))
                got = 0
                async for batch in results:
                    got += batch.num_rows
                    if got >= rows:
                        break
                speeds.append(rows / (time.perf_counter() - started))
                await sending
                kit.require(got == rows, "another number of rows came back")
    return {"name": "wire-out", "rows_per_s": statistics.median(speeds), "train": 10_000, "noise": spread(speeds)}


async def _send(channel: Any, batches: list[Any]) -> None:
    for batch in batches:
        await channel.send(batch)
