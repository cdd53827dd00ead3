"""Small means by which processes and threads cost less: no pandas where nobody uses it, a low priority where nobody waits, few arenas."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TypeVar

BEHIND = 10  # the niceness of threads that nobody waits for
ARENAS_MAX = 2  # one for the thread that others rarely meet, one for where they do
FREED_KEPT_BYTES_MAX = 64 * 1024 * 1024
MAPPED_BYTES_MIN = 32 * 1024 * 1024  # glibc allows no more
_M_ARENA_MAX, _M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -8, -1, -3  # of malloc.h
_AT_ONCE = 16  # things between two looks for garbage: so much lies in the processor's cache still

T = TypeVar("T")


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse pandas, leave everything else to others."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def keep_pandas_out() -> None:
    """Let pyarrow find no pandas, which costs half a second and forty megabytes.

    It looks once, at its first conversion, to recognise pandas' own types, and imports it for that.
    To be called before anything is converted, by commands that never see a pandas object; afterwards pandas can be imported as usual,
    pyarrow alone does not know it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


def give_way() -> None:
    """Let this thread run behind those of the server that answer somebody, where the system knows priorities of threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BEHIND)


def share_arenas() -> None:
    """Let all threads take memory from the same two arenas, where the system's library is glibc.

    It would make one for each thread that finds the others busy, and each keeps for itself what it once had: a server that was under
    load went on growing by what its threads had freed (25 MB in four minutes, against 3).
    """
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)


def keep_freed() -> None:
    """Keep some memory that was freed instead of returning it to the system and getting it, zeroed, page by page, with the next train.

    For a process that computes on one thread: glibc gives what is freed at the end of that thread's arena back at once. A worker with
    medians spent a fifth of its time on that.
    """
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_M_TRIM_THRESHOLD, FREED_KEPT_BYTES_MAX)
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)


def trim_arenas() -> None:
    """Return to the system what has been freed between what is in use: glibc itself returns only what lies at the end of an arena.

    A server under load had 15 to 37 MB of it. It takes some ms, in which other threads may wait for memory.
    """
    if (malloc_trim := _of_glibc("malloc_trim")) is not None:
        malloc_trim(0)


def one_by_one(things: Iterable[T]) -> Iterator[T]:
    """Yield things of each of which much stays, and let the collector of garbage look only between some of them, at what is new.

    What it finds in use there it does not look at again, until `gc.unfreeze`. Left to itself it looked through all that had stayed again
    and again: ten thousand queries made three million objects, and a third of a start with them went into that.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for number, thing in enumerate(things, 1):
            yield thing
            if number % _AT_ONCE == 0:
                gc.collect(0)
                gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def _of_glibc(name: str) -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    import ctypes

    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
