"""One worker as the server sees it: its process, the channels to it, what was installed there, and what becomes of it when it dies.

`ask` is called by the threads that run orders, the calls of an order in one message. A worker that is gone is found by whoever asks it. The
first to notice starts it anew, installs what had been there, each operator with its last snapshot, and lets it do again what it had
done since (the inputs are kept, what comes of them is known already). Then all ask again.

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
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from millstream.engine.data.allowance import CutAt, TooMuchAtOnce
from millstream.engine.data.chunks import ROWS_PLACED_MIN
from millstream.engine.data.errors import BoundReached, EngineError, InvalidDefinition, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Train
from millstream.engine.flow.running import Pending, outcome
from millstream.server.errors import TooMany
from millstream.server.functions.processes import cpu_used_s, end, spawn
from millstream.server.workers.channel import Channel, TooLarge
from millstream.server.workers.segments import MappedSegments, SharedSegments, ToldSegments
from millstream.server.workers.wire import Reader, Writer

TRAINS_TOLD_MAX = 128  # that a worker keeps, as another of its operators may take them as well
TRAIN_BYTES_TOLD_MAX = 32 * 1024 * 1024
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
    """The worker has ended: at this call of the request, from 1 on, or at none (0). `overdue`: it was killed for the time that took."""

    def __init__(self, at: int, overdue: bool = False) -> None:
        super().__init__("the worker has ended")
        self.at = at
        self.overdue = overdue


class WorkerLost(EngineError):
    """An operator that ended its worker."""

    code = "limit"


class StepFailed(EngineError):
    """What a step raised that is no error of the engine's own."""


@dataclass(slots=True)
class Answer:
    """What a worker said to a call: its message, how long it was at work (ns), the bytes that it made, and which incarnation it was."""

    reader: Reader
    told: list[Any]
    cost_ns: int
    claimed: int
    incarnation: int


class Telling:
    """What a request tells a worker of trains: each once, then by its number, as several operators take the same ones.

    The worker keeps those that were told last. Used under the lock of its incarnation, as later requests build on earlier ones.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[int, Train, int]] = OrderedDict()  # by identity: number, the train, its bytes
        self._next = 1
        self._bytes = 0
        self._forgotten: list[int] = []  # of which the worker has not heard, as the request was not sent
        self.fresh: list[Any] = []

    def train(self, writer: Writer, train: Train) -> Any:
        """Tell a train: its number, or what it is where it has few rows."""
        known = self._known.get(id(train))
        if known is not None:
            return known[0]
        told = writer.train(train)
        if train.rows < ROWS_PLACED_MIN:
            return told
        number, size = self._next, train.nbytes()
        self._next += 1
        self._known[id(train)] = number, train, size
        self._bytes += size
        self.fresh.append([number, told])
        return number

    def take_forgotten(self) -> list[int]:
        """Return the numbers that are not used any more after this request."""
        forgotten, self._forgotten = self._forgotten, []
        while len(self._known) > TRAINS_TOLD_MAX or self._bytes > TRAIN_BYTES_TOLD_MAX:
            _, (number, _, size) = self._known.popitem(last=False)
            self._bytes -= size
            forgotten.append(number)
        return forgotten

    def take_fresh(self) -> list[Any]:
        """Return what is told anew with this request."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def forget_all(self, forgotten: list[int]) -> None:
        """Forget all, as a request was not sent that was to bring what it told, and to say that these are forgotten."""
        self._forgotten += [*forgotten, *(number for number, _, _ in self._known.values())]
        self._known.clear()
        self._bytes, self.fresh = 0, []


Compose = Callable[[Writer, Telling], list[Any]]
"""Writes a call."""


@dataclass(slots=True)
class Asked:
    """A call, and the operators that it concerns."""

    operators: Sequence[Installed]
    compose: Compose


