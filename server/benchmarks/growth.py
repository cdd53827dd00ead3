"""How cost grows inside the engine: with the queries on a stream, the groups of a window, the rows of a train.

One size after another, each a hundred times larger or so; what is compared is processor time for a row (with queries: for a row and
query), which must not grow. Each answer is counted out by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.limits import ORDER_BUDGET_NS, SCHEDULE_UNITS_LIVE
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.server.benchmarks.contract import Figures, Kit
from millstream.server.benchmarks.embedding import Embedded

STREAM = "CREATE STREAM growth_in (ts TIMESTAMP, key BIGINT, price BIGINT) TIMESTAMP BY ts"
QUERIES = (1, 10, 100, 1_000)
GROUPS = (1, 1_000, 100_000, 10_000_000)
TRAINS = (10, 100, 1_000, 10_000, 100_000)
START_US = 1_700_000_000_000_000
SPREAD = 0x9E3779B97F4A7C15 >> 1  # an odd factor: keys lie all over the 64 bits, so that they need a hash table
RUNS = 3


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Cost of a row with 1 to 1,000 queries, 1 to 10 M groups, trains of 10 to 100,000 rows, the engine alone."""
    for queries in QUERIES[:2] if kit.quick else QUERIES:
        yield _queries(kit, queries)
    for groups in GROUPS[:2] if kit.quick else GROUPS:
        yield _groups(kit, groups)
    for train in TRAINS[1:3] if kit.quick else TRAINS:
        yield _trains(kit, train)


def _queries(kit: Kit, queries: int) -> Figures:
    """Selections of one key each, of which nothing can be shared but the stream."""
    rows = kit.size(max(100_000, 2_000_000 // queries), 20_000)
    keys = np.random.default_rng(3).integers(0, QUERIES[-1], rows)
    batches = _batches(keys, 10_000)
    wanted = int(np.count_nonzero(keys < queries))
    selects = [f"SELECT key, price FROM growth_in WHERE key = {number}" for number in range(queries)]
    engine = _engine(*selects, sharing=True)
    took_s = _timed(kit, engine, batches, wanted)
    return _figures("growth-queries", rows, took_s, took_s / rows / queries, queries=queries)


def _groups(kit: Kit, groups: int) -> Figures:
    """COUNT and SUM in one window, answered at its end; every group has rows."""
    rows = max(groups, kit.size(2_000_000, 20_000))
    keys = np.random.default_rng(4).permutation(np.arange(rows) % groups) * np.int64(SPREAD)
    select = "SELECT key, COUNT(*) AS n, SUM(price) AS total FROM growth_in [RANGE 1 DAY SLIDE 1 DAY] GROUP BY key"
    engine = _engine(select)
    columns = [engine.columns("growth_in", batch) for batch in _batches(keys, 10_000)]
    began = time.process_time()
    for one in columns:
        engine.push("growth_in", one)
        engine.runtime.run()
    engine.end("growth_in")
    took_s = time.process_time() - began
    answers = engine.results.take()
    counted = sum(int(train.column(1).values.sum()) for train in answers)
    kit.require((sum(t.rows for t in answers), counted) == (groups, rows), "other groups or counts")
    return {**_figures("growth-groups", rows, took_s, took_s / rows, groups=groups), "peak_rss_mb": kit.peak_rss_mb()}


def _trains(kit: Kit, train: int) -> Figures:
    """The chain of six operators through the default policy."""
    name, stream, plan = kit.chain_query
    rows = min(kit.size(2_000_000, 20_000), 2_000 * train)
    batches = kit.chain_trains(rows, train)
    wanted = sum(len(answer[0]) for answer in kit.chain_reference([kit.chain_views(batch) for batch in batches]))
    engine = Embedded(stream, policy=PolicySpec("fcfs"), settings=_settings())
    engine.submit(plan)
    took_s = _timed(kit, engine, batches, wanted, name)
    return _figures("growth-trains", rows, took_s, took_s / rows, train=train)


def _engine(*selects: str, sharing: bool = False) -> Embedded:
    return Embedded(STREAM, *selects, policy=PolicySpec("fcfs"), settings=_settings(), sharing=sharing)


def _settings() -> CoreSettings:
    return CoreSettings(train=TrainShape(share=1.0), schedule=SCHEDULE_UNITS_LIVE, budget_ns=ORDER_BUDGET_NS)


def _batches(keys: Any, train: int) -> list[Any]:
    times = pa.array(START_US + np.arange(len(keys), dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    whole = pa.record_batch({"ts": times, "key": keys, "price": np.arange(len(keys)) % 1_000})
    return [whole.slice(at, train) for at in range(0, len(keys), train)]


def _timed(kit: Kit, engine: Embedded, batches: Sequence[Any], wanted: int, stream: str = "growth_in") -> float:
    """Return the processor time of the quickest of some runs over the same rows, after one to warm up."""
    columns = [engine.columns(stream, batch) for batch in batches]
    times = []
    for _ in range(1 + kit.size(RUNS, 1)):
        began = time.process_time()
        for one in columns:
            engine.push(stream, one)
            engine.runtime.run()
        times.append(time.process_time() - began)
        kit.require(engine.results.rows == wanted, "another number of rows")
        engine.results.take()
    return min(times[1:])


def _figures(name: str, rows: int, took_s: float, each_s: float, **size: int) -> Figures:
    return {"name": name, "rows": rows, "rows_per_s": rows / took_s, "cpu_s": took_s, "ns_each": each_s * 1e9, **size}
