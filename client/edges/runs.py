"""One source or sink at work: a thread that opens the connector, moves rows, and opens it again after a fault."""

from __future__ import annotations

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from millstream.client.blocking import BlockingSubscription, Client
from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Lag, find
from millstream.client.edges.formats import UNREADABLE, RowReader
from millstream.client.errors import MillstreamError
from millstream.client.subscriber import Lost
from millstream.protocol.connectors import OptionProblem, check_options

WAIT_S = 0.2
PAUSE_S_FIRST, PAUSE_S_MAX = 0.25, 30.0
LAG_S = 1.0  # between two looks at how far behind a source is
GOOD_S = 60.0  # a run that lasted so long was no quick failure
KEPT_AFTER_S, KEPT_ROWS, KEPT_BYTES = 0.05, 10_000, 8 * 2**20  # what a sink has written is kept that soon, or with so many rows or bytes
UNSETTLED_MAX = 8  # batches that are under way
TOKEN = b"millstream.resume_token"


def filled_in(name: str, options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> ConnectorOptions:
    """Return the options with the values of the variables that they name. ConnectorError naming a variable that is not set."""
    values: dict[str, Any] = {}
    for option, value in options.items():
        if isinstance(value, Mapping):
            variable = str(value["env"])
            if variable not in environment:
                raise ConnectorError(f"{name}: the environment variable {variable} ({option}) is not set where millstream connect runs")
            value = environment[variable]
        values[option] = value
    return ConnectorOptions(name, values)


class ConnectorRun(ABC):
    """What sources and sinks share: the thread, back-off, and what is told of it. `report` may be read from any thread."""

    kind = ""

    def __init__(self, name: str, target: str, options_json: str, token: str | None, connect: Callable[[], Client]) -> None:
        self.name = name
        self.target = target
        self.options_json = options_json
        self._token = token
        self._connect = connect
        self._stop = threading.Event()
        self._told: dict[str, Any] = {"state": "starting", "rows": 0, "refused": 0, "restarts": 0}
        self._rated = (time.monotonic(), 0)
        self._thread = threading.Thread(target=self._run, name=f"{self.kind} {name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Wait until it has ended; returns whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def report(self) -> dict[str, Any]:
        """Return what is told of it, with the rate since the last time."""
        now, rows = time.monotonic(), self._told["rows"]
        before, rows_before = self._rated
        if now - before >= 1.0:
            self._told["rows_per_s"] = round((rows - rows_before) / (now - before), 1)
            self._rated = now, rows
        return dict(self._told)

    def _run(self) -> None:
        pause_s = PAUSE_S_FIRST
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._once()
            except Exception as error:  # of whatever library: told, and tried again
                self._told["last_error"] = one_line(error)
                self._told["state"] = "failing"
            else:
                if self._told["state"] == "finished":
                    return
            if time.monotonic() - began > GOOD_S:
                pause_s = PAUSE_S_FIRST
            if self._stop.wait(pause_s):
                return
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self._told["restarts"] += 1

    def _once(self) -> None:
        """Open the connector, move rows until it is to stop, and close it."""
        said = json.loads(self.options_json)
        try:
            check_options(self.kind, {option: None if isinstance(value, Mapping) else value for option, value in said.items()})
        except OptionProblem as problem:  # kept by a server of before, which did not look
            raise ConnectorError(f"{self.name}: {problem}") from None
        options = filled_in(self.name, said)
        connector = find(self.kind, options.text("connector"))()
        self._told["promise"] = connector.promise
        with self._connect() as client:
            try:
                self._move(client, connector, options)
            finally:
                connector.close()

    @abstractmethod
    def _move(self, client: Client, connector: Any, options: ConnectorOptions) -> None:
        """Open the connector and move rows until it is to stop. Raises whatever goes wrong."""


def one_line(error: Exception) -> str:
    """Return what is told of an error."""
    kind = "" if isinstance(error, MillstreamError | ConnectorError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}"[:500]


class SourceRun(ConnectorRun):
    """A source: messages in, rows to the stream under the source's name, position with them."""

    kind = "source"

    def _move(self, client: Client, connector: Any, options: ConnectorOptions) -> None:
        with client.publisher(self.target, name=f"source {self.name}") as publisher:
            reader = RowReader(options, publisher.columns)
            connector.open(options, publisher.position)
            options.check_all_known()
            self._told["state"] = "running"
            unsettled, position = 0, None
            last_us: int | None = None  # when the last message came to the other side
            lag_due = 0.0
            while not self._stop.is_set():
                batch = connector.read(WAIT_S if not unsettled else 0.0)
                if batch is not None:
                    last_us = batch.messages[-1].time_us
                    publisher.send(reader.rows(batch.messages), position=batch.position)
                    unsettled, position = unsettled + 1, batch.position
                if unsettled and (batch is None or unsettled >= UNSETTLED_MAX):
                    self._settle(publisher, connector, position)
                    unsettled = 0
                if time.monotonic() >= lag_due:
                    self._tell_lag(connector.lag(), last_us)
                    lag_due = time.monotonic() + LAG_S
            if unsettled:
                self._settle(publisher, connector, position)

    def _tell_lag(self, lag: Lag, last_us: int | None) -> None:
        """Tell how far behind the source is. The oldest message that waits is about as old as the last that was read."""
        age_s = lag.age_s
        if age_s is None and lag.messages is not None and last_us is not None:
            age_s = round(max(0.0, time.time() - last_us / 1e6), 3) if lag.messages else 0.0
        self._told["lag_messages"], self._told["lag_s"] = lag.messages, age_s

    def _settle(self, publisher: Any, connector: Any, position: Any) -> None:
        ack = publisher.flush()
        self._told["rows"] += ack.accepted
        self._told["refused"] += ack.rejected_rows
        if ack.rejected:
            reason, some = ack.rejected[0].reason.removeprefix(f"there is no column {UNREADABLE}"), ack.rejected_rows
            self._told["last_error"] = (f"1 row refused: {reason}" if some == 1 else f"{some} rows refused, the first: {reason}")[:500]
        connector.settled(position)


class SinkRun(ConnectorRun):
    """A sink: results of the query, each batch with the token behind it."""

    kind = "sink"

    def _move(self, client: Client, connector: Any, options: ConnectorOptions) -> None:
        token = connector.open(options, self._told.get("token") or self._token)
        options.check_all_known()
        with self._results(client, token) as results:
            if self._told["state"] != "failing":  # what failed runs again once the other side has taken something
                self._told["state"] = "running"
            written: tuple[int, str] | None = None
            size = 0  # bytes of what is written and not kept
            since = 0.0  # when the first of what is written and not kept was
            while not self._stop.is_set():
                try:
                    item = results.next_item(timeout=WAIT_S if written is None else KEPT_AFTER_S)
                except TimeoutError:
                    item = False
                    if written is None:  # nothing waits for the other side
                        self._told["state"] = "running"
                if item is None:
                    self._keep(connector, written)
                    end = results.end
                    if end is not None and end.reason == "finished":
                        self._told["state"] = "finished"
                        return
                    raise ConnectorError(f"the results of {self.target} have ended: {'' if end is None else end.message or end.reason}")
                if isinstance(item, Lost):
                    self._told["last_error"] = f"{item.rows} results are missing here ({item.reason})"
                elif item is not False and item.num_rows:
                    after = item.schema.metadata[TOKEN].decode()
                    connector.write(item, after)
                    since = time.monotonic() if written is None else since
                    written = (written[0] if written else 0) + item.num_rows, after
                    size += item.nbytes
                    if written[0] < KEPT_ROWS and size < KEPT_BYTES and time.monotonic() - since < KEPT_AFTER_S:
                        continue
                self._keep(connector, written)
                written, size = None, 0

    def _results(self, client: Client, token: str | None) -> BlockingSubscription:
        """Return the results behind a token, or all. ConnectorError when the query's present run has never given that token."""
        if token is None:
            return client.subscribe(self.target, from_start=True)
        try:
            return client.subscribe(self.target, resume_token=token)
        except MillstreamError as error:
            if error.code != "invalid":
                raise
            raise ConnectorError(
                f"{self.target} was made or started anew since this sink kept its place ({error.message}); make a sink of another name, or "
                "remove the place that this one keeps beside its results (docs/connect.md)"
            ) from error

    def _keep(self, connector: Any, written: tuple[int, str] | None) -> None:
        connector.flush()
        if written is not None:
            self._told["state"] = "running"
            self._told["rows"] += written[0]
            self._told["token"] = written[1]
