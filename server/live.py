"""The live server: listens, runs until it is told to stop, drains.

Start-up is ordered by what users wait for: the port is bound first (so that a second server fails at once with one clear line), the
catalogue comes back before the first connection is answered.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.server.app import Application
from millstream.server.config import Config, is_loopback, policy_at_start
from millstream.server.errors import Broken, ConfigError, ServerError
from millstream.server.host.arrival_clock import ArrivalClock, Report
from millstream.server.journal.disk import Disk
from millstream.server.journal.store import Store
from millstream.server.logs import configure_logs, finish_logs, logger
from millstream.server.net.listener import Listener
from millstream.server.net.security import role_of, tls_context
from millstream.server.sweep import Sweep

if TYPE_CHECKING:
    from millstream.server.connecting import ClientProcess
    from millstream.server.net.pages import Pages

GC_OBJECTS = 5_000  # new ones before the collector looks for rings among them, in half a millisecond: everything waits meanwhile
GC_LOOKS = 100  # such looks before it looks anew at what they left
GRACE_S = 5.0  # after SIGTERM, beyond drain_s: to tell peers, to close the journal
SWITCH_INTERVAL_S = 20e-6  # a busy worker must let the loop's thread in within microseconds, not the default 5 ms


def serve(config: Config) -> None:
    """Run the server in this thread until SIGTERM or SIGINT. Raises ServerError when it cannot start, or cannot go on."""
    configure_logs(config.log_level, config.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(config))
    finally:
        finish_logs()


def end_by_force(after_s: float) -> threading.Timer:
    """End the process after a time, whatever it does then: what hangs, a statement or a disk, must not keep the server from ending.

    What is acked is on disk, or in what the system writes there.
    """

    def end() -> None:
        logger().error("ended_by_force", after_s=after_s, hint="something did not end; the log may say what")
        finish_logs()
        os._exit(1)

    timer = threading.Timer(after_s, end)
    timer.daemon = True
    timer.start()
    return timer


class _Force:
    """What ends the process some time after the first signal. A signal begins it in the main thread, between two instructions of whatever
    runs there: a loop in which something hangs, such as a policy of one's own, would never hear of it.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._timer: threading.Timer | None = None

    def begin(self, *_signal: object) -> None:
        """Begin to wait, unless that has begun."""
        if self._timer is None:
            self._timer = end_by_force(self._after_s)

    def cancel(self) -> None:
        """Let the process end by itself."""
        if self._timer is not None:
            self._timer.cancel()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(config: Config) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    force = _Force(config.drain_s + GRACE_S)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
        signal.signal(number, force.begin)
    server = LiveServer(config)
    server.application.when_broken = told.set
    await server.start()
    await server.settle()
    await told.wait()
    force.begin()
    await server.stop()
    if not server.application.is_stuck:
        force.cancel()
    if server.application.broken:
        raise Broken(server.application.broken, hint="the log has the fault; start the server again")


class LiveServer:
    """An application with its sockets; used by `serve` and by tests that run it inside their own loop."""

    def __init__(self, config: Config, disk: Disk | None = None, clock: Callable[[Report], ArrivalClock] = ArrivalClock) -> None:
        if config.data_dir:  # whole, as the processes of FETCH and of functions have another working directory
            config = replace(config, data_dir=os.path.abspath(config.data_dir))
        self.config = config
        self.application = Application(config, Store(Path(config.data_dir) if config.data_dir else None, disk), clock)
        self.log = logger()
        self.port = 0
        self.metrics_port = 0
        self._server: asyncio.Server | None = None
        self._pages: Pages | None = None
        self._sweep = Sweep(self.application)
        self._connect: ClientProcess | None = None
        self._console: ClientProcess | None = None
        self.application.look_at_processes = self._look_at_processes

    async def start(self) -> None:
        """Bind, bring the engine up, listen."""
        config = self.config
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._log_exception)
        context = tls_context(config)
        handshake: dict[str, Any] = {} if context is None else {"ssl_handshake_timeout": config.frame_s}
        try:
            self._server = await loop.create_server(
                lambda: Listener(self.application), config.host, config.port, ssl=context, backlog=512, start_serving=False, **handshake
            )
        except OSError as error:
            self.application.store.close()
            raise _cannot_listen(config.host, config.port, "--port", error) from error
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            await self.application.start()
        except ServerError:  # the data directory cannot be used
            self._server.close()
            raise
        await self._server.start_serving()
        if config.metrics_port:
            self._start_pages()
        self._sweep.start()
        self.log.info(
            "listening", host=config.host, port=self.port, tls=context is not None, policy=policy_at_start(config), workers=config.workers
        )
        if context is None and config.admin_token and not config.host.startswith("127."):
            self.log.warning("tokens_in_the_clear", hint="set --tls-cert and --tls-key")

    def _look_at_processes(self, now_ns: int) -> None:
        """See to the processes that run sources and sinks, and the console. What starts them is loaded with the first one."""
        wanted = self.config.connectors and self.application.host.has_connectors
        if self._connect is None and wanted:
            from millstream.server.connecting import connect_process

            self._connect = connect_process(self.config, self.port, self.log)
        if self._connect is not None:
            self._connect.look(now_ns, wanted=wanted)
        if self._console is None and self.config.console_port:
            from millstream.server.connecting import console_process

            self._console = console_process(self.config, self.port, self.log)
        if self._console is not None:
            self._console.look(now_ns, wanted=True)

    async def settle(self) -> None:
        """Load what the first statement needs, while peers are served already, and spare the collector of garbage all that was loaded."""
        await self.application.load_language()
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_OBJECTS, GC_LOOKS, gc.get_threshold()[2])

    def _log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Nothing that goes wrong in a callback gets lost."""
        self.log.error("callback_failed", reason=context.get("message"), exc_info=context.get("exception"))

    def _start_pages(self) -> None:
        from millstream.server.net.metrics import ServerCollector, pages
        from millstream.server.net.pages import Pages

        collector = ServerCollector(self.application)
        prepare = {"/metrics": collector.measure}
        host = self.config.metrics_host
        guard = None if is_loopback(host) else lambda token: role_of(self.config, token) is not None
        try:
            self._pages = Pages(pages(collector), prepare, guard)
            self._pages.start(host, self.config.metrics_port)
        except OSError as error:
            raise _cannot_listen(host, self.config.metrics_port, "--metrics-port", error) from error
        self.metrics_port = self._pages.port

    async def stop(self) -> None:
        """Accept nobody any more, answer what is queued, say goodbye."""
        self.log.info("stopping", drain_s=self.config.drain_s)
        self._sweep.stop()
        for process in (self._connect, self._console):
            if process is not None:
                await asyncio.get_running_loop().run_in_executor(None, process.stop)
        if self._server is not None:
            self._server.close()
        drained = await self.application.stop()
        if self._pages is not None:
            await self._pages.stop()
        gc.unfreeze()
        self.log.info("stopped", drained=drained)


def _cannot_listen(host: str, port: int, option: str, error: OSError) -> ServerError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"port {port} on {host} is in use", hint=f"another server may be running; choose another port with {option}")
    return ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}")
