"""The processes of `--workers N` in a world: each is a strand or two that end by themselves, or with the server that started them.

The server's side is the program's own to the last line: channels in shared memory, descriptors that say that there is a message, segments
that are sent over a socket. Only what waits, starts a process, or looks at one is a world's. Inside a worker, the program's own `Desk`
answers.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from millstream.server.workers import channel, child, process, segments

from tests.world.hub import NS_PER_S, Hub, Killed, Process, Strand

CALL_NS_MAX = 500_000  # what a call takes a worker, beside what its rows take
APART_NS = 4 * NS_PER_S  # between two deaths of a worker: a call that was running at both would be at fault
FIRST_PID = 100


class OperatingSystem:
    """What the operating system is to workers: their processes, and the descriptors by which they and the server hear of each other."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.alive: dict[int, SimPopen] = {}
        self.deaths = 0
        """Workers that were ended by a step of the plan."""
        self._died_ns = -APART_NS
        self._made = FIRST_PID
        self._held: dict[int, Process] = {}  # descriptors, and whose they are
        self._waiting: list[Strand] = []

    # --- processes ---

    def spawn(self, command: Callable[[int], Sequence[str]], prefixes: tuple[str, ...] = (), inherited: Sequence[int] = ()) -> Any:
        """Begin a worker, as `functions.processes.spawn` does."""
        assert self.hub.current is not None
        self._made += 1
        made = self.alive[self._made] = SimPopen(self, self._made, self.hub.current.process)
        told = json.loads(command(0)[-1])
        channels = [channel.Channel([self.keep(os.dup(one), made.process) for one in each]) for each in told["channels"]]
        ways = socket.socket(fileno=os.dup(told["ways"]))
        ways.setblocking(False)  # what a message names has been sent before it
        made.process.at_burial.append(ways.close)
        made.process.spawn(self._serve, made, channels, ways, told["step_ns_max"])
        self.hub.note("starts", made.process.name)
        return made, made.pid

    def _serve(self, made: SimPopen, channels: Sequence[channel.Channel], ways: socket.socket, step_ns_max: int) -> None:
        poll = SimPoll(self)
        for one in channels:
            poll.register(one.asked, select.POLLIN)
        own = child.SharedSegments(child.ANSWERS_BYTES_MAX)
        child.serve(SimDesk(made, child.MappedSegments(ways), own, step_ns_max), channels, poll.poll, child.Answers(own, ways))

    def kill(self, which: int, calls: int, is_done: bool) -> None:
        """End one of the workers, at once or at one of its next calls, before it is done or when it is and nobody knows."""
        alive = sorted(self.alive)
        if alive and self.hub.now_ns - self._died_ns >= APART_NS:
            made = self.alive[alive[which % len(alive)]]
            if calls:
                made.dies_in, made.dies_done = calls, is_done
            else:
                self.end(made)

    def end(self, made: SimPopen) -> None:
        """End a worker as SIGKILL does."""
        for other in self.alive.values():
            other.dies_in = 0
        self.deaths += 1
        self._died_ns = self.hub.now_ns
        made.process.kill()

    # --- descriptors ---

    def keep(self, descriptor: int, owner: Process | None = None) -> int:
        """Note whose a descriptor is: it ends with that process."""
        if owner is None:
            assert self.hub.current is not None
            owner = self.hub.current.process
        if owner not in self._held.values():
            owner.at_burial.append(lambda: self._close_all(owner))
        self._held[descriptor] = owner
        return descriptor

    def holds(self, descriptor: int) -> bool:
        """Whether it is open."""
        return descriptor in self._held

    def close(self, descriptor: int) -> None:
        """Close it. A process that has ended has none any more, whatever its strands do in going."""
        is_held = self._held.pop(descriptor, None) is not None
        if is_held or (self.hub.current is not None and self.hub.current.process.alive):
            os.close(descriptor)

    def _close_all(self, owner: Process) -> None:
        for descriptor in [one for one, holder in self._held.items() if holder is owner]:
            self.close(descriptor)

    def wait(self, ms: int | None) -> None:
        """Wait until something may have happened to a descriptor."""
        strand = self.hub.current
        assert strand is not None
        self._waiting.append(strand)
        self.hub.park(None if ms is None else ms * 1_000_000)
        if strand in self._waiting:
            self._waiting.remove(strand)

    def wake(self) -> None:
        """Let all look who wait for descriptors."""
        waiting, self._waiting = self._waiting, []
        for strand in waiting:
            self.hub.make_ready(strand)


