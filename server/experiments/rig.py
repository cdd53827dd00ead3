"""The live engine and scheduler in this process, with operators that can be made to take a set time.

`LiveEngine` has the daemon's threads and clock. `SteppedEngine` takes the same steps in the caller's thread, on a clock of the processor
time that this thread spends: what else the machine does meanwhile does not count, so that it can be tested on a busy one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.data.graph import GraphDelta
from millstream.engine.data.train import Train
from millstream.engine.flow.running import RunningOperator
from millstream.engine.ingest.coerce import coerce_batch
from millstream.engine.operators.contract import Emitter
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.network import Network
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.drivers.live import LiveScheduler
from millstream.scheduler.events import QueryAdded
from millstream.scheduler.measures import Measures
from millstream.scheduler.spec import PolicySpec
from millstream.server.assembly import assemble
from millstream.server.benchmarks.embedding import Results
from millstream.server.host.contract import Context
from millstream.server.host.live_runtime import LiveRuntime
from millstream.server.journal.store import Store
from millstream.server.live import SWITCH_INTERVAL_S

_SPIN_NS = 200_000  # before its time is over an operator stops sleeping: a sleep ends late, by a tenth of a millisecond or more


class LiveEngine:
    """A host over the live runtime. Use as a context; statements run as they are written, without sharing."""

    clock_ns: Callable[[], int] = staticmethod(time.monotonic_ns)

    def __init__(self, policy: str, *, workers: int = 1, fuse: bool = False, load: str | None = None) -> None:
        spec, self._load = PolicySpec.parse(policy), load
        self.results = Results()
        self.host = assemble(
            self.results, Store(None), lambda _, network, told: self._made(network, spec, workers, told, fuse), spec, rewrite=False
        )

    def _made(self, network: Network, spec: PolicySpec, workers: int, told: Any, fuse: bool) -> LiveRuntime:
        self._live = self._runtime(network, spec, workers, told, fuse)
        return self._live

    def _runtime(self, network: Network, spec: PolicySpec, workers: int, told: Any, fuse: bool) -> LiveRuntime:
        return LiveRuntime(Executor(network, fuse=fuse), network, spec, workers, told, load=self._load)

    def __enter__(self) -> LiveEngine:
        self.runtime.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.runtime.stop(0.0)

    @property
    def runtime(self) -> LiveRuntime:
        """The live runtime."""
        return self._live

    @property
    def scheduler(self) -> LiveScheduler:
        """The scheduler with its thread."""
        return self.runtime.scheduler

    def execute(self, statement: str, name: str | None = None) -> None:
        """Execute a statement."""
        self.host.execute(statement, Context(name=name))

    def columns(self, stream: str, batch: Any) -> list[Column]:
        """Return a record batch as the stream's columns."""
        return list(coerce_batch(batch, self.host.intake(stream).definition).columns)

    def push(self, stream: str, columns: Sequence[Column]) -> None:
        """Let rows in now."""
        self.host.intake(stream).take_columns(columns)

    def play(self, stream: str, rows: Sequence[Sequence[Column]], at_ns: Sequence[int], begin_ns: int) -> None:
        """Let each of the rows in when its time after `begin_ns` has come; those that are late come at once. Then wait for the results."""
        for row, at in zip(rows, at_ns, strict=True):
            left_ns = begin_ns + at - self.clock_ns()
            if left_ns > 0:
                time.sleep(left_ns / 1e9)
            self.push(stream, row)
        self.settle()

    def settle(self) -> None:
        """Wait until everything that came has been worked off."""
        self.scheduler.quiesce(None)

    def operator(self, query: str, kind: str) -> RunningOperator:
        """Return the first operator of a kind (select, project, sink …) of a query."""
        identity = self.host.queries.get(query).id
        assert identity is not None
        operators = self.host.network.queries[identity].blueprint.operators
        return next(one for one in operators if type(one.recipe).__name__.lower().startswith(kind))

    def measure_anew(self) -> None:
        """Forget what was measured of outputs up to now; estimates stay."""

        def begin(core: SchedulerCore) -> None:
            assert core.measures is not None
            core.measures = Measures(self.clock_ns(), core.measures.epoch_ns)
            for query in core.network.queries.values():
                core.measures.query_came(query)

        self.scheduler.ask(begin)

    def slow_down(self, running: RunningOperator, cost_ns: int) -> None:
        """Let an operator take so much time a row beside its own work."""
        inner, clock_ns, spend = running.logic, self.clock_ns, self._spend

        class Slow(type(inner)):  # type: ignore[misc]
            def process(self, inputs: Sequence[Train], out: Emitter) -> None:
                until_ns = clock_ns() + cost_ns * sum(train.rows for train in inputs)
                super().process(inputs, out)
                spend(until_ns)

        inner.__class__ = Slow

    def _spend(self, until_ns: int) -> None:
        """Take time until then: asleep, so that other threads run, and awake for the last part, so that it is kept to."""
        left_ns = until_ns - self.clock_ns()
        if left_ns > _SPIN_NS:
            time.sleep((left_ns - _SPIN_NS) / 1e9)
        while self.clock_ns() < until_ns:
            pass


