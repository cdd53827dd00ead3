"""Sees what a test left behind: threads, sockets, child processes, unfinished asyncio tasks.

Sockets and children are read from /proc, so that those of C extensions count too; where there is no /proc they are not seen.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THREAD_JOIN_SECONDS_MAX = 2.0  # a pool that was told to stop may still be on its way out; one that was not, never ends
LASTING = "processes"  # the thread that starts and kills processes lasts as long as this one (`server/functions/processes.py`)


@dataclass(frozen=True, slots=True)
class Belongings:
    """What the process holds at one moment. Sockets by inode, so that a reused descriptor is not mistaken for the old socket."""

    threads: frozenset[threading.Thread]
    sockets: frozenset[str]
    children: frozenset[int]
    tasks: frozenset[int]

    @classmethod
    def now(cls) -> Belongings:
        """Look around."""
        return cls(
            frozenset(threading.enumerate()),
            frozenset(open_sockets()),
            frozenset(child_processes()),
            frozenset(id(task) for task in unfinished_tasks()),
        )


def open_sockets() -> list[str]:
    """Return `socket:[inode]` of each open socket of this process."""
    found = []
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return []
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
        if target.startswith("socket:"):
            found.append(target)
    return found


def child_processes() -> list[int]:
    """Return the process ids of the children, zombies included."""
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*"):
        try:
            found.extend(int(pid) for pid in (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # the thread has ended, or the kernel does not list children
    return found


def unfinished_tasks() -> list[asyncio.Task[Any]]:
    """Return the asyncio tasks of all loops, closed ones too, that are not done."""
    known: set[Any] = set()
    for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks"):  # the names differ between releases of Python
        known.update(getattr(asyncio.tasks, name, ()))
    return [task for task in known if not task.done()]


def left_behind(before: Belongings, *, sockets: bool = True, children: bool = True) -> list[str]:
    """Return a line for each thing that is here now and was not `before`; waits for threads that are about to end."""
    found = [f"thread {thread.name!r}" for thread in _running(set(threading.enumerate()) - before.threads)]
    tasks = [task for task in unfinished_tasks() if id(task) not in before.tasks]
    found.extend(f"asyncio task {task.get_name()!r}: {task.get_coro()!r}" for task in tasks)
    new_sockets = set(open_sockets()) - before.sockets if sockets else set()
    if new_sockets:
        gc.collect()  # one kept by a cycle only is not a leak of the descriptor, but warns when it is collected
        found.extend(sorted(new_sockets & set(open_sockets())))
    if children:
        found.extend(f"child process {pid}" for pid in sorted(set(child_processes()) - before.children))
    return found


def _running(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    threads = [thread for thread in threads if not thread.name.startswith(LASTING)]
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(THREAD_JOIN_SECONDS_MAX)
    return sorted((thread for thread in threads if thread.is_alive()), key=lambda thread: thread.name)
