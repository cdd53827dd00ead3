"""The simulated machine's heart: virtual time, and threads that are steps of one loop.

A thread of the program is a strand (a greenlet). Only one runs at a time, until it waits for something; who runs next is drawn from the
world's seed. So one seed is one history. While all strands wait, time jumps to the next timer. `Lock`, `Condition`, `Event`, `Thread`
and the others here are what the standard library's are, for strands.
"""

from __future__ import annotations

import hashlib
import heapq
import queue
import random
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import greenlet

NS_PER_S = 1_000_000_000
STEPS_MAX = 200_000  # within a simulated second: a world that takes more is stuck in a circle


class Killed(SystemExit):
    """The strand's process is no more. asyncio lets it through."""


class Stuck(AssertionError):
    """Nothing can ever happen again, or always the same."""


class Broken(AssertionError):
    """The program has a fault, as a thread that died: others may wait for ever."""


def where(error: object) -> str:
    """Return the way to where an exception was raised, the innermost call first."""
    if not isinstance(error, BaseException):
        return ""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return " < ".join(f"{frame.name} {frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames)


class Process:
    """Strands that end together: a server's life, or the machine that its clients run on."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.alive = True
        self.strands: list[Strand] = []
        self.at_end: list[Callable[[], None]] = []
        self.at_burial: list[Callable[[], None]] = []  # when no strand of it runs any more

    def spawn(self, target: Callable[..., Any], *args: Any, name: str = "main") -> Strand:
        """Begin a thread."""
        return Strand(self, target, args, name)

    def end(self) -> None:
        """End all strands as soon as the hub runs."""
        self.alive = False
        for call in self.at_end:
            call()
        self.hub.reap(self)

    def kill(self) -> None:
        """End all strands at once. From a strand of its own this does not return."""
        if not self.alive:
            return
        self.hub.note("killed", self.name)
        self.end()
        current = self.hub.current
        if current is not None and current.process is self:
            raise Killed


class Strand:
    """One thread of a process."""

    def __init__(self, process: Process, target: Callable[..., Any], args: Iterable[Any], name: str) -> None:
        hub = process.hub
        hub.strands_made += 1
        self.ident = 1000 + hub.strands_made
        self.process = process
        self.name = name
        self.loop: Any = None  # the event loop that runs in it
        self.done = False
        self.failure: BaseException | None = None
        self.waiters: deque[Strand] = deque()
        self.turn = 0  # counts the times it has waited
        self.is_ready = False
        self.timed_out = False
        self._target, self._args = target, tuple(args)
        self.greenlet = greenlet.greenlet(self._run, hub.greenlet)
        process.strands.append(self)
        hub.make_ready(self)

    def _run(self) -> None:
        try:
            self._target(*self._args)
        except Killed:
            pass
        except BaseException as error:
            self.failure = error
            if self.process.alive:
                self.process.hub.failed(self, error)
        self.done = True
        self._target = self._args = None  # type: ignore[assignment]
        if self in self.process.strands:
            self.process.strands.remove(self)
        for waiter in self.waiters:
            self.process.hub.make_ready(waiter)


class Hub:
    """The world's clock, its strands and its record. `draw` is the only source of chance."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now_ns = 7 * NS_PER_S
        self.system_offset_ns = 1_715_000_000 * NS_PER_S
        self.read_ns = 200  # what a look at the clock costs
        self.pause_share = 0.02  # of the chances to let another strand run in between
        self.greenlet = greenlet.getcurrent()
        self.current: Strand | None = None
        self.strands_made = 0
        self.steps = 0
        self.faults: list[str] = []
        self.history: list[str] = []
        self.history_max = 200_000
        self._digest = hashlib.sha256()
        self._ready: list[Strand] = []
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timers_made = 0
        self._dead: list[Process] = []
        self._steps_max, self._looked_ns = STEPS_MAX, self.now_ns
        self.set_running_loop: Callable[[Any], None] = lambda loop: None
        self.row_ns = 0  # what an operator takes over a row
        self.watch: Callable[[], None] = lambda: None  # called after every so many steps, as the pair says
        self.watch_steps = 1 << 60

    # --- the record ---

    def note(self, *what: Any) -> None:
        """Write a line of history."""
        line = f"{self.now_ns / NS_PER_S:.6f} {self.steps} " + " ".join(str(one) for one in what)
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        if len(self.history) < self.history_max:
            self.history.append(line)

    @property
    def digest(self) -> str:
        """What stands for the whole history."""
        return self._digest.hexdigest()

    def failed(self, strand: Strand, error: BaseException) -> None:
        """Note that a thread died of an exception."""
        self.faults.append(f"thread {strand.process.name}/{strand.name} died: {type(error).__name__}: {error} {where(error)}")
        self.note("thread died", strand.name, repr(error))

    # --- time ---

    def read_clock(self) -> int:
        """Return the monotonic clock; looking takes a moment, so whoever waits for a time in a circle gets there."""
        self.now_ns += self.read_ns
        return self.now_ns

    def at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Call something at a time."""
        self._timers_made += 1
        heapq.heappush(self._timers, (when_ns, self._timers_made, call))

    def after(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Call something after a while."""
        self.at(self.now_ns + delay_ns, call)

    # --- strands ---

    def make_ready(self, strand: Strand) -> None:
        """Let a strand go on."""
        if not strand.is_ready and not strand.done:
            strand.is_ready = True
            strand.turn += 1
            strand.timed_out = False
            self._ready.append(strand)

    def park(self, timeout_ns: int | None = None) -> bool:
        """Wait in the current strand until `make_ready`; False when the time was over first."""
        me = self.current
        assert me is not None, "only strands wait"
        if not me.process.alive:
            raise Killed
        if timeout_ns is not None:
            turn = me.turn
            self.after(max(0, timeout_ns), lambda: self._time_out(me, turn))
        self.greenlet.switch()
        if not me.process.alive:
            raise Killed
        return not me.timed_out

    def _time_out(self, strand: Strand, turn: int) -> None:
        if strand.turn == turn and not strand.is_ready and not strand.done:
            self.make_ready(strand)
            strand.timed_out = True

    def pause(self) -> None:
        """Perhaps let others run here."""
        me = self.current
        if me is None:
            return
        if not me.process.alive:
            raise Killed
        if self.draw.random() < self.pause_share:
            self.make_ready(me)
            self.park()

    def sleep(self, ns: int) -> None:
        """Let time pass for the current strand."""
        if self.current is None:
            self.now_ns += ns
        else:
            self.park(ns)

    def work(self, rows: int) -> None:
        """Let the time pass that the current strand needs for rows."""
        if rows and self.row_ns and self.current is not None:
            self.sleep(rows * self.row_ns)

    def reap(self, process: Process) -> None:
        """Bury a process as soon as the hub runs."""
        self._dead.append(process)

    def run(self, until: Callable[[], bool], within_ns: int) -> bool:
        """Run the world until something holds; False when that took longer. Broken at the first fault, Stuck when nothing goes on."""
        end_ns = self.now_ns + within_ns
        while not until():
            if self.faults:
                raise Broken(self.faults[0])
            if self.now_ns > end_ns:
                return False
            if not self.step():
                raise Stuck("nothing can happen any more")
        return True

    def step(self) -> bool:
        """Let one strand run, or time go on to the next timer. False when there is nothing."""
        self.steps += 1
        if not self.steps % self.watch_steps:
            self.watch()
        if self.steps > self._steps_max:
            if self.now_ns < self._looked_ns + NS_PER_S:
                raise Stuck(f"more than {STEPS_MAX} steps within a second")
            self._steps_max, self._looked_ns = self.steps + STEPS_MAX, self.now_ns
        while self._dead:
            self._bury(self._dead.pop())
        while self._timers and self._timers[0][0] <= self.now_ns:
            heapq.heappop(self._timers)[2]()
        if self._ready:
            ready = self._ready
            index = self.draw.randrange(len(ready)) if len(ready) > 1 else 0
            self._switch(ready.pop(index))
            return True
        if not self._timers:
            return False
        self.now_ns = max(self.now_ns, self._timers[0][0])
        return True

    def _switch(self, strand: Strand) -> None:
        strand.is_ready = False
        if strand.done or not strand.process.alive:
            return
        self.current = strand
        self.set_running_loop(strand.loop)
        try:
            strand.greenlet.switch()
        finally:
            self.current = None
            self.set_running_loop(None)

    def _bury(self, process: Process) -> None:
        for strand in list(process.strands):
            if not strand.greenlet.dead and strand.greenlet:
                self.current = strand
                self.set_running_loop(strand.loop)
                try:
                    strand.greenlet.throw(Killed)
                finally:
                    self.current = None
                    self.set_running_loop(None)
            strand.done = True
        process.strands.clear()
        for call in process.at_burial:
            call()
        self._ready = [strand for strand in self._ready if strand.process is not process]


# --- what `threading` has ---


class Threading:
    """Stands where a module of the program has `threading`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def Lock(self) -> Lock:  # noqa: N802
        return Lock(self._hub)

    def RLock(self) -> RLock:  # noqa: N802
        return RLock(self._hub)

    def Condition(self, lock: Any = None) -> Condition:  # noqa: N802
        return Condition(self._hub, lock)

    def Event(self) -> Event:  # noqa: N802
        return Event(self._hub)

    def Thread(self, **how: Any) -> Thread:  # noqa: N802
        return Thread(self._hub, **how)

    def get_ident(self) -> int:
        return 1 if self._hub.current is None else self._hub.current.ident

    def get_native_id(self) -> int:
        raise OSError("a strand is no thread of the system's")  # as for a thread that has ended: its priority cannot be set

    def current_thread(self) -> Any:
        return self._hub.current


class Lock:
    """A lock; `reentrant` for one that its holder may take again."""

    reentrant = False

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._owner: object = None
        self._count = 0
        self._waiting: deque[Strand] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        hub = self._hub
        me: object = hub.current or hub
        if self.reentrant and self._owner is me:
            self._count += 1
            return True
        hub.pause()
        if self._owner is not None:
            if not blocking:
                return False
            strand = hub.current
            assert strand is not None, "the hub cannot wait for a lock"
            end_ns = None if timeout < 0 else hub.now_ns + int(timeout * NS_PER_S)
            while self._owner is not None:
                self._waiting.append(strand)
                if not hub.park(None if end_ns is None else end_ns - hub.now_ns):
                    self._waiting.remove(strand)
                    return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        self._count -= 1
        if self._count > 0:
            return
        self._owner = None
        while self._waiting:
            strand = self._waiting.popleft()
            if not strand.done:
                self._hub.make_ready(strand)
                break

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """A lock that its holder may take again."""

    reentrant = True


class Condition:
    """A condition variable over a lock."""

    def __init__(self, hub: Hub, lock: Any = None) -> None:
        self._hub = hub
        self._lock = RLock(hub) if lock is None else lock
        self._waiting: deque[Strand] = deque()

    def acquire(self, *how: Any) -> bool:
        return bool(self._lock.acquire(*how))

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        strand = self._hub.current
        assert strand is not None, "the hub cannot wait"
        count, self._lock._count = self._lock._count, 1
        self._waiting.append(strand)
        self._lock.release()
        try:
            told = self._hub.park(None if timeout is None else int(timeout * NS_PER_S))
        finally:
            if strand in self._waiting:
                self._waiting.remove(strand)
            if strand.process.alive:
                self._lock.acquire()
                self._lock._count = count
        return told

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end_ns = None if timeout is None else self._hub.now_ns + int(timeout * NS_PER_S)
        while not (result := predicate()):
            left = None if end_ns is None else (end_ns - self._hub.now_ns) / NS_PER_S
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        while n > 0 and self._waiting:
            self._hub.make_ready(self._waiting.popleft())
            n -= 1

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """A flag to wait for."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._flag = False
        self._waiting: deque[Strand] = deque()

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        while self._waiting:
            self._hub.make_ready(self._waiting.popleft())

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._flag:
            return True
        strand = self._hub.current
        assert strand is not None, "the hub cannot wait"
        self._waiting.append(strand)
        self._hub.park(None if timeout is None else int(timeout * NS_PER_S))
        if strand in self._waiting:
            self._waiting.remove(strand)
        return self._flag


class Thread:
    """A thread: a strand of the process that starts it."""

    def __init__(
        self,
        hub: Hub,
        target: Callable[..., Any],
        name: str = "thread",
        args: Iterable[Any] = (),
        daemon: bool = False,
    ) -> None:
        self._hub = hub
        self.name = name
        self.daemon = daemon
        self._target, self._args = target, tuple(args)
        self._strand: Strand | None = None

    def start(self) -> None:
        current = self._hub.current
        assert current is not None, "threads are started by threads"
        if not current.process.alive:
            raise Killed
        self._strand = current.process.spawn(self._target, *self._args, name=self.name)

    @property
    def ident(self) -> int | None:
        return None if self._strand is None else self._strand.ident

    def is_alive(self) -> bool:
        return self._strand is not None and not self._strand.done

    def join(self, timeout: float | None = None) -> None:
        strand, me = self._strand, self._hub.current
        assert strand is not None
        if not strand.done and me is not None:
            strand.waiters.append(me)
            self._hub.park(None if timeout is None else int(timeout * NS_PER_S))


class SimpleQueue:
    """`queue.SimpleQueue` for strands."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._items: deque[Any] = deque()
        self._waiting: deque[Strand] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            self._hub.make_ready(self._waiting.popleft())

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        end_ns = None if timeout is None else self._hub.now_ns + int(timeout * NS_PER_S)
        while not self._items:
            strand = self._hub.current
            if not block or (end_ns is not None and self._hub.now_ns >= end_ns):
                raise queue.Empty
            assert strand is not None
            self._waiting.append(strand)
            if not self._hub.park(None if end_ns is None else end_ns - self._hub.now_ns):
                self._waiting.remove(strand)
        return self._items.popleft()


class Pool:
    """`concurrent.futures.ThreadPoolExecutor` for strands."""

    def __init__(self, hub: Hub, workers: int = 8, name: str = "pool") -> None:
        self._hub = hub
        self._workers = workers
        self._name = name
        self._calls: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._running: list[Strand] = []
        self._idle: deque[Strand] = deque()
        self._ended = False

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        if self._ended:
            raise RuntimeError("cannot schedule new futures after shutdown")
        current = self._hub.current
        assert current is not None
        if not current.process.alive:
            raise Killed
        future: Future[Any] = Future()
        self._calls.append((future, function, args))
        if self._idle:
            self._hub.make_ready(self._idle.popleft())
        elif len(self._running) < self._workers:
            self._running.append(current.process.spawn(self._work, name=self._name))
        return future

    def _work(self) -> None:
        while True:
            while self._calls:
                future, function, args = self._calls.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    result = function(*args)
                except Killed:
                    raise
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                future = function = args = result = None  # type: ignore[assignment]
            if self._ended:
                return
            assert self._hub.current is not None
            self._idle.append(self._hub.current)
            self._hub.park()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._ended = True
        while self._idle:
            self._hub.make_ready(self._idle.popleft())
        if wait:
            for strand in list(self._running):
                if not strand.done and self._hub.current is not None:
                    strand.waiters.append(self._hub.current)
                    self._hub.park()
