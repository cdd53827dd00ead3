"""Several workers on one machine: how many rows of a stream go through unshared queries with one worker and with two.

The engine is fed in this process and its results are counted here, so what is seen is the server without its sockets. All numbers of
workers run in turn over the same rows, and must give the same answers.

`rows_per_s` is the rate by the clock. Others who use the machine lower it, so the processor time of a row of the stream stands beside it,
in this process (`front_ns_each`) and in the workers. `possible_rows_per_s` is what these allow on two processors where nobody ever waits.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.ingest.coerce import coerce_batch
from millstream.scheduler.events import Placed
from millstream.scheduler.names import SHARING_OFF
from millstream.scheduler.placement import LOOKS
from millstream.scheduler.spec import PolicySpec
from millstream.server.assembly import assemble
from millstream.server.benchmarks import sharing
from millstream.server.benchmarks.contract import Figures, Kit
from millstream.server.benchmarks.embedding import Results
from millstream.server.functions.processes import cpu_used_s
from millstream.server.host.contract import Context
from millstream.server.host.live_runtime import LiveRuntime
from millstream.server.journal.store import Store
from millstream.server.statements.selects import Submission, submit
from millstream.server.workers.pool import Workers, started
from millstream.server.workers.process import WorkerBounds

WORKERS = (1, 2)
PROCESSORS = 2
TRAIN = 10_000
QUERIES = 8
HUNDRED = 100
MIXED = 40
AHEAD_ROWS = 400_000  # that wait before the slowest query while more is brought
BOUNDS = WorkerBounds(memory_bytes_max=1 << 30, step_s_max=0.0)


class Workload:
    """Queries over one stream, and its rows. `queries` are statements, or plans. With `splits` each worker has a part of each, by key."""

    def __init__(
        self, name: str, stream: str, definition: str, queries: Sequence[Any], batches: Sequence[Any], splits: bool = False
    ) -> None:
        self.name = name
        self.stream = stream
        self.definition = definition
        self.queries = queries
        self.batches = batches
        self.splits = splits
        self.rows = sum(batch.num_rows for batch in batches)


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Eight chains, eight windows, a hundred windows, forty different queries, all unshared, with one worker and with two.

    Then single queries which two workers have a half of each: a window, one of medians, a join.
    """
    for workload in _workloads(kit):
        yield from _measured(kit, workload)


def _workloads(kit: Kit) -> Iterator[Workload]:
    rows = kit.size(2_000_000, 400_000)
    name, stream, plan = kit.chain_query
    yield Workload("cores-chain", name, stream, [plan] * QUERIES, kit.chain_trains(rows, TRAIN))
    windowed, its_stream, select = kit.window_query
    yield Workload("cores-window", windowed, its_stream, [select] * QUERIES, kit.window_trains(rows))
    few = kit.size(600_000, 50_000)  # so many that the last orders, which one worker waits for, take little of the time
    hundred = [sharing._select(shape) for shape in sharing.shapes(HUNDRED)]
    yield Workload("cores-hundred", "sharing_in", sharing.STREAM, hundred, sharing._trains(few))
    yield Workload("cores-mix", name, stream, list(_mixed(name)), kit.chain_trains(few, TRAIN))

    yield Workload("cores-split-window", windowed, its_stream, [select], kit.window_trains(rows), splits=True)
    medians = (
        f"SELECT key, MEDIAN(price) AS middle, COUNT(DISTINCT b) AS different FROM {name} [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY key"
    )
    yield Workload("cores-split-medians", name, stream, [medians], kit.chain_trains(few, TRAIN), splits=True)
    pairs = f"FROM {name} AS x JOIN {name} AS y ON x.key = y.key WITHIN 20 MILLISECONDS"
    join = f"SELECT x.ts, x.price {pairs} WHERE x.price + y.price < 10.0"
    yield Workload("cores-split-join", name, stream, [join], kit.chain_trains(few, TRAIN), splits=True)


