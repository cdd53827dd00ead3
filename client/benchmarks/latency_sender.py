"""The publisher of `bench latency`, in a process of its own: a thread beside the one that reads results would wait for the interpreter
just when many come, and be late by what reading costs.

Frames are made before the clock starts. The collector of garbage does not run meanwhile, here and where results are read: both are the
instrument, not what is measured.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.client.benchmarks.chain_workload import NAME, START_US
from millstream.client.benchmarks.raw import RawPublisher
from millstream.client.errors import MillstreamError

AHEAD_NS = 50_000_000  # from when all frames are made to the first one's time
SPIN_S = 100e-6  # a sleep may last that much longer than asked for
NAP_S = 20e-6  # where tuples follow one another faster than a sleep can tell; some 75 µs
SENT_TOGETHER_MAX = 256  # frames; by the socket's own back-pressure no more are sent than the server takes
_COMMAND = "from millstream.client.benchmarks.latency_sender import main; main()"


class Sender:
    """A context: sends tuple i when it is due, and with it those that are due already.

    `late_ms`: how late the tuples left, in order, once joined.
    """

    def __init__(self, port: int, tuples: int, rate_per_s: int, token: str = "") -> None:
        arguments = [str(port), str(tuples), str(rate_per_s), token]
        self._process = subprocess.Popen([sys.executable, "-c", _COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
        self._rate_per_s = rate_per_s
        self._began_ns = 0
        self.late_ms: list[float] = []

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def begin(self) -> None:
        """Wait until all frames are made: the first is due soon."""
        self._began_ns = int(self._told())

    def due_ns(self, number: int) -> int:
        """Return when a tuple is due, on the monotonic clock."""
        return due_ns(self._began_ns, number, self._rate_per_s)

    def join(self) -> None:
        """Wait for the last ack."""
        self.late_ms = json.loads(self._told())

    def _told(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MillstreamError("benchmark", "the publisher ended before its time")
        return line


def price(number: int) -> float:
    """Return the price of a tuple."""
    return 25.0 + number % 64


def due_ns(began_ns: int, number: int, rate_per_s: int) -> int:
    """Return when a tuple is due."""
    return began_ns + number * 1_000_000_000 // rate_per_s


@contextmanager
def no_collector() -> Iterator[None]:
    """Let the collector of garbage rest; what was made before is nothing to it."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def main() -> None:
    """Send all, then wait for the acks; arguments are port, tuples, rate and token. Says when it begins and how late tuples left."""
    port, tuples, rate_per_s = map(int, sys.argv[1:4])
    publisher = RawPublisher(port, NAME, sys.argv[4] or None)
    frames = [publisher.row_frame([START_US + i, i, 0, 0, price(i), "tag"]) for i in range(tuples)]
    with no_collector():
        began_ns = time.monotonic_ns() + AHEAD_NS
        print(began_ns, flush=True)
        sent = list(_sent(publisher, frames, began_ns, rate_per_s))
    publisher.wait_for_acks(tuples)
    publisher.close()
    late_ms: list[float] = []
    for number, at_ns in sent:
        late_ms.extend((at_ns - due_ns(began_ns, i, rate_per_s)) / 1e6 for i in range(len(late_ms), number))
    print(json.dumps(late_ms), flush=True)


def _sent(publisher: RawPublisher, frames: list[bytes], began_ns: int, rate_per_s: int) -> Iterator[tuple[int, int]]:
    """Send; give how many had been sent when, before each write."""
    number, spins = 0, rate_per_s * SPIN_S < 1.0
    while number < len(frames):
        _wait_until(due_ns(began_ns, number, rate_per_s), spins)
        now_ns = time.monotonic_ns()
        due = (now_ns - began_ns) * rate_per_s // 1_000_000_000 + 1
        last = min(len(frames), max(number + 1, min(due, number + SENT_TOGETHER_MAX)))
        yield last, now_ns
        publisher.send(b"".join(frames[number:last]))
        number = last


def _wait_until(at_ns: int, spins: bool) -> None:
    """Sleep as long as that is safe, then spin; or nap, since spinning takes a processor from the server and from who reads."""
    while (left_s := (at_ns - time.monotonic_ns()) / 1e9) > 0:
        if left_s > SPIN_S:
            time.sleep(left_s - SPIN_S)  # a frame is due by the clock, and nothing tells when
        elif not spins:
            time.sleep(NAP_S)  # the same; the docstring says why it does not spin
