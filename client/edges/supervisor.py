"""What `millstream connect` does: asks the server which sources and sinks there are to be, runs them, and reports on them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from millstream.client.blocking import Client
from millstream.client.edges.runs import PAUSE_S_FIRST, PAUSE_S_MAX, ConnectorRun, SinkRun, SourceRun
from millstream.client.errors import MillstreamError
from millstream.client.statements import quoted

LOOK_S = 0.25
STOP_S = 10.0
KINDS: dict[str, type[ConnectorRun]] = {"source": SourceRun, "sink": SinkRun}
Key = tuple[str, str]


class Supervisor:
    """Runs until `stop` is set. `connect` makes a connection to the server; `tell(text)` is told what a person should know."""

    def __init__(self, connect: Callable[[], Client], tell: Callable[[str], None], stop: threading.Event) -> None:
        self._connect = connect
        self._tell = tell
        self._stop = stop
        self._runs: dict[Key, ConnectorRun] = {}
        self._reported: dict[Key, dict[str, Any]] = {}

    def run(self) -> None:
        """Look, carry out and report, over one connection after the other. MillstreamError for what will not pass."""
        pause_s = PAUSE_S_FIRST
        try:
            while not self._stop.is_set():
                try:
                    with self._connect() as client:
                        pause_s = PAUSE_S_FIRST
                        while not self._stop.is_set():
                            self._look(client)
                            self._stop.wait(LOOK_S)
                except MillstreamError as error:
                    if error.code in ("unauthorized", "forbidden", "version"):
                        raise
                    self._tell(f"{error.message}; connecting again")
                    self._reported.clear()  # the server may have forgotten
                    self._stop.wait(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_S_MAX)
        finally:
            self._end(list(self._runs))

    def _look(self, client: Client) -> None:
        wanted: dict[Key, dict[str, Any]] = {}
        for kind in KINDS:
            for row in client.execute(f"SHOW {kind.upper()}S").rows:
                if row["state"] != "paused":
                    wanted[kind, row["name"]] = row
        changed = [
            key
            for key, run in self._runs.items()
            if key not in wanted or (wanted[key]["options_json"], _target(key, wanted[key])) != (run.options_json, run.target)
        ]
        self._end(changed)
        for key, row in wanted.items():
            if key not in self._runs:
                run = KINDS[key[0]](key[1], _target(key, row), row["options_json"], row["token"], self._connect)
                self._runs[key] = run
                run.start()
        self._report(client)

    def _report(self, client: Client) -> None:
        for (kind, name), run in list(self._runs.items()):
            report = run.report()
            before = self._reported.get((kind, name), {})
            if report == before:
                continue
            text = json.dumps(report).replace("'", "''")
            try:
                client.execute(f"REPORT {kind.upper()} {quoted(name)} '{text}'")
            except MillstreamError as error:
                if error.code != "unknown_name":  # it was dropped meanwhile
                    raise
            if report.get("last_error") and report["last_error"] != before.get("last_error"):
                self._tell(f"{kind} {name}: {report['last_error']}")
            self._reported[kind, name] = report

    def _end(self, keys: list[Key]) -> None:
        for key in keys:
            self._runs[key].stop()
        for key in keys:
            if not self._runs[key].join(STOP_S):
                self._tell(f"{key[0]} {key[1]} did not end within {STOP_S:g} s")
            del self._runs[key]
            self._reported.pop(key, None)


def _target(key: Key, row: dict[str, Any]) -> str:
    """Return the stream that a source fills, or the query that a sink reads."""
    return str(row["stream" if key[0] == "source" else "query"])
