"""Load to play with once the demo's answers are judged: flights again and again, as many a second as a slider in the console asks for.

The slider writes into a stream, as anybody may: `INSERT INTO demo_load VALUES (150)` asks for one and a half times the rows that fit. Three
classes of queries read the flights. Gold is never shed and takes little; what is too much is to be lost by bronze first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.client import connect
from millstream.client.errors import MillstreamError
from millstream.feeder import flights

CONTROL, STREAM = "demo_load", "demo_flights"
COLUMNS = ("carrier", "origin", "dest", "dep_delay", "distance")
PERCENT_MAX = 300
BATCH_S = 0.1
LUMP_ROWS, LUMPS = 2_000, 4
ANSWER_S = 20.0
WORKED_OFF_S = 0.02  # between two looks at whether a lump is worked off
_TESTS = {"gold": 2, "silver": 40, "bronze": 80}  # of a row, that never succeed: what a class takes
_WINDOW = "[RANGE 1 SECOND SLIDE 1 SECOND]"


def definitions() -> Iterator[str]:
    """Give the statements that make streams, classes and queries."""
    yield f"CREATE STREAM {CONTROL} (percent BIGINT NOT NULL)"
    yield f"CREATE STREAM {STREAM} (carrier TEXT, origin TEXT, dest TEXT, dep_delay BIGINT, distance BIGINT)"
    yield "CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS NEVER SHED"
    yield "CREATE CLASS silver PRIORITY 3 TARGET 400 MILLISECONDS SHED"
    yield "CREATE CLASS bronze PRIORITY 1 TARGET 500 MILLISECONDS SHED"
    for name, tests in _TESTS.items():
        route = "(origin || '-' || dest || '-' || carrier)"
        rare = " OR ".join(f"REGEXP_LIKE({route}, 'z[0-9]+;.*z{name}{number}')" for number in range(tests))
        late = f"SELECT carrier, dep_delay FROM {STREAM} WHERE dep_delay > 60 OR {rare}"
        counted = f"SELECT origin, COUNT(*) AS n FROM {STREAM} {_WINDOW} GROUP BY origin"
        for what, select in (("delays", late), ("routes", counted)):
            yield f"CREATE QUERY {name}_{what} WITH (class = '{name}') AS {select}"


class LoadMaker:
    """Publishes flights in a thread of its own. `capacity` is how many rows a second were worked off when they came in lumps."""

    def __init__(self, address: str) -> None:
        from pyarrow import parquet

        self._address = address
        self._flights = parquet.read_table(flights.DEPARTURES, columns=list(COLUMNS))
        self._stop = threading.Event()
        self._percent = 0
        self.capacity = 0.0
        self.problem: MillstreamError | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make what is needed, find the capacity, and follow the slider as long as the block runs. MillstreamError if it cannot begin."""
        with connect(self._address) as client, connect(self._address) as asked:
            for statement in definitions():
                client.execute(statement)
            self._find_capacity(client)
            wanted = asked.submit(f"SELECT percent FROM {CONTROL}")
            subscription = asked.subscribe(wanted)
            threads = [threading.Thread(target=self._guarded, args=one) for one in ((self._publish, client), (self._follow, subscription))]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self._stop.set()
                wanted.drop()  # and so its results end
                for thread in threads:
                    thread.join()

    def _guarded(self, work: Any, given: Any) -> None:
        try:
            work(given)
        except MillstreamError as error:  # the server has ended; whoever waits for Ctrl-C is told
            if not self._stop.is_set():
                self.problem = error

    def _find_capacity(self, client: Any) -> None:
        began = 0.0
        for lump in range(-2, LUMPS):  # the first two warm up
            if lump == 0:
                began = time.monotonic()
            client.publish(STREAM, self._rows(lump * LUMP_ROWS, LUMP_ROWS))
            latest = time.monotonic() + ANSWER_S
            while time.monotonic() < latest and any(row["queued"] for row in client.execute("SHOW QUERIES")):
                time.sleep(WORKED_OFF_S)
        self.capacity = LUMPS * LUMP_ROWS / (time.monotonic() - began)

    def _follow(self, subscription: Any) -> None:
        for batch in subscription:
            self._percent = min(PERCENT_MAX, max(0, batch.column("percent")[-1].as_py()))

    def _publish(self, client: Any) -> None:
        """Send what is due. Who is made to wait leaves out what was due meanwhile: the slider says how much comes, not how much is owed."""
        sent = 0
        while not self._stop.wait(BATCH_S):
            rows = int(self._percent / 100 * self.capacity * BATCH_S)
            if rows:
                client.publish(STREAM, self._rows(sent, rows))
                sent += rows

    def _rows(self, first: int, count: int) -> Any:
        import numpy as np

        return self._flights.take((first + np.arange(count)) % self._flights.num_rows)
