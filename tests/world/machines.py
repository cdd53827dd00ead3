"""The machines of a world: one with the server and its disk, which may crash, and one with all clients, which does not."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any
from unittest import mock

from millstream.engine.chains.fused import ChainOutcome, FusedChain
from millstream.engine.data import limits
from millstream.engine.flow.running import OperatorCall, RunningOperator
from millstream.scheduler.names import LOADS
from millstream.server import logs
from millstream.server.config import Config
from millstream.server.errors import GivenUp, ServerError
from millstream.server.live import LiveServer
from millstream.server.once import worker
from millstream.server.once.question import Question, answer_of
from millstream.server.results.outcome import Outcome

from tests.world.disk import Platter, SimDisk
from tests.world.hub import NS_PER_S, Hub, Process, where
from tests.world.network import Network, SimLoop
from tests.world.plans import PLAIN, Conditions
from tests.world.stand_ins import load_all, standing_in
from tests.world.watch import EVERY_STEPS, Watch
from tests.world.workers import OperatingSystem, workers_as_strands

DIRECTORY = "/data"
FAULTS = frozenset(("fault", "fatal", "callback_failed", "conservation_broken", "query_failed", "not_restored"))
"""Lines of the log that must not be, as those that have an exception, and that tell of a query which ended by itself."""
CONFIG = Config(
    data_dir=DIRECTORY,
    server_memory_bytes_max=2**30,
    query_memory_bytes_max=2**29,
    step_s_max=1e6,
    fetch_workers=2,
    load="none",
)


class Crashed(Exception):
    """The server is not there."""


class World:
    """A hub, a network, a disk, the present server and the machine with the clients."""

    def __init__(self, seed: int, conditions: Conditions = PLAIN, **settings: Any) -> None:
        self.seed = seed
        self.conditions = conditions
        self.hub = Hub(seed)
        self.hub.row_ns = conditions.row_ns
        self.network = Network(self.hub)
        self.platter = Platter(self.hub)
        self.machine = OperatingSystem(self.hub)
        self.config = dataclasses.replace(CONFIG, **settings, **conditions.settings)
        self.lives = 0
        self.server: LiveServer | None = None
        self.process: Process | None = None
        self.is_up = False
        self.refusal: BaseException | None = None
        """Why the last start was refused."""
        self.is_refusal_due = False
        """Whether the disk failed at that moment, or has lied before."""
        self.is_given_up = False
        self.lines: list[dict[str, Any]] = []
        self.clients = Process(self.hub, "clients")
        self.errors: list[BaseException] = []
        self.watch = Watch(self)
        self.hub.watch, self.hub.watch_steps = self.watch.look, EVERY_STEPS

    # --- the server ---

    def start_server(self) -> None:
        """Begin a life of the server, in a world with too much work under any load manager."""
        self.lives += 1
        if self.conditions.row_ns:
            self.config = dataclasses.replace(self.config, load=self.hub.draw.choice(LOADS))
            self.hub.note("load manager", self.config.load)
        self.is_up, self.refusal = False, None
        process = self.process = Process(self.hub, f"server{self.lives}")
        process.at_end.append(lambda: self._ended(process))
        self.hub.note("starts", process.name)
        process.spawn(self._serve, process)

    def _ended(self, process: Process) -> None:
        self.network.ended(process)
        if self.process is process:
            self.is_up = False

    def _serve(self, process: Process) -> None:
        loop = SimLoop(self.hub, process, self.network)
        process.at_burial.append(lambda: loop.set_exception_handler(lambda loop, context: None))  # tasks that were killed end untold
        told = asyncio.Event()
        process.stop = lambda: loop.from_network(told.set)  # type: ignore[attr-defined]

        async def main() -> None:
            try:
                server = self.server = LiveServer(self.config, SimDisk(self.platter, process))
                server.application.when_broken = told.set
                await server.start()
            except ServerError as error:
                self.refusal = error
                self.is_refusal_due = self.platter.mood.is_bad or self.platter.has_failed
                self.hub.note("refuses to start", error)
                return
            self.is_up = True
            self.platter.has_failed = False
            self.hub.note("serves", process.name)
            await server.application.load_language()
            await told.wait()
            await server.stop()

        try:
            loop.run_until_complete(main())
        except Exception as error:
            if process.alive and self.hub.current is not None:
                self.hub.failed(self.hub.current, error)  # who asks after this strand finds its process ended
        finally:
            if process.alive:
                self.hub.note("ended", process.name)
                process.end()

    def kill(self, *, power: bool = False, silently: bool = False) -> None:
        """End the server as SIGKILL does, or with `power` the whole machine; `silently`: so that no peer hears of it."""
        if silently:
            self.network.fall_silent()
        if self.process is not None and self.process.alive:
            self.process.kill()
        if power:
            self.hub.note("power fails")
            self.platter.lose_power()

    def stop(self) -> None:
        """Tell the server to stop, as SIGTERM does."""
        if self.process is not None and self.process.alive and hasattr(self.process, "stop"):
            self.process.stop()

    # --- clients ---

    def run_clients(self, main: Callable[[], Coroutine[Any, Any, Any]], within_s: float) -> None:
        """Run a coroutine on the clients' machine, and the world with it, until it ends."""
        done: list[bool] = []

        def run() -> None:
            loop = SimLoop(self.hub, self.clients, self.network)
            loop.set_exception_handler(lambda loop, context: self._client_fault(context))
            try:
                loop.run_until_complete(main())
            except Exception as error:
                self.errors.append(error)
            finally:
                done.append(True)

        self.clients.spawn(run)
        if not self.hub.run(lambda: bool(done), int(within_s * NS_PER_S)):
            raise AssertionError(f"the clients did not end within {within_s} simulated seconds")
        if self.errors:
            raise self.errors[0]

    def _client_fault(self, context: dict[str, Any]) -> None:
        self.hub.faults.append(f"client: {context.get('message')}: {context.get('exception')!r}")

    async def until_up(self) -> None:
        """Wait, as a client, until the server serves or refuses to."""
        while not self.is_up:
            if self.refusal is not None:
                raise Crashed(str(self.refusal))
            await asyncio.sleep(0.01)

    async def until_up_or_again(self) -> None:
        """Wait, as a client, until the server serves, however often it has to be started."""
        while not self.is_up:
            if self.is_given_up:
                raise Crashed("the disk lied, and the server refuses what it finds on it")
            await asyncio.sleep(0.05)

    # --- the log ---

    def log(self, _logger: Any, method: str, line: dict[str, Any]) -> str:
        """Take a line of the server's log (the last of structlog's processors)."""
        import structlog

        current = self.hub.current
        if current is not None and current.process.alive:
            self.lines.append(line)
            self.hub.note("log", " ".join(f"{key}={value}" for key, value in sorted(line.items()) if key != "exc_info"))
            kind, error = str(line.get("event")), line.get("exc_info")
            has_failed = kind == "query_ended" and line.get("reason") == "failed"
            if kind in FAULTS or method == "exception" or error is not None or has_failed:
                told = line.get("detail") if has_failed else line.get("reason")
                self.hub.faults.append(f"{kind}: {told} {error!r} {where(error)}")
        raise structlog.DropEvent


