"""What queries hold, written as a checkpoint has it and read again: windows, joins, sessions and synopses of many groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.operators.build import build_operator
from millstream.engine.operators.contract import Operator
from millstream.server.benchmarks.contract import Figures, Kit
from millstream.server.benchmarks.embedding import Embedded

COLUMNS = "(ts TIMESTAMP, key BIGINT, name TEXT, price DOUBLE, amount DECIMAL(38, 6))"
STREAMS = tuple(f"CREATE STREAM {stream} {COLUMNS} TIMESTAMP BY ts" for stream in ("a", "b"))
START_US = 1_700_000_000_000_000
WITHIN = "RANGE 1 HOUR SLIDE 1 HOUR"
CALLS = "COUNT(*) AS n, SUM(price) AS total, MAX(price) AS highest"
SELECTS = {
    "window": f"SELECT key, {CALLS} FROM a [{WITHIN}] GROUP BY key",
    "window-by-text": f"SELECT name, {CALLS} FROM a [{WITHIN}] GROUP BY name",
    "window-decimals": f"SELECT key, SUM(amount) AS total, MAX(name) AS m FROM a [{WITHIN}] GROUP BY key",
    "window-medians": f"SELECT key, MEDIAN(price) AS middle FROM a [{WITHIN}] GROUP BY key",
    "window-sketches": f"SELECT key, APPROX_COUNT_DISTINCT(name) AS n, APPROX_TOP_K(name, 3) AS best FROM a [{WITHIN}] GROUP BY key",
    "sliding": f"SELECT key, {CALLS} FROM a [RANGE 1 HOUR] GROUP BY key",
    "rows": f"SELECT key, {CALLS} FROM a [PARTITION BY key ROWS 4] GROUP BY key",
    "sessions": f"SELECT key, {CALLS} FROM a [SESSION 10 MINUTES] GROUP BY key",
    "join": "SELECT a.key AS key, b.price AS price FROM a JOIN b ON a.key = b.key AND a.name = b.name WITHIN 1 HOUR",
    "distinct": "SELECT DISTINCT name FROM a",
}


def benchmark(kit: Kit) -> Iterator[Figures]:
    """State of 100,000 groups written and read: ms, bytes, and as the reference a plain copy of as many bytes."""
    groups = kit.size(100_000, 1_000)
    for name, select in SELECTS.items():
        yield _measured(kit, name, select, groups)


def _measured(kit: Kit, name: str, select: str, groups: int) -> Figures:
    engine = Embedded(*STREAMS, select)
    for stream in ("a", "b") if name == "join" else ("a",):
        engine.push(stream, engine.columns(stream, _rows(groups)))
        engine.runtime.run()
    (running,) = [o for o in engine.host.network.operators.values() if o.logic.state_fields]
    written = running.logic.snapshot()

    def fresh() -> Operator:
        return build_operator(running.recipe, [cursor.log.schema for cursor in running.inputs])

    read = fresh()
    read.restore(written)
    kit.require(read.snapshot() == written, "what was read is not what was written")
    writing = kit.alternate(running.logic.snapshot, lambda: bytearray(written))
    reading = kit.alternate(lambda: read.restore(written), lambda: bytearray(written))
    return {
        "name": f"checkpoint-{name}",
        "groups": groups,
        "write_ms": writing.ours_s * 1e3,
        "read_ms": reading.ours_s * 1e3,
        "copy_ms": writing.reference_s * 1e3,
        "bytes": len(written),
        "noise": writing.noise,
        "peak_rss_mb": kit.peak_rss_mb(),
    }


def _rows(groups: int) -> Any:
    """Return two rows a group within ten minutes."""
    keys = np.arange(2 * groups, dtype=np.int64) % groups
    times = pa.array(START_US + np.arange(2 * groups, dtype=np.int64) * 1_000).view(pa.timestamp("us", "UTC"))
    amounts = pa.array(keys).cast(pa.decimal128(38, 6))
    names = pa.array([f"name of group {key}" for key in keys.tolist()])
    return pa.record_batch({"ts": times, "key": keys, "name": names, "price": keys * 0.5, "amount": amounts})
