"""Queries over Parquet files against the same in Spark SQL, in one session: Parquet to Parquet, two slots of this machine.

And how they grow: with the rows, with the slots.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from millstream.feeder.session import spark_session
from millstream.feeder.spark.run import SparkScript, run
from millstream.feeder.spark.stream import StreamRun
from pyarrow import parquet

Figures = dict[str, Any]
MASTER = "local[2]"
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
GROUP_ROWS = 500_000
PAIRS_MIN = 2  # a run takes seconds, and Spark's is up to a minute
GROWTH_ROWS = (1_000_000, 10_000_000, 100_000_000)
GROWTH_SLOTS = (1, 2)
BATCH_ROWS, BATCHES = 50_000, 12
CREATE = "CREATE STREAM {name} (ts TIMESTAMP, key BIGINT, a BIGINT, b BIGINT, price DOUBLE, tag TEXT) TIMESTAMP BY ts;"
CHAIN = (
    "SELECT ts, key, a, b, dearer AS price, tag FROM"
    " (SELECT ts, key, a, b, price * 1.1e0 AS dearer, tag FROM s WHERE a <= 80 AND b <= 80) AS u WHERE dearer > 22e0"
)
CHAIN_THERE = (
    "SELECT ts, key, a, b, dearer AS price, tag FROM"
    " (SELECT ts, key, a, b, price * 1.1D AS dearer, tag FROM s WHERE a <= 80 AND b <= 80) WHERE dearer > 22D"
)
WINDOW = (
    "SELECT key, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS highest, window_end"
    " FROM s [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY key"
)
WINDOW_THERE = (
    "SELECT key, count(*) AS n, sum(price) AS total, max(price) AS highest, window(ts, '10 seconds', '1 second').end AS window_end"
    " FROM s GROUP BY key, window(ts, '10 seconds', '1 second')"
)
SESSION = "SELECT key, COUNT(*) AS n, SUM(b) AS total, window_end FROM s [SESSION 1 SECOND] GROUP BY key"
JOIN = "SELECT l.key AS key, l.price AS lp, r.price AS rp FROM s AS l JOIN r ON l.key = r.key WITHIN 10 SECONDS"
JOIN_THERE = (
    "SELECT l.key AS key, l.price AS lp, r.price AS rp FROM s AS l JOIN r ON l.key = r.key"
    " AND abs(unix_micros(l.ts) - unix_micros(r.ts)) <= 10000000"
)


class Timing(Protocol):
    """Medians of alternating runs in seconds; `ratio` is Spark SQL's time over ours, `noise` its spread."""

    ours_s: float
    reference_s: float
    ratio: float
    noise: float
    cpu_s: float