class SimPopen:
    """A worker's process, as whoever started it sees it."""

    def __init__(self, machine: OperatingSystem, pid: int, parent: Process) -> None:
        self.machine = machine
        self.pid = pid
        self.returncode: int | None = None
        self.dies_in = 0  # so many calls from now; 0: not
        self.dies_done = False
        self.process = Process(machine.hub, f"worker{pid}")
        self._ended = machine.keep(os.eventfd(0, os.EFD_NONBLOCK), parent)
        self.process.at_end.append(self._end)
        parent.at_end.append(self.kill)

    def _end(self) -> None:
        self.returncode = -signal.SIGKILL
        self.machine.alive.pop(self.pid, None)
        if self.machine.holds(self._ended):  # else nobody looks any more
            os.eventfd_write(self._ended, 1)
        self.machine.wake()

    @property
    def ended(self) -> int:
        """A descriptor that says when it has ended."""
        return self._ended

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)  # it ends at once or not at all
        return self.returncode

    def kill(self) -> None:
        if self.process.alive:
            self.machine.hub.note("ends", self.process.name)
            self.process.end()


class SimDesk(child.Desk):
    """Answers take time, and may be the last thing that a worker does."""

    def __init__(self, made: SimPopen, found: child.MappedSegments, own: child.SharedSegments, step_ns_max: int) -> None:
        super().__init__(found, own, step_ns_max)
        self._made = made

    def answer(self, head: bytes, behind: bytes, began: Callable[[int], None]) -> channel.Message:
        machine, made = self._made.machine, self._made
        machine.hub.sleep(machine.hub.draw.randint(1_000, CALL_NS_MAX))
        is_last = made.dies_in == 1
        made.dies_in -= made.dies_in > 0
        if is_last and not made.dies_done:
            began(1)
            machine.end(made)
            raise Killed
        parts = super().answer(head, behind, began)
        if is_last:
            machine.end(made)
            raise Killed
        return parts


class SimPoll:
    """`select.poll` that waits in virtual time."""

    def __init__(self, machine: OperatingSystem) -> None:
        self._machine = machine
        self._real = select.poll()
        self.register = self._real.register

    def poll(self, ms: int | None = None) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, nothing when the time was over first."""
        hub = self._machine.hub
        end_ns = None if ms is None else hub.now_ns + ms * 1_000_000
        self._machine.wake()  # who polls has perhaps answered before
        while not (ready := self._real.poll(0)):
            if end_ns is not None and hub.now_ns >= end_ns:
                break
            self._machine.wait(ms)
        return ready


class SimOs:
    """Stands where a module of workers has `os`."""

    def __init__(self, machine: OperatingSystem) -> None:
        self._machine = machine

    def memfd_create(self, *how: Any) -> int:
        return self._machine.keep(os.memfd_create(*how))

    def eventfd(self, *how: Any) -> int:
        return self._machine.keep(os.eventfd(*how))

    def eventfd_write(self, descriptor: int, value: int) -> None:
        os.eventfd_write(descriptor, value)
        self._machine.wake()

    def pidfd_open(self, pid: int) -> int:
        made = self._machine.alive.get(pid)
        if made is None:
            raise ProcessLookupError(pid)
        return made.ended

    def close(self, descriptor: int) -> None:
        self._machine.close(descriptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class SimSockets:
    """Stands where `process` has `socket`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def socketpair(self) -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        assert self._hub.current is not None
        self._hub.current.process.at_burial += [one.close for one in pair]
        return pair

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


class SimSelect:
    """Stands where `process` has `select`."""

    def __init__(self, machine: OperatingSystem) -> None:
        self.poll = partial(SimPoll, machine)
        self.POLLIN = select.POLLIN


@contextmanager
def workers_as_strands(machine: OperatingSystem) -> Iterator[None]:
    """Have the server's workers be strands."""
    system = SimOs(machine)
    with (
        mock.patch.multiple(channel, os=system),
        mock.patch.multiple(segments, os=system),
        mock.patch.multiple(child, os=system),
        mock.patch.multiple(
            process,
            os=system,
            select=SimSelect(machine),
            socket=SimSockets(machine.hub),
            spawn=machine.spawn,
            end=lambda made, lifeline: made.kill(),
            cpu_used_s=lambda pid: 0.0,
        ),
    ):
        yield
