"""One worker as the server sees it: its process, the channels to it, what was installed there, and what becomes of it when it dies.

`ask` is called by the threads that run orders, one call a channel. A worker that is gone is found by whoever asks it. The first to notice
starts it anew, installs what had been there, each operator with its last snapshot, and lets it do again what it had done since (the
inputs are kept, what comes of them is known already). Then all ask again.

Who is at fault: a call that runs when its worker is killed for the time it takes, and a call that was running at both of two deaths.
Its operator is lost and raises that for ever; its query ends by that as by any error.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from millstream.engine.data.allowance import CutAt, TooMuchAtOnce
from millstream.engine.data.errors import BoundReached, EngineError, InvalidDefinition, Unsupported
from millstream.engine.data.records import dataclass
from millstream.server.errors import TooMany
from millstream.server.functions.processes import cpu_used_s, end, spawn
from millstream.server.workers.channel import RUNNING, Channel
from millstream.server.workers.segments import SharedSegments
from millstream.server.workers.wire import Reader, Writer

CHANNELS = 3  # one order that runs, one that waits, and whoever asks for a snapshot
LOOK_MS = 500  # between two looks at how long a call has been running
TRIES_MAX = 2  # a call that was running at so many deaths is at fault
DEATHS_MAX = 20  # of others' calls that one call waits for
STARTS_MAX = 100  # in a row: an operator at fault costs one each
START_S = 30.0
_KINDS: dict[str, type[EngineError]] = {kind.code: kind for kind in (InvalidDefinition, Unsupported, BoundReached)}


@dataclass(frozen=True, slots=True)
class WorkerBounds:
    """What a worker may use: memory beyond what it starts with, and the processor time of one call (0: any), with some spare."""

    memory_bytes_max: int
    step_s_max: float
    spare_s: float = 2.0


class Died(Exception):
    """The worker has ended. `was_running`: in the midst of this call; `overdue`: it was killed as the call took too long."""

    def __init__(self, was_running: bool, overdue: bool = False) -> None:
        super().__init__("the worker has ended")
        self.was_running = was_running
        self.overdue = overdue


class WorkerLost(EngineError):
    """An operator that ended its worker."""

    code = "limit"


class StepFailed(EngineError):
    """What a step raised that is no error of the engine's own."""


@dataclass(slots=True)
class Answer:
    """What a worker said: its message, and how long it was at work (ns)."""

    reader: Reader
    told: list[Any]
    cost_ns: int
    claimed: int


Compose = Callable[[Writer], list[Any]]
"""Writes a call: returns [drops, installs, call]."""


class Incarnation:
    """A process and its channels: they begin and end together."""

    def __init__(self, worker: int, number: int, bounds: WorkerBounds) -> None:
        self.number = number
        self.reads_as = worker * 1_000_000 + number  # under which name it reads segments
        self._bounds = bounds
        self.channels = [Channel.open() for _ in range(CHANNELS)]
        self.free: SimpleQueue[Channel | None] = SimpleQueue()  # None: it is over, for whoever waits for one
        ours, theirs = socket.socketpair()
        self.ways = ours
        self.known: set[int] = set()
        self.telling = threading.Lock()
        told = {
            "ways": theirs.fileno(),
            "channels": [channel.descriptors for channel in self.channels],
            "memory_bytes_max": bounds.memory_bytes_max,
            "step_ns_max": int(bounds.step_s_max * 1e9),
        }
        inherited = [theirs.fileno(), *(one for channel in self.channels for one in channel.descriptors)]
        command = (sys.executable, "-I", "-m", "millstream.server.workers.child")
        try:
            self.process, self._lifeline = spawn(
                lambda lifeline: (*command, json.dumps({"lifeline": lifeline, **told})), inherited=inherited
            )
        except OSError as error:
            self._close_channels()
            raise TooMany(f"no worker can be started: {error.strerror}", hint="try again later") from error
        finally:
            theirs.close()
        self.end = os.pidfd_open(self.process.pid)
        for channel in self.channels:
            self.free.put(channel)

    def exchange(self, channel: Channel, parts: tuple[bytes, list[Any], int]) -> tuple[bytes, bytes]:
        """Send a request and return the answer. Died when the process ends before that, or is ended for the time it takes."""
        channel.request.write(*parts)
        os.eventfd_write(channel.asked, 1)
        poll = select.poll()
        poll.register(channel.answered, select.POLLIN)
        poll.register(self.end, select.POLLIN)
        began_s: float | None = None
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(LOOK_MS)]
            if channel.answered in ready:
                os.eventfd_read(channel.answered)
                return channel.answer.read()
            running = channel.answer.state == RUNNING
            if ready:
                raise Died(running)
            began_s = self._look(channel, running, began_s)

    def _look(self, channel: Channel, running: bool, began_s: float | None) -> float | None:
        """Return how much processor time it had used when the call was first seen at work; end the process where that is too long ago."""
        bounds = self._bounds
        if not running or not bounds.step_s_max:
            return None
        try:
            used_s = cpu_used_s(self.process.pid)
        except OSError:  # it has ended, which the next look finds
            return began_s
        if began_s is None:
            return used_s
        if used_s - began_s > bounds.step_s_max + bounds.spare_s:
            self.kill()
            raise Died(was_running=True, overdue=True)
        return began_s

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        """Return a context that has a channel for itself. Died where there will be none any more."""
        channel = self.free.get()
        if channel is None:
            self.free.put(None)
            raise Died(was_running=False)
        try:
            yield channel
        except OSError as error:  # its end of the socket is gone
            raise Died(was_running=False) from error
        finally:
            self.free.put(channel)

    def tell_segments(self, numbers: Sequence[int], segments: SharedSegments) -> None:
        """Let the process map segments that it does not know."""
        if self.known.issuperset(numbers):
            return
        with self.telling:
            for number in numbers:
                if number not in self.known:
                    socket.send_fds(self.ways, [number.to_bytes(8, "little")], [segments.descriptor(number)])
                    self.known.add(number)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the process; whoever asks finds it gone."""
        self.process.kill()

    def told_of_end(self) -> str:
        """Return how the process ended, in words."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        return f"it ended with exit code {code}"

    def close(self) -> None:
        """End the process, and close what belongs to it, once no call is under way on its channels."""
        end(self.process, self._lifeline)
        try:
            for _ in self.channels:
                self.free.get(timeout=START_S)
        except Empty:  # a thread still has one: its descriptors go with the server
            return
        finally:
            self.free.put(None)
        self._close_channels()
        self.ways.close()
        os.close(self.end)

    def _close_channels(self) -> None:
        for channel in self.channels:
            channel.close()