def _mixed(stream: str) -> Iterator[str]:
    """Yield queries of four kinds: rows, windows by key, windows over everything, sessions."""
    for number in range(MIXED // 4):
        yield f"SELECT ts, key, price * {number + 2} AS p FROM {stream} WHERE a < {5 * number + 10} AND b > {3 * number}"
        yield f"SELECT key, COUNT(*) AS n, SUM(price) AS s FROM {stream} [RANGE {number + 1} SECONDS SLIDE 1 SECOND] GROUP BY key"
        yield f"SELECT MAX(price) AS high, AVG(b) AS mean FROM {stream} [RANGE {2 * number + 2} SECONDS SLIDE 2 SECONDS] WHERE a > {number}"
        yield f"SELECT a, COUNT(*) AS n FROM {stream} [SESSION {number + 1} MILLISECONDS] WHERE price > {80 + number} GROUP BY a"


class Server:
    """A server's engine with so many workers, without its sockets."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self._workload = workload
        self.results = Results()
        self.pool: Workers | None = None
        spec = PolicySpec("fcfs")
        runtimes: list[LiveRuntime] = []

        def runtime(executor: Any, network: Any, told: Any) -> LiveRuntime:
            runtimes.append(LiveRuntime(executor, network, spec, workers, told, placed=workers > 1))
            return runtimes[0]

        self.host = assemble(self.results, Store(None), runtime, spec, rewrite=False, sharing=SHARING_OFF)
        self.runtime = runtimes[0]
        if workers > 1:
            self.pool = self.host.workers = Workers(self.host.network, *started(workers, BOUNDS))
            self.pool.on_place = lambda placed: self.runtime.scheduler.post(Placed(tuple(placed.items())))
        self.runtime.start()
        self.host.execute(workload.definition, Context())
        for number, query in enumerate(workload.queries):
            if isinstance(query, str):
                query = f"{query} WITH (split = {workers})" if workload.splits and workers > 1 else query
                self.host.execute(query, Context(name=f"q{number}"))
            else:
                submit(self.host, Submission(plan=query, name=f"q{number}"), self)
        definition = self.host.intake(workload.stream).definition
        self.columns = [list(coerce_batch(batch, definition).columns) for batch in workload.batches]
        self._shift_us = int(self.columns[-1][0].values[-1] - self.columns[0][0].values[0]) + 1
        self._runs = 0
        self.results_total = 0

    def run(self) -> tuple[float, float, float, int]:
        """Feed all rows, later than those before; return the time, the processor time here and in the workers, and the result rows."""
        shift = self._runs * self._shift_us
        self._runs += 1
        trains = [[Column(first.type, first.values + shift), *others] for first, *others in self.columns]
        intake, log = self.host.intake(self._workload.stream), self.host.network.sources[self._workload.stream].log
        began, here, there = time.perf_counter(), time.process_time(), self.workers_s()
        for train in trains:
            while log.rows_held > AHEAD_ROWS:
                time.sleep(0.001)
            intake.take_columns(train)
        assert self.runtime.scheduler.quiesce(300.0)
        took = time.perf_counter() - began, time.process_time() - here, self.workers_s() - there
        rows = self.results.rows
        self.results.take()
        self.results_total += rows
        return *took, rows

    def settle(self) -> None:
        """Run until groups of queries are where the server would have moved them by then (`Sweep`); as often with any number of workers."""
        for _ in range(2 * LOOKS):
            self.run()
            move = self.pool.look(time.monotonic_ns()) if self.pool is not None else None
            if move is not None and self.pool is not None:
                with self.runtime.still():
                    self.pool.move(move)

    def workers_s(self) -> float:
        """Return the processor time of the workers."""
        return sum(cpu_used_s(worker.pid) for worker in self.pool.workers) if self.pool is not None else 0.0

    def close(self) -> None:
        """End it."""
        self.runtime.stop(0.0)
        if self.pool is not None:
            self.pool.close()


def _measured(kit: Kit, workload: Workload) -> Iterator[Figures]:
    servers = {workers: Server(workload, workers) for workers in WORKERS}
    runs: dict[int, list[tuple[float, float, float, int]]] = {workers: [] for workers in WORKERS}
    try:
        for server in servers.values():
            server.settle()
        for _ in range(kit.size(5, 2)):
            for workers, server in servers.items():
                runs[workers].append(server.run())
            kit.require(len({one[-1][3] for one in runs.values()}) == 1, f"{workload.name}: other results with other workers")
    finally:
        for server in servers.values():
            server.close()
    kit.require(servers[WORKERS[0]].results_total > 0, f"{workload.name}: no results")
    for workers, found in runs.items():
        yield _figures(workload, workers, found)


def _figures(workload: Workload, workers: int, runs: list[tuple[float, float, float, int]]) -> Figures:
    took_s, front_s, workers_s = (statistics.median(run[i] for run in runs) for i in range(3))
    bound_s = max((front_s + workers_s) / PROCESSORS, front_s, workers_s / workers)
    return {
        "name": workload.name,
        "workers": workers,
        "queries": len(workload.queries),
        "rows": workload.rows,
        "rows_per_s": workload.rows / took_s,
        "possible_rows_per_s": workload.rows / bound_s,
        "front_ns_each": front_s / workload.rows * 1e9,
        "workers_ns_each": workers_s / workload.rows * 1e9 if workers > 1 else None,
    }
