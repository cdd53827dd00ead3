"""How long a user waits: `millstream serve` until it listens, `millstream run` of a small script, and Python with its libraries alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from millstream.client.benchmarks.daemon import COMMAND, daemon
from millstream.client.benchmarks.kit import Figures, Kit, spread

RUNS = 7
SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT us;
SELECT k + 1 AS more FROM s;
INSERT INTO s VALUES (1, 2), (2, 3);
"""


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Time until `serve` listens and its memory, and of `run` for a small script; beside it Python importing NumPy and Arrow."""
    runs = kit.size(RUNS, 2)
    alone = [_timed([sys.executable, "-c", "import numpy, pyarrow"])[0] for _ in range(runs)]
    yield {"name": "start-python", "p50_ms": statistics.median(alone) * 1e3, "noise": spread(alone)}
    yield _serve(runs)
    yield _run(kit, runs)


def _serve(runs: int) -> Figures:
    waits, sizes = [], []
    for _ in range(runs):
        with daemon() as server:
            waits.append(server.started_s)
            sizes.append(server.rss_mb())
    return {"name": "start-serve", "p50_ms": statistics.median(waits) * 1e3, "peak_rss_mb": max(sizes), "noise": spread(waits)}


def _run(kit: Kit, runs: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.sql"
        script.write_text(SCRIPT)
        answers = [_timed([*COMMAND, "run", str(script), "--format", "csv"]) for _ in range(runs)]
    kit.require(all(text.split() == ["more", "3", "4"] for _, text in answers), "the script's answer")
    waits = [seconds for seconds, _ in answers]
    return {"name": "start-run", "p50_ms": statistics.median(waits) * 1e3, "noise": spread(waits)}


def _timed(command: list[str]) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - started, done.stdout