class Worker:
    """See the module's text. `number` counts from 1; 0 is the server itself."""

    def __init__(self, number: int, bounds: WorkerBounds, segments: SharedSegments) -> None:
        self.number = number
        self._bounds = bounds
        self._segments = segments
        self._lock = threading.Lock()
        self._alive = Incarnation(number, 1, bounds)
        self._dropped: deque[int] = deque()
        self.operators: dict[int, Installed] = {}
        self.deaths = 0
        self.busy_ns = 0
        self.calls = 0
        self.last_end = ""
        self.is_closing = False

    @property
    def pid(self) -> int:
        """Its process."""
        return self._alive.process.pid

    def ask(self, operators: Sequence[Installed], compose: Compose) -> Answer:
        """Have a call answered that concerns these operators. Raises what the worker raised, WorkerLost where the call is at fault."""
        running_deaths = 0
        for _ in range(DEATHS_MAX):
            for one in operators:
                if one.lost is not None:
                    raise WorkerLost(one.lost)
            alive = self._alive
            try:
                return self._asked(alive, operators, compose)
            except Died as died:
                alive.told_of_end()
                self._segments.forget(alive.reads_as)
                running_deaths += died.was_running
                at_fault = died.overdue or running_deaths >= TRIES_MAX
                if at_fault:
                    self._lose(operators, alive, died)
                self._revive(alive)
        raise WorkerLost(f"worker {self.number} has ended {DEATHS_MAX} times before a step could run")

    def _asked(self, alive: Incarnation, operators: Sequence[Installed], compose: Compose) -> Answer:
        with alive.channel() as channel:
            if alive is not self._alive or not alive.is_alive:
                raise Died(was_running=False)
            drops: list[int] = []
            while self._dropped:
                drops.append(self._dropped.popleft())
            new = [one for one in operators if one.at != alive.number]
            answer = self._exchange(alive, channel, lambda writer: [drops, [one.told(writer) for one in new], compose(writer)])
            for one in new:
                one.at = alive.number
        self.busy_ns += answer.cost_ns
        self.calls += 1
        return self._checked(answer)

    def _exchange(self, alive: Incarnation, channel: Channel, compose: Compose) -> Answer:
        writer = Writer(self._segments.find)
        body = compose(writer)
        self._segments.tell(writer.segments, alive.reads_as)
        alive.tell_segments(tuple(writer.segments), self._segments)
        reader = Reader(*alive.exchange(channel, writer.parts(body)))
        told, released, cost_ns, claimed = reader.body
        self._segments.untell(released, alive.reads_as)
        return Answer(reader, told, cost_ns, claimed)

    def _checked(self, answer: Answer) -> Answer:
        if answer.told[0] in ("cut", "error"):
            raise _error(answer.told, self._bounds)
        return answer

    def _lose(self, operators: Sequence[Installed], alive: Incarnation, died: Died) -> None:
        if died.overdue:
            why = f"one step took more than {self._bounds.step_s_max:g} s of the processor (step_s_max), and its worker was ended for it"
        else:
            why = f"it ended its worker, twice with the same step: {alive.told_of_end()}"
        operators[-1].lost = why

    def _revive(self, dead: Incarnation) -> None:
        """Start the process anew, unless somebody else has."""
        with self._lock:
            if self._alive is not dead or self.is_closing:
                return
            self.last_end = dead.told_of_end()
            self._start_anew(dead)

    def _start_anew(self, dead: Incarnation) -> None:
        for _ in range(STARTS_MAX):
            self.deaths += 1
            alive = Incarnation(self.number, dead.number + 1, self._bounds)
            threading.Thread(target=dead.close, name=f"end of worker {self.number}", daemon=True).start()
            try:
                for one in [o for o in list(self.operators.values()) if o.lost is None]:
                    self._again(alive, one)
            except Died:
                dead = alive
                continue
            self._alive = alive
            return
        raise TooMany(f"worker {self.number} ended {STARTS_MAX} times while it was started anew: {dead.told_of_end()}")

    def _again(self, alive: Incarnation, one: Installed) -> None:
        """Install an operator with its last snapshot, and have it do again what it did since."""
        at = one
        try:
            for installed in {id(i): i for part in one.kept for i in part.operators}.values():
                at = installed
                self._install(alive, installed)
            at = one
            self._install(alive, one)
            for part in one.kept:
                self._have_done(alive, lambda writer, part=part: [[], [], part.compose(writer, discarded=True)])  # type: ignore[misc]
        except EngineError as error:  # it was done before, so this is another machine's answer: too little memory now, say
            at.lost = f"its worker could not take up what it had done before: {error}"
        except Died as died:
            if died.was_running:
                at.lost = f"it ended its worker again when that took up what it had done before: {alive.told_of_end()}"
            raise

    def _install(self, alive: Incarnation, one: Installed) -> None:
        if one.at != alive.number:
            self._have_done(alive, lambda writer: [[], [one.told(writer)], ["nothing"]])
            one.at = alive.number

    def _have_done(self, alive: Incarnation, compose: Compose) -> None:
        """Have a worker that starts anew do something again."""
        with alive.channel() as channel:
            answer = self._exchange(alive, channel, compose)
        self._checked(answer)

    def drop(self, one: Installed) -> None:
        """Let the worker forget an operator, with the next call."""
        if self.operators.pop(one.key, None) is not None and one.at:
            self._dropped.append(one.key)

    def kill(self) -> None:
        """End the process as a fault would."""
        self._alive.kill()

    def close(self) -> None:
        """End it for good."""
        self.is_closing = True
        with self._lock:
            self._alive.close()