class ThreadClock:
    """Processor time of this thread, that can be skipped forward and stopped."""

    def __init__(self) -> None:
        self._offset_ns = 0

    def __call__(self) -> int:
        """Return the time."""
        return time.thread_time_ns() + self._offset_ns

    def skip_to(self, at_ns: int) -> None:
        """Let it be then, if it is not later."""
        self._offset_ns += max(0, at_ns - self())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let what happens meanwhile take no time."""
        before_ns = self()
        yield
        self._offset_ns -= self() - before_ns


class _SteppedRuntime(LiveRuntime):
    """The live runtime whose scheduler's steps the caller takes."""

    at_ns = 0

    def start(self) -> None:
        """There is no thread."""

    def stop(self, drain_s: float) -> bool:
        """There is none."""
        return True

    def arrival_ns(self) -> int:
        """Return when the row now let in is said to have come."""
        return self.at_ns

    def step_until_idle(self) -> None:
        """Take steps until nothing is left to do."""
        own = self.scheduler.step()
        while own or not self.scheduler.statistics().idle:
            own = self.scheduler.step(own)

    def add(self, delta: GraphDelta) -> None:
        """Splice in here."""
        self.scheduler.post(QueryAdded(delta))
        self.step_until_idle()


class SteppedEngine(LiveEngine):
    """The live engine without threads; see the module's text."""

    def __init__(self, policy: str, *, load: str | None = None) -> None:
        self.clock_ns = self.clock = ThreadClock()
        self._own: list[Any] = []
        super().__init__(policy, load=load)

    def _runtime(self, network: Network, spec: PolicySpec, workers: int, told: Any, fuse: bool) -> LiveRuntime:
        return _SteppedRuntime(Executor(network, fuse=fuse), network, spec, workers, told, self.clock, load=self._load)

    def play(self, stream: str, rows: Sequence[Sequence[Column]], at_ns: Sequence[int], begin_ns: int) -> None:
        """Let the rows in at their times, taking steps in between; where there is nothing to do, the clock is set forward."""
        own: list[Any] = []
        place = 0
        while True:
            while place < len(rows) and begin_ns + at_ns[place] <= self.clock():
                with self.clock.stopped():
                    self._let_in(stream, rows[place], begin_ns + at_ns[place])
                place += 1
            own = self.scheduler.step(own)
            if not own and self.scheduler.statistics().idle:
                if place == len(rows):
                    return
                self.scheduler.waiting_ns -= self.clock()
                self.clock.skip_to(begin_ns + at_ns[place])
                self.scheduler.waiting_ns += self.clock()

    def _let_in(self, stream: str, row: Sequence[Column], at_ns: int) -> None:
        assert isinstance(self.runtime, _SteppedRuntime)
        self.runtime.at_ns = at_ns
        super().push(stream, row)

    def push(self, stream: str, columns: Sequence[Column]) -> None:
        """Let rows in now."""
        self._let_in(stream, columns, self.clock())

    def advance(self, until_ns: int) -> None:
        """Take steps up to a time of the clock, which is set there where nothing is left to do."""
        while self.clock() < until_ns:
            self._own = self.scheduler.step(self._own)
            if not self._own and self.scheduler.statistics().idle:
                self.clock.skip_to(until_ns)

    def settle(self) -> None:
        """Take all steps."""
        assert isinstance(self.runtime, _SteppedRuntime)
        self.runtime.step_until_idle()

    def _spend(self, until_ns: int) -> None:
        while self.clock_ns() < until_ns:
            pass


@contextmanager
def quick_switching() -> Iterator[None]:
    """Let threads take turns as fast as in the daemon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