class Incarnation:
    """A process and its channels: they begin and end together."""

    def __init__(self, worker: int, number: int, bounds: WorkerBounds) -> None:
        self.number = number
        self.reads_as = worker * 1_000_000 + number  # under which name it reads segments
        self._bounds = bounds
        self.channels: list[Channel] = []
        self.free: SimpleQueue[Channel | None] = SimpleQueue()  # None: it is over, for whoever waits for one
        self.telling = Telling()
        self._sending = threading.Lock()
        self._requests = 0
        with ExitStack() as undo:  # nothing is left of one that cannot be begun
            undo.callback(self._close_channels)
            try:
                self._begin(undo)
            except OSError as error:
                raise TooMany(f"no worker can be started: {error.strerror}", hint="try again later") from error
            undo.pop_all()
        for channel in self.channels:
            self.free.put(channel)

    def _begin(self, undo: ExitStack) -> None:
        for _ in range(CHANNELS):
            self.channels.append(Channel.open())
        self.ways, theirs = socket.socketpair()
        undo.callback(self.ways.close)
        with theirs:
            told = {
                "ways": theirs.fileno(),
                "channels": [channel.descriptors for channel in self.channels],
                "memory_bytes_max": self._bounds.memory_bytes_max,
                "step_ns_max": int(self._bounds.step_s_max * 1e9),
            }
            inherited = [theirs.fileno(), *(one for channel in self.channels for one in channel.descriptors)]
            command = (sys.executable, "-I", "-m", "millstream.server.workers.child")
            self.process, self._lifeline = spawn(
                lambda lifeline: (*command, json.dumps({"lifeline": lifeline, **told})), inherited=inherited
            )
        undo.callback(end, self.process, self._lifeline)
        self.end = os.pidfd_open(self.process.pid)
        self._told_segments = ToldSegments(self.ways)
        self.segments = MappedSegments(self.ways)

    def exchange(
        self, channel: Channel, asked: Sequence[Asked], drops: list[int], shared: SharedSegments, budget_ns: int | None
    ) -> Pending[Reader]:
        """Send a request, pause, return the answer. Died when the process ends before that, or is ended for the time it takes."""
        with self._sending:
            self._send(channel, asked, drops, shared, budget_ns)
        yield
        poll = select.poll()
        poll.register(channel.answered, select.POLLIN)
        poll.register(self.end, select.POLLIN)
        began: tuple[int, float] | None = None
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(LOOK_MS)]
            if channel.answered in ready:
                os.eventfd_read(channel.answered)
                reader = Reader(*channel.answer.read(self.segments.base))
                shared.untell(reader.body[1], self.reads_as)
                return reader
            at = channel.answer.at
            if ready:
                raise Died(at)
            began = self._look(at, began)

    def _send(self, channel: Channel, asked: Sequence[Asked], drops: list[int], shared: SharedSegments, budget_ns: int | None) -> None:
        writer, telling = Writer(shared.find), self.telling
        new: list[Installed] = []
        told: dict[int, None] = {}
        forgotten: list[int] = []
        released: list[list[int]] = []
        try:
            calls = []
            for one in asked:
                fresh = [installed for installed in one.operators if installed.at != self.number]
                new += fresh
                for installed in fresh:
                    installed.at = self.number
                calls.append([[installed.told(writer) for installed in fresh], one.compose(writer, telling)])
            forgotten, released = telling.take_forgotten(), self.segments.take_released()
            body = [drops, forgotten, released, telling.take_fresh(), calls, budget_ns]
            shared.tell(writer.segments, self.reads_as)
            told = writer.segments
            self._told_segments.tell(writer.segments, shared)
            channel.answer.at = 0
            self._requests += 1
            channel.request.write(writer.parts(body), self._requests)
        except BaseException:
            telling.forget_all(forgotten)
            self.segments.put_back(released)
            shared.untell([[number, 1] for number in told], self.reads_as)
            for installed in new:
                installed.at = 0
            raise
        os.eventfd_write(channel.asked, 1)

    def _look(self, at: int, began: tuple[int, float] | None) -> tuple[int, float] | None:
        """Return the call at work and how much processor time it was first seen with; end the process where that is too long ago."""
        bounds = self._bounds
        if not at or not bounds.step_s_max:
            return None
        try:
            used_s = cpu_used_s(self.process.pid)
        except OSError:  # it has ended, which the next look finds
            return began
        if began is None or began[0] != at:
            return at, used_s
        if used_s - began[1] > bounds.step_s_max + bounds.spare_s:
            self.kill()
            raise Died(at, overdue=True)
        return began

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        """Return a context that has a channel for itself. Died where there will be none any more."""
        channel = self.free.get()
        if channel is None:
            self.free.put(None)
            raise Died(0)
        try:
            yield channel
        except OSError as error:  # its end of the socket is gone
            raise Died(0) from error
        finally:
            self.free.put(channel)

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
        """Have one call answered that concerns these operators. Raises what the worker raised, WorkerLost where the call is at fault."""
        (answer,) = outcome(self.ask_all((Asked(operators, compose),), None))
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    def ask_all(self, asked: Sequence[Asked], budget_ns: int | None) -> Pending[list[Answer | Exception | None]]:
        """Have calls answered, one after the other; returns of each what the worker said or raised, or why its operator is lost.

        None: it was not begun, as those before it took longer than the budget or made too much. It pauses once the worker is at work.
        """
        running_deaths: Counter[int] = Counter()
        found: list[Answer | Exception | None] = [None] * len(asked)
        for _ in range(DEATHS_MAX):
            wanted = []
            for number, one in enumerate(asked):
                lost = next((operator.lost for operator in one.operators if operator.lost is not None), None)
                if lost is None:
                    wanted.append(number)
                else:
                    found[number] = WorkerLost(lost)
            if not wanted:
                return found
            alive = self._alive
            try:
                answers = yield from self._asked(alive, [asked[n] for n in wanted], budget_ns)
            except TooLarge as error:
                if len(wanted) == 1:
                    found[wanted[0]] = StepFailed(f"{error} would go to its worker")
                else:
                    for number in wanted:
                        (found[number],) = yield from self.ask_all((asked[number],), None)
                return found
            except Died as died:
                self._forget(alive)
                if died.at:
                    at = wanted[died.at - 1]
                    running_deaths[at] += 1
                    if died.overdue or running_deaths[at] >= TRIES_MAX:
                        self._lose(asked[at].operators, alive, died)
                self._revive(alive)
            else:
                for number, answer in zip(wanted, answers, strict=True):
                    found[number] = answer
                return found
        raise WorkerLost(f"worker {self.number} has ended {DEATHS_MAX} times before a step could run")

    def _asked(self, alive: Incarnation, asked: Sequence[Asked], budget_ns: int | None) -> Pending[list[Answer | Exception | None]]:
        with alive.channel() as channel:
            if alive is not self._alive:
                raise Died(0)
            drops: list[int] = []
            while self._dropped:
                drops.append(self._dropped.popleft())
            try:
                reader = yield from alive.exchange(channel, asked, drops, self._segments, budget_ns)
            except TooLarge:
                self._dropped.extend(drops)
                raise
        return [self._answer(alive, reader, *told) for told in reader.body[0]]

    def _answer(self, by: Incarnation, reader: Reader, told: list[Any], cost_ns: int, claimed: int) -> Answer | Exception | None:
        if told[0] == "late":
            return None
        self.busy_ns += cost_ns
        self.calls += 1
        if told[0] in ("cut", "error"):
            return self.error(told)
        return Answer(reader, told, cost_ns, claimed, by.number)

    def error(self, told: list[Any]) -> Exception:
        """Return what a call raised, as the worker told it."""
        return _error(told, self._bounds)

    def _forget(self, dead: Incarnation) -> None:
        """Note that a process reads nothing any more."""
        dead.told_of_end()
        self._segments.forget(dead.reads_as)

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
            alive = Incarnation(self.number, dead.number + 1, self._bounds)
            self.deaths += 1
            threading.Thread(target=dead.close, name=f"end of worker {self.number}", daemon=True).start()
            try:
                for one in [o for o in list(self.operators.values()) if o.lost is None]:
                    self._again(alive, one)
            except Died:
                self._forget(alive)
                self._alive = dead = alive  # which whoever starts the next one closes
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
                self._have_done(alive, one, lambda writer, telling, part=part: part.compose(writer, telling, discarded=True))  # type: ignore[misc]
        except (EngineError, TooLarge) as error:  # it was done before, so this is another machine's answer: too little memory now, say
            at.lost = f"its worker could not take up what it had done before: {error}"
        except Died as died:
            if died.at:
                at.lost = f"it ended its worker again when that took up what it had done before: {alive.told_of_end()}"
            raise

    def _install(self, alive: Incarnation, one: Installed) -> None:
        if one.at != alive.number:
            self._have_done(alive, one, lambda writer, telling: ["nothing"])

    def _have_done(self, alive: Incarnation, one: Installed, compose: Compose) -> None:
        """Have a worker that starts anew do something again."""
        with alive.channel() as channel:
            reader = outcome(alive.exchange(channel, (Asked((one,), compose),), [], self._segments, None))
        answer = self._answer(alive, reader, *reader.body[0][0])
        if isinstance(answer, Exception):
            raise answer

    def keep(self, one: Installed, call: KeptCall, answer: Answer) -> None:
        """Remember a call that was done. Has the worker do it again where that was started anew since it answered, without this call."""
        with self._lock:
            one.keep(call)
            if answer.incarnation == self._alive.number or one.lost is not None or self.is_closing:
                return
            one.at = 0
            try:
                self._again(self._alive, one)
            except Died:
                self._forget(self._alive)
                self._start_anew(self._alive)

    def stand(self, one: Installed, snapshot: Any, answer: Answer) -> None:
        """Let an operator begin with this from now on: what came before is in it."""
        with self._lock:
            one.stand(snapshot)
            if answer.incarnation != self._alive.number:
                one.at = 0  # it began with less

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

    operators: Sequence[Installed]
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