@dataclass(slots=True, eq=False)
class KeptCall:
    """A call that an operator's state has seen since its last snapshot. `compose` writes it again; `size_bytes` is what it holds on to."""

    operators: tuple[Installed, ...]
    compose: Callable[..., list[Any]]
    size_bytes: int


class Installed:
    """What a worker must know to have an operator: what it is, its last snapshot, and the calls since.

    `at` is the incarnation in which it was installed last, `lost` why it is no more.
    """

    __slots__ = ("about", "at", "kept", "kept_bytes", "key", "lost", "snapshot")

    def __init__(self, key: int, about: bytes, snapshot: Any) -> None:
        self.key = key
        self.about = about
        self.snapshot = snapshot
        self.kept: list[KeptCall] = []
        self.kept_bytes = 0
        self.at = 0
        self.lost: str | None = None

    def told(self, writer: Writer) -> list[Any]:
        """Write what is installed."""
        return [self.key, writer.bytes(self.about), writer.bytes(self.snapshot) if self.snapshot else None]

    def keep(self, call: KeptCall) -> None:
        """Remember a call that was done."""
        self.kept.append(call)
        self.kept_bytes += call.size_bytes

    def stand(self, snapshot: Any) -> None:
        """Hold this from now on; what came before it is in it."""
        self.snapshot, self.kept, self.kept_bytes = snapshot, [], 0


def about(recipe: Any, schemas: Sequence[Any], is_shared: bool) -> bytes:
    """Return what an operator is, as the worker reads it."""
    return pickle.dumps((recipe, tuple(schemas), is_shared), protocol=5)


def _error(told: list[Any], bounds: WorkerBounds) -> Exception:
    if told[0] == "cut":
        return CutAt(told[1])
    _, code, message, hint = told
    if code == "again":
        return TooMuchAtOnce(message, hint=hint)
    if code == "memory":
        limit = f"worker_bytes_max = {bounds.memory_bytes_max}"
        return BoundReached(f"its step needs more memory than its worker has left of {limit}", hint="ask for less, or raise it")
    if not code:
        return StepFailed(message)
    return _KINDS.get(code, EngineError)(message, hint=hint)
