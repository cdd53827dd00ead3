"""Writes the data directory that tests keep: `python -m tests.support.kept_directory`, once for each release.

Its queries have given nothing yet when the server stops: what they held is in the checkpoint alone, as the journal before it is gone.
"""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from millstream.server.durability.journaling import Journaling
from millstream.server.journal.checkpoint_files import forget_before

from tests.support.live_server import Harness, running

NAME = "data_directory_checkpoint_3"
ARCHIVE = Path(__file__).parents[1] / "server" / "kept" / f"{NAME}.tar.xz"
DAY = "[RANGE 1 DAY SLIDE 1 DAY]"
STREAMS = {
    "s": "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT, x DOUBLE) TIMESTAMP BY ts UNIT s DURABILITY journal",
    "o": "CREATE STREAM o (ts BIGINT, k TEXT, price DECIMAL(20, 2)) TIMESTAMP BY ts UNIT s DURABILITY sync",
    "names": "CREATE TABLE names (k TEXT, name TEXT, PRIMARY KEY (k)) DURABILITY journal",
}
QUERIES = {
    "windows": f"SELECT k, COUNT(*) AS n, SUM(v) AS total, MEDIAN(x) AS middle, APPROX_TOP_K(v, 2) AS best FROM s {DAY} GROUP BY k",
    "sums": "SELECT COUNT(*) AS n, SUM(v) AS total, STDDEV(x) AS spread FROM s EMIT FINAL",
    "sessions": "SELECT k, COUNT(*) AS n, LAST(v) AS newest FROM s [SESSION 2 HOURS] GROUP BY k",
    "named": "SELECT name, COUNT(*) AS n FROM (SELECT s.ts, m.name AS name FROM s LEFT JOIN names AS m ON s.k = m.k) "
    f"{DAY} AS j GROUP BY name",
    "joined": "SELECT COUNT(*) AS n, SUM(price) AS total FROM (SELECT s.ts, o.price AS price FROM s JOIN o ON s.k = o.k WITHIN 20 SECONDS) "
    f"{DAY} AS j",
    "before": f"SELECT COUNT(*) AS n, SUM(b) AS total FROM (SELECT ts, LAG(v) OVER (PARTITION BY k) AS b FROM s) {DAY} AS j",
    "top": f"SELECT k, v FROM s {DAY} ORDER BY v DESC LIMIT 3",
    "kinds": f"SELECT COUNT(*) AS n FROM (SELECT DISTINCT k FROM s) {DAY} AS d",
}


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    """Return rows of the stream s."""
    return [{"ts": n, "k": "abc"[n % 3], "v": n * 37 % 101, "x": n / 7} for n in range(start, stop)]


def orders(start: int, stop: int) -> list[dict[str, Any]]:
    """Return rows of the stream o."""
    return [{"ts": n, "k": "abc"[n % 3], "price": f"{n}.25"} for n in range(start, stop, 5)]


async def begin(harness: Harness) -> Any:
    """Define everything and publish the rows before the checkpoint; return the client."""
    client = await harness.client()
    for statement in STREAMS.values():
        await client.execute(statement)
    for name, text in QUERIES.items():
        await client.execute(f"CREATE QUERY {name} AS {text}")
    await client.publish("names", [{"k": "a", "name": "first"}, {"k": "b", "name": "second"}])
    await client.publish("s", rows(0, 40))
    await client.publish("o", orders(0, 40))
    return client


async def go_on(client: Any) -> None:
    """Publish the rows between the checkpoint and the stop."""
    await client.publish("names", [{"k": "b", "name": "renamed"}])
    await client.publish("s", rows(40, 60))
    await client.publish("o", orders(40, 60))


async def end(client: Any) -> dict[str, list[dict[str, Any]]]:
    """Publish the rows after the stop, end the streams, and return the answers."""
    subscriptions = {name: await client.subscribe(name, from_start=True) for name in QUERIES}
    await client.publish("s", rows(60, 80))
    await client.publish("o", orders(60, 80))
    for name in STREAMS:
        await client.finish(name)
    return {name: (await subscription.to_arrow()).to_pylist() for name, subscription in subscriptions.items()}


async def write(directory: Path) -> None:
    """Make the directory."""
    async with running(data_dir=str(directory)) as harness:
        client = await begin(harness)
        journaling = harness.server.application.host.journaling
        assert isinstance(journaling, Journaling)
        await harness.server.application.call(journaling.checkpoint)
        base = journaling.journal.segments[-1].base
        journaling.journal.drop_before(base)
        forget_before(journaling.disk, journaling.directory, base)
        await go_on(client)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder)))
        (Path(folder) / "lock").unlink(missing_ok=True)
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            archive.add(folder, ".")
