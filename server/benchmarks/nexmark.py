"""NEXMark in this process: each query alone over the same events, then all of them at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, column_to_arrow
from millstream.engine.data.train import Train
from millstream.scheduler.limits import ESTIMATE_CALLS_LIVE
from millstream.scheduler.settings import CoreSettings
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.server.benchmarks.contract import Figures, Kit, Nexmark
from millstream.server.benchmarks.embedding import Embedded

RUNS = 5
AS_LIVE = CoreSettings(train=TrainShape(share=1.0), estimate_calls=ESTIMATE_CALLS_LIVE)


def benchmark(kit: Kit) -> Iterator[Figures]:
    """The queries q0 to q22 of NEXMark, in process: each alone, then all at once; every answer against DuckDB's."""
    workload = kit.nexmark()
    alone = 0.0
    for name in workload.queries:
        figures = _measured(kit, workload, [name])
        alone += figures["cpu_s"]
        yield {"name": f"nexmark-{name}", **figures}
    if len(workload.queries) > 1:
        together = _measured(kit, workload, workload.queries)
        yield {"name": "nexmark-all", **together, "alone_s": alone}


def write(kit: Kit, folder: Path) -> str:
    """Write the events into files of a folder."""
    return kit.nexmark().write(folder)


def _measured(kit: Kit, workload: Nexmark, names: Sequence[str]) -> Figures:
    """Run queries over the events: rows a second are events of all three streams by processor time."""
    seconds: list[float] = []
    for run in range(kit.size(RUNS, 1)):
        engine = Engine(workload, names)
        seconds.append(engine.run())
        if not run:
            for name in names:
                wrong = workload.wrong(name, engine.rows(name))
                kit.require(wrong is None, str(wrong))
    taken = statistics.median(seconds)
    return {
        "queries": len(names),
        "rows_per_s": workload.events / taken,
        "noise": kit.spread(seconds),
        "cpu_s": taken,
        "peak_rss_mb": kit.peak_rss_mb(),
    }


class Engine:
    """An engine with some of the queries, and the events as its columns."""

    def __init__(self, workload: Nexmark, names: Sequence[str]) -> None:
        self.embedded = Embedded(policy=PolicySpec("fcfs"), settings=AS_LIVE, sharing=True, rewrite=True)
        self.later: list[str] = []  # streams that queries feed: they end after those of the events
        for statement in workload.streams:
            self.embedded.execute(statement)
        for name in names:
            *before, select = workload.query(name)
            for statement in before:
                self.embedded.execute(statement)
            self.later += workload.fed(name)
            self.embedded.execute(select, name)
        table, rows = workload.side_input
        if table in self.embedded.host.intakes:
            self.embedded.host.intake(table).take_batch(rows)
        self.trains = [[(stream, self.embedded.columns(stream, batch)) for stream, batch in train] for train in workload.trains]
        self.sources = workload.sources

    def run(self) -> float:
        """Let all events through; return the processor time, in seconds."""
        began = time.process_time()
        for train in self.trains:
            for stream, columns in train:
                self.embedded.push(stream, columns)
            self.embedded.runtime.run()
        self.embedded.end(*self.sources)
        self.embedded.end(*self.later)
        return time.process_time() - began

    def rows(self, name: str) -> list[pa.RecordBatch]:
        """Return the rows of a query."""
        schema = arrow_schema(self.embedded.host.queries.get(name).planned.physical.schema)
        return [_batch(train, schema) for train in self.embedded.results.of(name)] or [pa.RecordBatch.from_pylist([], schema)]


def _batch(train: Train, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([column_to_arrow(column) for column in train.columns()], schema=schema)
