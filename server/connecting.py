"""Processes of the server's own that are clients as any other: `millstream connect`, for sources and sinks, and `millstream console`.

Each is started when it is wanted, and again, after a while, when it has ended. The library of a broker, or a page, can then stop a client
and never the engine. Each ends when its standard input does, and so with this process however that ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

from millstream.server.config import Config, is_loopback

COMMAND = "from millstream.client.cli import main; main()"
PAUSE_NS_FIRST, PAUSE_NS_MAX = 500_000_000, 30_000_000_000
GOOD_NS = 60_000_000_000  # who ran so long did not fail at once
STOP_S = 5.0
LINE_CHARS_MAX = 1_000


def connect_process(config: Config, port: int, log: Any) -> ClientProcess:
    """Return the process that runs the sources and sinks of a server that listens on this port."""
    return ClientProcess("connect", ["--memory-bytes-max", str(config.connect_bytes_max)], config, port, log)


def console_process(config: Config, port: int, log: Any) -> ClientProcess:
    """Return the process that shows a server in a browser."""
    words = ["--host", config.console_host, "--port", str(config.console_port)]
    if config.tls_cert and not is_loopback(config.console_host):
        words += ["--tls-cert", config.tls_cert, "--tls-key", config.tls_key]
    return ClientProcess("console", words, config, port, log)


class ClientProcess:
    """One such process, of `millstream NAME`. All calls come from the loop's thread."""

    def __init__(self, name: str, words: list[str], config: Config, port: int, log: Any) -> None:
        self._name = name
        self._words = words
        self._config = config
        self._port = port
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._began_ns = self._from_ns = 0
        self._pause_ns = PAUSE_NS_FIRST
        self._given_up = False

    def look(self, now_ns: int, *, wanted: bool) -> None:
        """Start it if it is to be there and is not; end it if nobody needs it."""
        if self._process is not None and self._process.poll() is not None:
            self._log.error(f"{self._name}_ended", code=self._process.returncode)
            self._given_up = self._process.returncode == os.EX_CONFIG  # it said what is missing, and would say so again
            self._close()
            if now_ns - self._began_ns > GOOD_NS:
                self._pause_ns = PAUSE_NS_FIRST
            self._from_ns = now_ns + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)
        if wanted and self._process is None and not self._given_up and now_ns >= self._from_ns:
            self._start(now_ns)
        elif not wanted and self._process is not None:
            self._close()

    def _start(self, now_ns: int) -> None:
        host = self._config.host if self._config.host not in ("0.0.0.0", "::", "") else "127.0.0.1"
        address = f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
        arguments = [self._name, "--with-parent", "--server", address, *self._words]
        if self._config.tls_cert:  # its name is rarely that of this machine for itself
            arguments += ["--server-cert", self._config.tls_cert]
        environment = dict(os.environ)  # it has what ENV('…') names
        if self._config.admin_token:
            environment["MILLSTREAM_TOKEN"] = self._config.admin_token
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
            )
        except OSError as error:
            self._log.error(f"{self._name}_not_started", reason=str(error))
            self._from_ns = now_ns + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)
            return
        self._process, self._began_ns = process, now_ns
        threading.Thread(target=self._pass_on, args=(process,), name=f"{self._name}-log", daemon=True).start()
        self._log.info(f"{self._name}_started", process=process.pid)

    def _pass_on(self, process: subprocess.Popen[str]) -> None:
        """Log what it says."""
        assert process.stderr is not None
        with process.stderr as said:
            for line in said:
                tell = self._log.error if line.startswith("error: ") else self._log.warning
                tell(f"{self._name}_said", text=line.rstrip()[:LINE_CHARS_MAX])

    def _close(self) -> None:
        """Let it end by itself, or else be killed, while the loop goes on."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        threading.Thread(target=_ended, args=(process,), name=f"{self._name}-end", daemon=True).start()

    def stop(self) -> None:
        """End it, and return once it has ended."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            _ended(process)


def _ended(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