class Kit(Protocol):
    """Size, timing and checks."""

    quick: bool

    def size(self, full: int, quick: int) -> int:
        """Return how much of something to take."""
        ...

    def require(self, holds: bool, what: str) -> None:
        """Fail the benchmark, saying what is wrong, unless it holds."""
        ...

    def alternate(self, ours: Any, reference: Any, prepare: Any = None, pairs_min: int = 5) -> Any:
        """Time both in turn."""
        ...


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Chain, windows, join and many windows over Parquet files, against Spark SQL; batches of files."""
    with tempfile.TemporaryDirectory() as folder, spark_session(MASTER) as session:
        yield from _Bench(kit, session, Path(folder)).figures()


def growth(kit: Kit) -> Iterator[Figures]:
    """Chain, windows and sessions on Spark over 1 and 10 M rows, windows over 100 M, with one slot and with two; what is shuffled."""
    with tempfile.TemporaryDirectory() as folder:
        for slots in GROWTH_SLOTS:
            with spark_session(f"local[{slots}]") as session:
                yield from _Growth(kit, session, Path(folder), slots).figures()


class _Bench:
    def __init__(self, kit: Kit, session: Any, folder: Path) -> None:
        self.kit, self.session, self.folder = kit, session, folder

    def figures(self) -> Iterator[Figures]:
        """Yield a line for each load."""
        rows = self.kit.size(10_000_000, 200_000)
        self._write("s", rows, 1_000, rows // 200)
        yield self._compared("spark-chain", CHAIN, CHAIN_THERE, ["s"], rows)
        yield self._compared("spark-window", WINDOW, WINDOW_THERE, ["s"], rows)
        rows = self.kit.size(2_000_000, 200_000)
        self._write("s", rows, 1_000, rows // 200)
        yield self._frames("spark-chain-frames", CHAIN, CHAIN_THERE, rows)
        yield self._frames("spark-window-frames", WINDOW, WINDOW_THERE, rows)
        yield self._batches()
        rows = self.kit.size(1_000_000, 50_000)
        for name in ("s", "r"):
            self._write(name, rows, 10_000, rows // 1_000)
        yield self._compared("spark-join", JOIN, JOIN_THERE, ["s", "r"], 2 * rows)
        yield self._many(rows)

    def _write(self, name: str, rows: int, keys: int, per_second: int) -> None:
        place = self.folder / f"{name}.parquet"
        write_rows(place, rows, keys, per_second, sum(name.encode()))
        self.session.read.parquet(str(place)).createOrReplaceTempView(name)

    def _text(self, names: list[str], *queries: str) -> str:
        return "".join(CREATE.format(name=n) for n in names) + ";".join(queries)

    def _inputs(self, names: list[str]) -> dict[str, str]:
        return {name: str(self.folder / f"{name}.parquet") for name in names}

    def _clear(self) -> None:
        for name in ("ours", "theirs"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _compared(self, name: str, query: str, there: str, names: list[str], rows: int) -> Figures:
        text = self._text(names, query)

        def ours() -> None:
            written(SparkScript(self.session, text, self._inputs(names), 2), {0: str(self.folder / "ours")})

        def theirs() -> None:
            self.session.sql(there).write.parquet(str(self.folder / "theirs"))

        timing = self.kit.alternate(ours, theirs, prepare=self._clear, pairs_min=PAIRS_MIN)
        self._check(name, parquet.read_table(self.folder / "ours"), parquet.read_table(self.folder / "theirs"))
        return _figures(name, rows, timing)

    def _frames(self, name: str, query: str, there: str, rows: int) -> Figures:
        text = self._text(["s"], query)

        def ours() -> None:
            run(self.session, text, {"s": self.session.table("s")}, partitions=2)["q1"].write.parquet(str(self.folder / "ours"))

        def theirs() -> None:
            self.session.sql(there).write.parquet(str(self.folder / "theirs"))

        timing = self.kit.alternate(ours, theirs, prepare=self._clear, pairs_min=PAIRS_MIN)
        self._check(name, parquet.read_table(self.folder / "ours"), parquet.read_table(self.folder / "theirs"))
        return _figures(name, rows, timing)

    def _many(self, rows: int) -> Figures:
        """Many windows over one stream: MAX and SUM over 20 to 100 s, each 1 to 50 s."""
        queries = self.kit.size(100, 4)
        sizes = [(20 + i * 80 // queries, 1 + i * 49 // queries) for i in range(queries)]
        asked = "SELECT MAX(price) AS h, SUM(price) AS s, window_end FROM s [RANGE {} SECONDS SLIDE {} SECONDS]"
        here = [asked.format(size, slide) for size, slide in sizes]
        text = self._text(["s"], *here)

        def ours() -> None:
            folders = {number: str(self.folder / "ours" / str(number)) for number in range(queries)}
            written(SparkScript(self.session, text, self._inputs(["s"]), 2), folders)

        def theirs() -> None:
            for number, (size, slide) in enumerate(sizes):
                window = f"window(ts, '{size} seconds', '{slide} seconds')"
                there = f"SELECT max(price) AS h, sum(price) AS s, {window}.end AS window_end FROM s GROUP BY {window}"
                self.session.sql(there).write.parquet(str(self.folder / "theirs" / str(number)))

        timing = self.kit.alternate(ours, theirs, prepare=self._clear, pairs_min=PAIRS_MIN)
        last = str(queries - 1)
        self._check("spark-sharing", parquet.read_table(self.folder / "ours" / last), parquet.read_table(self.folder / "theirs" / last))
        return {**_figures("spark-sharing", rows, timing), "queries": queries}

    def _batches(self) -> Figures:
        """Windows by key over files that come one by one, each a batch: what one takes with its checkpoint, the first not counted."""
        batches, rows = self.kit.size(BATCHES, 3), self.kit.size(BATCH_ROWS, 5_000)
        text = f"{CREATE.format(name='s')}CREATE QUERY q AS {WINDOW}"
        stream = StreamRun(
            self.session, text, {"s": "files"}, {"q": str(self.folder / "batches")}, str(self.folder / "checkpoint"), buckets=2
        )
        table = parquet.read_table(self.folder / "s.parquet")
        took_s = []
        for number in range(batches):
            place = self.folder / f"{number}.parquet"
            parquet.write_table(table.slice(number * rows, rows), place)
            began = time.perf_counter()
            stream.take(number, {"s": [str(place)]})
            took_s.append(time.perf_counter() - began)
        stream.end()
        counted = int(sum(parquet.read_table(self.folder / "batches", columns=["n"]).column("n").to_numpy()))
        self.kit.require(counted == 10 * rows * batches, f"spark-batch: windows of 10 slides count {counted} of {rows * batches} rows")
        batch_s = statistics.median(took_s[1:])
        return {"name": "spark-batch", "rows_per_s": rows / batch_s, "batch_s": batch_s, "rows": rows}

    def _check(self, name: str, ours: Any, theirs: Any) -> None:
        self.kit.require(ours.num_rows == theirs.num_rows, f"{name}: {ours.num_rows} rows, and Spark SQL gives {theirs.num_rows}")
        for column in ours.column_names:
            if pa.types.is_floating(ours.schema.field(column).type):
                here, there = (float(np.sort(t.column(column).to_numpy()).sum()) for t in (ours, theirs))
                self.kit.require(math.isclose(here, there, rel_tol=1e-9), f"{name}: {column} adds up to {here}, in Spark SQL to {there}")


@dataclass(frozen=True, slots=True)
class _Growth:
    kit: Kit
    session: Any
    folder: Path
    slots: int

    def figures(self) -> Iterator[Figures]:
        """Yield a line for each load and number of rows."""
        for rows in (50_000,) if self.kit.quick else GROWTH_ROWS:
            place = self.folder / f"{rows}.parquet"
            if rows == GROWTH_ROWS[-1] and self.slots == 1:
                continue  # once is enough
            if not place.exists():
                write_rows(place, rows, 1_000, rows // 200, 1)
            loads = {"window": WINDOW} if rows == GROWTH_ROWS[-1] else {"chain": CHAIN, "window": WINDOW, "session": SESSION}
            for name, query in loads.items():
                if rows == GROWTH_ROWS[0]:
                    self._timed(query, place)  # Java and Python are warm then
                yield {"name": f"spark-growth-{name}-{rows // 1_000}k", "slots": self.slots, "rows": rows, **self._timed(query, place)}

    def _timed(self, query: str, place: Path) -> Figures:
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        before = _shuffled(self.session)
        began = time.perf_counter()
        script = SparkScript(self.session, CREATE.format(name="s") + query, {"s": str(place)}, self.slots)
        results = written(script, {0: str(self.folder / "out")})
        took_s = time.perf_counter() - began
        self.kit.require(results > 0, "no results")
        made = [after - earlier for after, earlier in zip(_shuffled(self.session), before, strict=True)]
        rows = parquet.read_metadata(place).num_rows
        return {
            "rows_per_s": rows / took_s,
            "seconds": took_s,
            "results": results,
            "shuffled_bytes_per_row": made[0] / rows,
            "shuffle_time_share": made[1] / max(1, made[2]),
        }


def _shuffled(session: Any) -> tuple[int, int, int]:
    """Return over all that ran in a session: bytes shuffled; ns of writing and awaiting them; ns of all tasks."""
    context = session.sparkContext
    store = context._jsc.sc().statusStore()
    stages = store.stageList(None, False, False, context._gateway.new_array(context._gateway.jvm.double, 0), None)
    found = [stages.apply(i) for i in range(stages.size())]
    waited_ns = sum(s.shuffleWriteTime() + s.shuffleFetchWaitTime() * 1_000_000 for s in found)
    return sum(s.shuffleWriteBytes() for s in found), waited_ns, sum(s.executorRunTime() * 1_000_000 for s in found)


def write_rows(place: Path, rows: int, keys: int, per_second: int, seed: int) -> None:
    """Write rows of the benchmark's stream as a Parquet file, a row group after the other."""
    rng = np.random.default_rng(seed)
    writer = None
    for first in range(0, rows, GROUP_ROWS):
        count = min(GROUP_ROWS, rows - first)
        times = START_US + np.arange(first, first + count, dtype=np.int64) * SECOND_US // max(1, per_second)
        table = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "key": rng.integers(0, keys, count),
                "a": rng.integers(0, 100, count),
                "b": rng.integers(0, 100, count),
                "price": rng.integers(1, 100, count) + 0.5,
                "tag": pa.array(np.array(["red", "green", "blue"])[rng.integers(0, 3, count)]),
            }
        )
        writer = writer or parquet.ParquetWriter(place, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def written(script: SparkScript, folders: dict[int, str]) -> int:
    """Write answers and return their rows."""
    return sum(rows for _, rows in script.write(folders))


def _figures(name: str, rows: int, timing: Timing) -> Figures:
    return {
        "name": name,
        "rows_per_s": rows / timing.ours_s,
        "reference_rows_per_s": rows / timing.reference_s,
        "ratio": timing.ratio,
        "noise": timing.noise,
        "rows": rows,
    }