class SimWorker(worker.Worker):
    """What answers FETCH, without a process of its own: a strand, as long as anybody waits."""

    def __init__(self, hub: Hub, *bounds: Any) -> None:
        super().__init__(*bounds)
        self.hub = hub

    @property
    def is_warm(self) -> bool:
        return True

    def ask(self, question: Question, is_given_up: Any, progress: Callable[[float], None] = lambda _: None) -> Outcome:
        for _ in range(self.hub.draw.randint(1, 4)):
            if is_given_up():
                raise GivenUp("the request was cancelled while it ran")
            self.hub.sleep(self.hub.draw.randint(100_000, 5_000_000))
        return answer_of(question, progress)

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def work_takes_time(hub: Hub, log_rows_max: int) -> Iterator[None]:
    """Have operators take virtual time over rows, on the thread that runs them, and let queues be full at so many rows."""
    begin, run = RunningOperator.begin, FusedChain.run

    def begun(self: RunningOperator, rows_max: int, **how: Any) -> OperatorCall | None:
        call = begin(self, rows_max, **how)
        hub.work(0 if call is None else call.rows)
        return call

    def ran(self: FusedChain, rows_max: int, *how: Any) -> ChainOutcome | None:
        outcome = run(self, rows_max, *how)
        hub.work(0 if outcome is None else outcome.taken.rows * self.length)
        return outcome

    with (
        mock.patch.object(RunningOperator, "begin", begun),
        mock.patch.object(FusedChain, "run", ran),
        mock.patch.object(limits, "LOG_ROWS_MAX", log_rows_max),
    ):
        yield


@contextmanager
def world(seed: int, conditions: Conditions = PLAIN, **settings: Any) -> Iterator[World]:
    """Make a world that runs in the place of this process's clocks and threads until the context ends."""
    import structlog

    load_all()
    gc.collect()
    gc.disable()  # what a dead process leaves is collected at the end, not in the midst of the history
    made = World(seed, conditions, **settings)
    from asyncio import events

    made.hub.set_running_loop = events._set_running_loop
    before = structlog.get_config()
    structlog.configure(processors=[made.log], wrapper_class=structlog.make_filtering_bound_logger(20), cache_logger_on_first_use=False)
    try:
        slow = work_takes_time(made.hub, conditions.log_rows_max) if conditions.row_ns else nullcontext()
        with (
            standing_in(made.hub),
            mock.patch.object(worker, "Worker", partial(SimWorker, made.hub)),
            workers_as_strands(made.machine),
            slow,
        ):
            try:
                yield made
            finally:
                for process in (made.process, made.clients):
                    if process is not None:
                        process.kill()
                with suppress(Exception):
                    made.hub.step()
    finally:
        structlog.configure(**before)
        gc.enable()


def clear_away() -> None:
    """Free what is left of worlds that have ended: what was killed in them was neither awaited nor closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


assert logs.LEVELS  # loaded before structlog is
