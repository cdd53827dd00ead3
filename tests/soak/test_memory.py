"""A daemon under steady load does not grow. Only `make soak` runs this; SOAK_SECONDS says for how long (default ten minutes)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.client import connect
from millstream.feeder.demo.daemon import daemon
from millstream.feeder.demo.show import is_conserved

from tests.support.leaks import child_processes

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
TRAIN_ROWS = 5_000
GROWTH_MB_MAX = 24  # over the whole run, after the first tenth, in which buffers and caches fill
KEPT_BYTES_MAX = 2**20  # of results, for those who resume: by default so much that it takes minutes to fill
QUERIES = {
    "windows": "SELECT k, COUNT(*) AS n, AVG(v) AS mean FROM s [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "chain": "SELECT k, v * 2 AS w FROM s WHERE v > 0.99",
}


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 300)
def test_memory_stays_bounded_and_every_row_is_accounted_for() -> None:
    with daemon(("--results-kept-bytes-max", str(KEPT_BYTES_MAX))) as address, connect(address) as client:
        (pid,) = child_processes()
        client.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
        subscriptions = [client.subscribe(client.submit(text, name=name).name) for name, text in QUERIES.items()]
        counted: dict[str, int] = {}
        threads = [threading.Thread(target=count, args=(subscription, counted)) for subscription in subscriptions]
        for thread in threads:
            thread.start()
        sizes, sent = load(client, pid)
        client.finish("s")
        for thread in threads:
            thread.join()
        growth_mb = max(sizes) - max(sizes[: max(1, len(sizes) // 10)])
        assert growth_mb < GROWTH_MB_MAX, f"{growth_mb:.0f} MB more after {sent:,} rows; samples {sizes[:: max(1, len(sizes) // 20)]}"
        for subscription in subscriptions:
            assert subscription.end.counts["accepted"] == sent
            assert is_conserved(subscription.end.counts)
            assert counted[subscription.query] > 0


def load(client: Any, pid: int) -> tuple[list[float], int]:
    """Publish trains for SECONDS; return the daemon's resident megabytes, sampled, and the rows sent."""
    rng = np.random.default_rng(1)
    until = time.monotonic() + SECONDS
    sizes, sent = [], 0
    while time.monotonic() < until:
        times = np.arange(sent, sent + TRAIN_ROWS, dtype=np.int64) * 100
        train = {"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": rng.integers(0, 1_000, TRAIN_ROWS), "v": rng.random(TRAIN_ROWS)}
        client.publish("s", pa.record_batch(train))
        sent += TRAIN_ROWS
        sizes.append(resident_mb(pid))
    return sizes, sent


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def count(subscription: Any, counted: dict[str, int]) -> None:
    """Count the rows of a subscription until it ends."""
    counted[subscription.query] = sum(batch.num_rows for batch in subscription)
