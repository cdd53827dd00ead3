"""The process that runs sources and sinks, `millstream connect`: started when there are any, and again, after a while, when it has ended.

It is a client as any other is, so that the library of a broker can stop it and never the engine. It ends when its standard input does, and
so with this process however that ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

from millstream.server.config import Config

COMMAND = "from millstream.client.cli import main; main()"
PAUSE_NS_FIRST, PAUSE_NS_MAX = 500_000_000, 30_000_000_000
GOOD_NS = 60_000_000_000  # who ran so long did not fail at once
STOP_S = 5.0
LINE_CHARS_MAX = 1_000


class ConnectProcess:
    """The one such process of a server. All calls come from the loop's thread."""

    def __init__(self, config: Config, port: int, log: Any) -> None:
        self._config = config
        self._port = port
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._began_ns = self._from_ns = 0
        self._pause_ns = PAUSE_NS_FIRST

    def look(self, now_ns: int, *, wanted: bool) -> None:
        """Start it if it is to be there and is not; end it if nobody needs it."""
        if self._process is not None and self._process.poll() is not None:
            self._log.error("connect_ended", code=self._process.returncode)
            self._close()
            if now_ns - self._began_ns > GOOD_NS:
                self._pause_ns = PAUSE_NS_FIRST
            self._from_ns = now_ns + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)
        if wanted and self._process is None and now_ns >= self._from_ns:
            self._start(now_ns)
        elif not wanted and self._process is not None:
            self._close()

    def _start(self, now_ns: int) -> None:
        host = self._config.host if self._config.host not in ("0.0.0.0", "::", "") else "127.0.0.1"
        address = f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
        arguments = ["connect", "--with-parent", "--server", address, "--memory-bytes-max", str(self._config.connect_bytes_max)]
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
            self._log.error("connect_not_started", reason=str(error))
            self._from_ns = now_ns + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)
            return
        self._process, self._began_ns = process, now_ns
        threading.Thread(target=self._pass_on, args=(process,), name="connect-log", daemon=True).start()
        self._log.info("connect_started", process=process.pid)

    def _pass_on(self, process: subprocess.Popen[str]) -> None:
        """Log what it says."""
        assert process.stderr is not None
        with process.stderr as said:
            for line in said:
                self._log.warning("connect_said", text=line.rstrip()[:LINE_CHARS_MAX])

    def _close(self) -> None:
        """Let it end by itself, or else be killed, while the loop goes on."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        threading.Thread(target=_ended, args=(process,), name="connect-end", daemon=True).start()

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
