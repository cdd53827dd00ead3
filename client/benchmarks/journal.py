"""What durability costs: rows a second that the server acks, of streams with DURABILITY none, journal and sync, one after the other."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from millstream.client.benchmarks.chain_workload import NAME, STREAM, trains
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit, spread
from millstream.client.benchmarks.raw import RawPublisher
from millstream.client.blocking import connect
from millstream.protocol.batches import BatchEncoder, encode_schema
from millstream.protocol.messages import ChannelSchema, Train

DURABILITIES = ("none", "journal", "sync")
RUNS = 5
ROW_BYTES = 40  # of the fixed columns: what a journal cannot do without


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Rows acked a second without a journal, with one, and with one that is on disk before the ack; trains of 100 and 10,000."""
    with tempfile.TemporaryDirectory() as folder, daemon("--data-dir", folder, "--journal-bytes-max", str(1 << 34)) as server:
        with connect(server.address) as client:
            for durability in DURABILITIES:
                client.execute(STREAM.replace(NAME, f"{NAME}_{durability}") + f" DURABILITY {durability}")
        for train in (100, 10_000):
            yield from _measure(kit, server, Path(folder), train)


def _measure(kit: Kit, server: Daemon, folder: Path, train: int) -> Iterator[Figures]:
    rows = kit.size(200 * train if train < 1_000 else 1_000_000, 20 * train)
    speeds: dict[str, list[float]] = {durability: [] for durability in DURABILITIES}
    cpu = dict.fromkeys(DURABILITIES, 0.0)
    for _ in range(kit.size(RUNS, 2)):
        for durability in DURABILITIES:  # in turn, so that a machine that gets slower is so for all
            before, size = server.cpu_s(), _size(folder)
            speeds[durability].append(_publish(kit, server, f"{NAME}_{durability}", rows, train))
            cpu[durability] += server.cpu_s() - before
            if durability == "sync":
                kit.require(_size(folder) - size >= ROW_BYTES * rows, "the journal holds fewer bytes than the rows have")
    for durability in DURABILITIES:
        ratios = [own / none for own, none in zip(speeds[durability], speeds["none"], strict=True)]
        yield {
            "name": "journal",
            "durability": durability,
            "train": train,
            "rows_per_s": statistics.median(speeds[durability]),
            "reference_rows_per_s": statistics.median(speeds["none"]),
            "ratio": statistics.median(ratios),
            "noise": spread(ratios),
            "cpu_s": cpu[durability] / len(ratios),
        }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _publish(kit: Kit, server: Daemon, stream: str, rows: int, train: int) -> float:
    """Publish all rows, wait for the last ack, return rows a second; frames are made before."""
    batches = trains(rows, train)
    publisher = RawPublisher(server.port, stream)
    encoder = BatchEncoder(batches[0].schema)
    frames = [publisher.frame(ChannelSchema(publisher.channel, encode_schema(batches[0].schema)))]
    window = publisher.connection.channel_window(publisher.channel)
    kit.require(window is not None and window.rows >= rows, "the first credit covers all rows")
    for number, batch in enumerate(batches, 1):
        frames.append(publisher.frame(Train(publisher.channel, number, batch.num_rows, encoder.encode(batch))))
    began = time.perf_counter()
    publisher.send_all(frames)
    publisher.wait_for_acks(len(batches))
    took_s = time.perf_counter() - began
    kit.require(publisher.accepted == rows, "the server accepted another number of rows")
    publisher.close()
    return rows / took_s
