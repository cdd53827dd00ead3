"""A daemon of the demo's own: a process on a free port, nothing kept, ended with the demo; and a console before it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from millstream.feeder.errors import FeederError

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20
LINES_KEPT = 20
CONSOLE_PORT = 7420
_COMMAND = (sys.executable, "-c", "from millstream.client.cli import main; main()")


@contextmanager
def daemon(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run `millstream serve` and give its address once it listens; FeederError with what it said if it does not."""
    command = [*_COMMAND, "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    log = _Log(process)
    try:
        yield f"127.0.0.1:{log.port()}"
    finally:
        _end(process)
        log.close()


@contextmanager
def console_of(address: str, port: int = CONSOLE_PORT) -> Iterator[None]:
    """Run `millstream console` before a daemon as long as the block runs. It says itself where it is, or what it lacks."""
    process = subprocess.Popen([*_COMMAND, "console", "--server", address, "--port", str(port)], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Log:
    """Reads the daemon's log, so that its pipe never fills; finds the port in it and keeps the last lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._port: int | None = None
        self._known = threading.Event()
        self._thread = threading.Thread(target=self._read, name="demo-daemon-log")
        self._thread.start()

    def port(self) -> int:
        """Wait for the line that says where the daemon listens."""
        self._known.wait(START_SECONDS_MAX)
        if self._port is None:
            raise FeederError(f"the server did not start: {self._lines[-1] if self._lines else 'it said nothing'}")
        return self._port

    def close(self) -> None:
        """Read to the end."""
        self._thread.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line.strip())
            if self._port is None:
                self._port = port_in(line)
                if self._port is not None:
                    self._known.set()
        self._known.set()  # it has ended; whoever waits for the port need not wait longer


def port_in(line: str) -> int | None:
    """Return the port that a line of the log says the daemon listens on; None if it says something else."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return int(said["port"]) if isinstance(said, dict) and said.get("event") == "listening" else None
