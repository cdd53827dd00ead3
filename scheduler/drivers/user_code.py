"""Calls what a user's policy file says in a thread of its own, which can be left behind when it does not come back.

The scheduler thread waits, but not for ever: after the limit it goes on without an answer, and the thread is told to end. A loop in Python
ends at once, a call into the system (`sleep`) when it returns. The thread sees nothing of the scheduler but the views of units that it is
given, so an exception may strike it anywhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from millstream.scheduler.errors import PolicyError
from millstream.scheduler.policies.user import LeftBehind

Answer = TypeVar("Answer")

_ENDINGS_MAX = 50
_ENDING_S = 0.001
_NOTICES_MAX = 1_000


class _Call:
    """One call, and what came of it."""

    __slots__ = ("answer", "done", "left", "problem", "used_ns", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.done = threading.Event()
        self.left = False
        self.used_ns = 0
        self.answer: Any = None
        self.problem: Exception | None = None


def wait_for(done: threading.Event, limit_ns: int) -> bool:
    """Wait as long as that on the machine's clock; return whether it happened."""
    return done.wait(limit_ns / 1e9)


class UserCode:
    """Runs a user's functions, one at a time, for one asking thread. Its own thread is started by the first call, and anew after each
    that was left behind.
    """

    def __init__(
        self, wait: Callable[[threading.Event, int], bool] = wait_for, thread_time_ns: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self._wait = wait
        self._thread_time_ns = thread_time_ns  # of the thread that calls it
        self.calls = self.used_ns = 0
        """Calls that came back, and their processor time."""
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, work: Callable[[], Answer], limit_ns: int) -> Answer:
        """Return what `work` returns, or raise what it raises; raises `PolicyError` when nothing came in time."""
        if self._thread is None:
            self._calls = SimpleQueue()
            self._thread = threading.Thread(target=_serve, args=(self._calls, self._thread_time_ns), name="user policy", daemon=True)
            self._thread.start()
        call = _Call(work)
        self._calls.put(call)
        if not self._wait(call.done, limit_ns):
            call.left = True
            ended = _ended(self._thread)
            self.close()
            raise PolicyError(f"nothing came back within {limit_ns / 1e9:g} s{'' if ended else ', and what it does goes on'}")
        self.calls += 1
        self.used_ns += call.used_ns
        if call.problem is not None:
            raise call.problem
        answer: Answer = call.answer
        return answer

    def close(self) -> None:
        """Let the thread end when it comes back."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None


def _serve(calls: SimpleQueue[_Call | None], thread_time_ns: Callable[[], int]) -> None:
    try:
        while (call := calls.get()) is not None:
            began_ns = thread_time_ns()
            try:
                call.answer = call.work()
            except Exception as problem:
                call.problem = problem
            except KeyboardInterrupt:  # of the user's code: what keys interrupt is the main thread
                call.problem = PolicyError("KeyboardInterrupt")
            call.used_ns = thread_time_ns() - began_ns
            call.done.set()
            if call.left:
                return
    except LeftBehind:
        return


class _Noticed(BaseException):
    """What a thread raises in itself, so that the interpreter's flag for such exceptions is down again."""


def _ended(thread: threading.Thread) -> bool:
    """Raise an exception in the thread, again and again where it catches it; return whether it has ended."""
    for _ in range(_ENDINGS_MAX):
        if thread.ident is not None:
            _interrupt(thread.ident)
        thread.join(_ENDING_S)
        if not thread.is_alive():
            return True
    return False


def _interrupt(thread: int) -> None:
    """Let `LeftBehind` be raised in that thread as soon as it runs Python code.

    Up to Python 3.11 all threads share one flag that says so. While the other thread waits in a call into the system, the flag would stay
    up: each thread would look for an exception at every step, and one that is traced (by a debugger, by what counts lines) would never
    enter a function again. So this thread raises one in itself as well. That takes it down; the other looks when it gives up its turn.
    """
    import ctypes  # the daemon's start does not need it

    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    left, noticed = ctypes.py_object(LeftBehind), ctypes.py_object(_Noticed)
    other, own = ctypes.c_ulong(thread), ctypes.c_ulong(threading.get_ident())
    try:
        raise_in(other, left)
        raise_in(own, noticed)  # nothing between the two may call a function written in Python
        for _ in range(_NOTICES_MAX):
            pass
    except _Noticed:
        return
