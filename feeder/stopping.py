"""Ctrl-C and SIGTERM as an event: what is being published is finished and counted; a second Ctrl-C does not wait for that."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first SIGINT or SIGTERM, raise KeyboardInterrupt at the second, while the block runs. Yields once.

    Main thread only.
    """

    def handle(_: int, __: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
