"""Processes that work for the server: how one is started, how much processor time it has used, how it ends with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

ROUNDS_MAX = 100  # looks for processes that were started meanwhile: each stops what it finds, so only those of the last moment are left
END_S = 2.0
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME")  # what an interpreter needs to start
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def spawn(
    command: Callable[[int], Sequence[str]], prefixes: tuple[str, ...] = (), inherited: Sequence[int] = ()
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process in a session of its own, with pipes that do not block. Returns it and the server's end of its lifeline.

    `command` gets the process's end of the lifeline, a descriptor that ends with the server; it has that and those `inherited`. Of the
    environment it has what an interpreter needs, and variables with these prefixes. OSError when nothing can be started.
    """
    return _keeper().submit(_spawn, command, prefixes, inherited).result()


@cache
def _keeper() -> ThreadPoolExecutor:
    """Return the thread that starts all processes and kills them. It ends with the server, once it has done what it has begun.

    To Linux the parent of a process is a thread, which must not end before the server. And what a thread of less account has stopped, in
    order to kill it, is left stopped when the server ends meanwhile.
    """
    return ThreadPoolExecutor(1, "processes")


def _spawn(
    command: Callable[[int], Sequence[str]], prefixes: tuple[str, ...], inherited: Sequence[int]
) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(
            command(ours),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[ours, *inherited],
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith(prefixes)},
            cwd=os.path.sep,
        )
    except OSError:
        os.close(theirs)
        raise
    finally:
        os.close(ours)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
    return process, theirs


def end(process: subprocess.Popen[bytes], lifeline: int) -> None:
    """Kill what `spawn` started and all that it has started, and close what belongs to it."""
    kill_whole(process)
    with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, dies when that lets go, and is collected then
        process.wait(END_S)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    os.close(lifeline)


def cpu_used_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds, by all its threads. OSError when it is gone."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def kill_whole(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, its group, and whatever it has started, also in sessions of their own. The caller waits for it.

    A process that adopts orphans (`sandbox.adopt_orphans`) keeps all of them below itself as long as it lives. So each is stopped before
    the next look, until a look finds no other; then nobody is left who could start another.
    """
    try:
        killing = _keeper().submit(_kill_whole, process)
    except RuntimeError:  # the server has all but ended, and this thread with it
        process.kill()
    else:
        killing.result()


def _kill_whole(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _signal(process.pid, signal.SIGSTOP)
        found: dict[int, None] = {}
        for _ in range(ROUNDS_MAX):
            fresh = [pid for pid in descendants(process.pid) if pid not in found]
            if not fresh:
                break
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
                found[pid] = None
        for pid in found:
            _signal(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # the group outlives its first process
    process.kill()


def descendants(pid: int) -> list[int]:
    """Return the processes below one, children before their children. Nothing where there is no /proc."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := _parent_of(int(name))) is not None:
                children.setdefault(parent, []).append(int(name))
    found = list(children.get(pid, ()))
    for one in found:  # grows meanwhile
        found += children.get(one, ())
    return found


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
