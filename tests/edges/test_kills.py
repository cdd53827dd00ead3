"""Connector, daemon and database ended by SIGKILL in random order under load: what says exactly once loses and repeats nothing.

A log that grows is a source, a table of PostgreSQL the sink. `KILLS=20` ends them that often (`make kills`).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from millstream.client import connect
from millstream.client.errors import MillstreamError

from tests.server.test_serve_process import start
from tests.support import services
from tests.support.services import Service

pytestmark = [pytest.mark.process, pytest.mark.slow]
KILLS = int(os.environ.get("KILLS", "3"))
ROWS = 200 * KILLS
WAIT_S = 240.0


class Daemon:
    """A server that is started again after it was killed, with the process that it runs for sources and sinks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.begin()

    def begin(self) -> None:
        self.process, self.port = start("--data-dir", str(self._directory))
        # Its log is read, so that it never waits for a reader.
        self._log = threading.Thread(target=_read_all, args=(self.process.stderr,), daemon=True)
        self._log.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        self._log.join(WAIT_S)
        self.begin()

    def kill_connect(self) -> None:
        """Kill what the daemon has started."""
        self._signal(signal.SIGKILL)

    @contextmanager
    def stopped_connect(self) -> Iterator[None]:
        """Have what the daemon has started stand still for a while."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in children.read_text().split() if children.exists() else ():
            os.kill(int(pid), number)

    def execute(self, *texts: str) -> Any:
        with connect(f"127.0.0.1:{self.port}") as client:
            return [client.execute(text).rows for text in texts][-1]


def _read_all(log: Any) -> None:
    with log:
        while log.read(65_536):
            """Nobody wants to know."""


def kill_one_of(
    draw: random.Random, server: Daemon, other: Service, ready: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Let them work for a while, and kill one: the daemon, its connect process, or the other side, within what makes it `ready` to die."""
    time.sleep(draw.uniform(0.5, 3.0))
    victim = draw.choice(("daemon", "connect", "other"))
    if victim == "daemon":
        server.kill()
    elif victim == "connect":
        server.kill_connect()
    else:
        with ready():
            other.kill()
        other.start()


@contextmanager
def daemon(directory: Path) -> Iterator[Daemon]:
    made = Daemon(directory)
    try:
        yield made
    finally:
        made.process.send_signal(signal.SIGTERM)
        try:
            made.process.wait(60)
        except subprocess.TimeoutExpired:
            made.process.kill()
            made.process.wait(60)
        made._log.join(WAIT_S)


def test_a_growing_log_comes_into_a_table_once_row_by_row_whoever_is_killed(tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    draw = random.Random(7)
    log = tmp_path / "app.log"
    log.touch()
    stop = threading.Event()

    def write() -> None:
        with log.open("a") as file:
            for n in range(ROWS):
                file.write(f'{{"v": {n}}}\n')
                file.flush()
                if stop.wait(0.02):
                    return

    with services.postgres(tmp_path) as (database, url), daemon(tmp_path / "data") as server:
        with psycopg.connect(url, autocommit=True) as client:
            client.execute("CREATE TABLE results (v BIGINT)")
        server.execute(
            "CREATE STREAM s (v BIGINT) DURABILITY journal",
            "CREATE QUERY q AS SELECT v FROM s",
            f"CREATE SOURCE log INTO s WITH (connector = 'files', path = '{log}')",
            f"CREATE SINK results FROM q WITH (connector = 'postgres', url = '{url}', table = 'results')",
        )
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(KILLS):
                kill_one_of(draw, server, database)
            writer.join(WAIT_S)
            deadline = time.monotonic() + WAIT_S
            found: list[int] = []
            while len(found) < ROWS and time.monotonic() < deadline:
                time.sleep(0.2)
                try:
                    with psycopg.connect(url) as client:
                        found = [v for (v,) in client.execute("SELECT v FROM results ORDER BY v").fetchall()]
                except psycopg.OperationalError:
                    continue  # it recovers
        finally:
            stop.set()
            writer.join(WAIT_S)
        told = []
        with_problem = found != list(range(ROWS))
        if with_problem:
            try:
                told = [server.execute("SHOW SOURCES"), server.execute("SHOW SINKS")]
            except MillstreamError as error:
                told = [str(error)]
        assert not with_problem, (len(found), told)
