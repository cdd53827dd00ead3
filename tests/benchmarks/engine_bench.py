"""Runs the engine's workloads against the same query by hand: python -m tests.benchmarks.engine_bench [chain|overhead|window|join] [rows].

Prints rows a second of both and their ratio, and checks that the answers have the same number of rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from millstream.engine.data.train import Train
from millstream.engine.data.work import OrderId, Step, WorkOrder
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateStream
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.plan import plan_select
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.network import Network

from tests.benchmarks.workloads import (
    CHAIN_QUERY,
    CHAIN_STREAM,
    JOIN_QUERY,
    JOIN_STREAMS,
    WINDOW_QUERY,
    WINDOW_STREAM,
    Chunk,
    PanesByHand,
    chain_by_hand,
    chain_chunks,
    join_by_hand,
    join_chunks,
    window_chunks,
)

REPEATS = 5


class Bench:
    """One query on a network of its own; `feed` takes chunks through all its operators."""

    def __init__(self, streams: Sequence[str], query: str) -> None:
        catalog = Catalog()
        self.network = Network()
        for text in streams:
            statement = parse_statement(text)
            assert isinstance(statement, CreateStream)
            catalog.add(statement.definition)
            self.network.create_stream(statement.definition)
        self.rows = 0
        delta = self.network.add_query("bench", plan_select(query, catalog).physical, self._deliver)
        self.network.attach(delta.query.id)
        sources = {s.id for s in self.network.sources.values()}
        self._order = WorkOrder(OrderId(1), tuple(Step(o) for o in delta.query.operators if o not in sources))
        self._executor = Executor(self.network)

    def _deliver(self, train: Train) -> None:
        train.columns()
        self.rows += train.rows

    def feed(self, chunks: Sequence[Chunk], pieces: int = 1) -> None:
        """Ingest `pieces` chunks at a time and run the query on them."""
        for start in range(0, len(chunks), pieces):
            for chunk in chunks[start : start + pieces]:
                self.network.ingest(chunk.stream, chunk.columns, arrival_ns=time.perf_counter_ns(), now_us=0)
            self._executor.run(self._order, time.perf_counter_ns)

    def finish(self) -> int:
        """End all streams and return the rows of the answer."""
        for stream in list(self.network.sources):
            self.network.end(stream, arrival_ns=time.perf_counter_ns())
        self._executor.run(self._order, time.perf_counter_ns)
        return self.rows


def best(prepare: Callable[[], Callable[[], int]]) -> tuple[float, int]:
    """Return the best of some runs in seconds of this process (the machine may be shared), and the rows of the answer."""
    times, rows = [], 0
    for _ in range(REPEATS):
        run = prepare()
        started = time.process_time()
        rows = run()
        times.append(time.process_time() - started)
    return min(times), rows


def compare(name: str, streams: Sequence[str], query: str, chunks: Sequence[Chunk], by_hand: Callable[[], int], pieces: int = 1) -> None:
    """Measure both and print a line."""

    def engine() -> Callable[[], int]:
        bench = Bench(streams, query)
        return lambda: (bench.feed(chunks, pieces), bench.finish())[1]

    reference_s, expected = best(lambda: by_hand)
    engine_s, found = best(engine)
    assert found == expected, (found, expected)
    rows = sum(len(c.columns[0]) for c in chunks)
    print(
        f"{name}: {rows / engine_s / 1e6:.1f} M rows/s, by hand {rows / reference_s / 1e6:.1f}, ratio {reference_s / engine_s:.2f}, "
        f"{engine_s / len(chunks) * 1e6:.0f} us a chunk"
    )


def window_by_hand(chunks: Sequence[Chunk]) -> int:
    panes = PanesByHand()
    for chunk in chunks:
        panes.add(chunk)
    return panes.finish()


def main(names: Sequence[str], rows: int) -> None:
    if "chain" in names:
        chunks = chain_chunks(rows, 10_000)
        compare("chain", [CHAIN_STREAM], CHAIN_QUERY, chunks, lambda: chain_by_hand(chunks))
    if "overhead" in names:
        single = chain_chunks(5_000, 1)
        compare("chain, one row a train", [CHAIN_STREAM], CHAIN_QUERY, single, lambda: chain_by_hand(single))
    if "window" in names:
        seconds = window_chunks(rows, 10_000)
        compare("window", [WINDOW_STREAM], WINDOW_QUERY, seconds, lambda: window_by_hand(seconds))
    if "join" in names:
        sides = join_chunks(rows // 4, 5_000)
        compare("join", JOIN_STREAMS, JOIN_QUERY, sides, lambda: join_by_hand(sides), pieces=2)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    chosen = [a for a in arguments if not a.isdigit()] or ["chain", "overhead", "window", "join"]
    main(chosen, next((int(a) for a in arguments if a.isdigit()), 2_000_000))
