"""A server of our own for a benchmark: a process on a free port, gone when the block ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from millstream.client.errors import MillstreamError

T = TypeVar("T")
COMMAND = (sys.executable, "-c", "from millstream.client.cli import main; main()")
LEAVE_S = 10.0
_SCHEDULED = 2  # the kind of processor time: as the kernel's scheduler counts it


@dataclass(frozen=True, slots=True)
class Daemon:
    """A server that listens.

    `started_s` is how long it took from the process's start to that, `workers` are the processes that it had then.
    """

    process: subprocess.Popen[str]
    port: int
    started_s: float
    workers: tuple[int, ...]

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def rss_mb(self) -> float:
        """Return the memory it holds now, in MB."""
        return self._status("VmRSS")

    def peak_rss_mb(self) -> float:
        """Return the most memory it has held, in MB."""
        return self._status("VmHWM")

    def cpu_s(self) -> float:
        """Return the processor time that it and its workers have used, to the nanosecond.

        What /proc tells comes in ticks of 10 ms, and short work in none.
        """
        # The number Linux gives a process's clock (clock_getcpuclockid); Python makes one for threads only.
        return sum(time.clock_gettime((~pid << 3) | _SCHEDULED) for pid in (self.process.pid, *self.workers))

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise MillstreamError("benchmark", f"the system does not tell {name} of a process")


@contextmanager
def daemon(*options: str) -> Iterator[Daemon]:
    """Start `millstream serve` and wait until it listens."""
    began = time.perf_counter()

    def listening(process: subprocess.Popen[str]) -> Daemon:
        port, started_s = _port_of(process), time.perf_counter() - began
        return Daemon(process, port, started_s, _children_of(process.pid))

    with started(["serve", "--port", "0", "--log-format", "json", *options], listening) as server:
        yield server


@contextmanager
def started(words: Sequence[str], begun: Callable[[subprocess.Popen[str]], T]) -> Iterator[T]:
    """Start a command, give what `begun` reads of its first words on standard error, and end it with the block.

    What it says later is read and forgotten: a pipe that is full would stop it.
    """
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    draining = threading.Thread(target=_drained, args=(process,), daemon=True)
    try:
        first = begun(process)
        draining.start()
        yield first
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if draining.ident is None:
            draining.start()
        draining.join()


def _children_of(pid: int) -> tuple[int, ...]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found.append(int(stat.parent.name))
    return tuple(found)


def _drained(process: subprocess.Popen[str]) -> None:
    """Read what the server logs: it stands still once nobody does (a thousand connections are more lines than a pipe holds)."""
    assert process.stderr is not None
    with process.stderr:
        for _ in process.stderr:
            pass


def _port_of(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("{"):
            event = json.loads(line)
            if event.get("event") == "listening":
                return int(event["port"])
    raise MillstreamError("benchmark", f"the server did not start: {''.join(said).strip()}")
