"""Processes that run simulations beside one another, in fresh interpreters; they end with their parent, however that ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Self, TypeVar

_WATCH_S = 0.5
"""How soon a worker notices that it is to end."""

Given = TypeVar("Given")


class RunProcesses:
    """So many processes, which give way to others by `niceness`.

    At the end of the block they have done all that was submitted; after an error or `cut` nobody waits for them.
    """

    def __init__(self, count: int, niceness: int = 0) -> None:
        self.count = count
        context = get_context("spawn")  # nothing of the parent's state reaches a run
        self._stop = context.Event()
        self.is_late = False
        """Whether a run that nobody waits for any more was under way; whoever gives up notes it."""
        self._pool = ProcessPoolExecutor(count, mp_context=context, initializer=_follow_parent, initargs=(self._stop, niceness))

    def submit(self, function: Callable[..., Given], *arguments: Any) -> Future[Given]:
        """Let a process call a function of a module."""
        return self._pool.submit(function, *arguments)

    def cut(self) -> None:
        """End the processes, whatever they run."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.cut()
        else:
            self._pool.shutdown()


def _follow_parent(stop: Event, niceness: int) -> None:
    """Let this worker end when its parent does, however that ended, or says so: it would wait for work or run cases for nobody."""
    os.nice(niceness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent as well, which then says so
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        while not stop.is_set() and not wait([parent.sentinel], _WATCH_S):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
