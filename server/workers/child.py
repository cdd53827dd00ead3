"""The process of a worker: operators' logic and state, one call after the other.

Its arguments are JSON: the lifeline, the socket on which segments come, the channels' descriptors, bounds. A request is
`[drops, installs, call]`: the keys of operators that are wanted no longer; `[key, what it is, state]` of new ones; and a call:

    ["run", keys, whether they run as one chain, trains, outputs, bytes left, name of that bound, whether to tell what is held,
     whether nobody wants what comes of it]
    ["snapshot", key]
    ["nothing"]

It ends with the server. What it is asked to build comes from the server that started it, so that may be a pickle; what it answers is none.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from millstream.engine.chains.fused_program import FusedProgram, can_fuse
from millstream.engine.data.allowance import Allowance, CutAt, TooMuchAtOnce, give, unbounded
from millstream.engine.data.errors import EngineError
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.language.recipes import Recipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.server.functions.child import die_with_the_server
from millstream.server.workers.channel import IDLE, RUNNING, Channel, TooLarge
from millstream.server.workers.wire import Reader, Writer

_DATA = "VmData:"
NUMBER_BYTES = 8


@dataclass(slots=True)
class Built:
    """One operator at work."""

    recipe: Recipe
    inputs: tuple[Schema, ...]
    logic: Operator


class Segments:
    """The segments that the server writes rows into, mapped when first named. `released` are those of which an array set has gone."""

    def __init__(self, ways: socket.socket) -> None:
        self._ways = ways
        self._maps: dict[int, mmap.mmap] = {}
        self._alive: dict[int, weakref.ref[Any]] = {}  # by its own identity: what it refers to has no hash
        self.released: deque[int] = deque()

    def base(self, number: int) -> Any:
        """Return a segment's memory; once no array over what is returned is left, it is released."""
        while number not in self._maps:
            told, descriptors, _, _ = socket.recv_fds(self._ways, NUMBER_BYTES, 1)
            self._maps[int.from_bytes(told, "little")] = mmap.mmap(descriptors[0], 0, prot=mmap.PROT_READ)
            os.close(descriptors[0])
        base = np.frombuffer(self._maps[number], dtype=np.uint8)
        released, alive = self.released, self._alive

        def gone(reference: weakref.ref[Any]) -> None:
            alive.pop(id(reference), None)
            released.append(number)

        reference = weakref.ref(base, gone)
        alive[id(reference)] = reference
        return base

    def take_released(self) -> list[list[int]]:
        """Return [segment, how often it was released] since last asked."""
        counts: Counter[int] = Counter()
        while self.released:
            counts[self.released.popleft()] += 1
        return [[number, count] for number, count in counts.items()]


class Desk:
    """Answers requests."""

    def __init__(self, segments: Segments, step_ns_max: int) -> None:
        self._segments = segments
        self._operators: dict[int, Built] = {}
        self._programs: dict[tuple[int, ...], FusedProgram] = {}
        self._allowance = Allowance((time.thread_time_ns if step_ns_max else None, step_ns_max))
        give(self._allowance)

    def answer(self, head: bytes, behind: bytes) -> tuple[bytes, list[Any], int]:
        """Return the parts of the answer to a request."""
        started_ns, writer = time.perf_counter_ns(), Writer()
        try:
            told = self._answered(Reader(head, behind, self._segments.base), writer)
        except CutAt as cut:
            told = ["cut", cut.seq]
        except EngineError as error:
            told = ["error", "again" if isinstance(error, TooMuchAtOnce) else error.code, error.message, error.hint]
        except MemoryError:
            told = ["error", "memory", "", None]
        except Exception as error:
            told = ["error", "", f"{type(error).__name__}: {error}", None]
        return writer.parts([told, self._segments.take_released(), time.perf_counter_ns() - started_ns, self._allowance.claimed])

    def _answered(self, request: Reader, writer: Writer) -> list[Any]:
        drops, installs, call = request.body
        for key in drops:
            self._operators.pop(key, None)
        if drops:
            self._programs = {keys: p for keys, p in self._programs.items() if not set(keys) & set(drops)}
        for key, about, state in installs:
            self._operators[key] = _built(request.bytes(about), None if state is None else request.bytes(state))
        if call[0] == "run":
            return self._run(request, writer, *call[1:])
        if call[0] == "snapshot":
            return ["state", writer.bytes(self._operators[call[1]].logic.snapshot())]
        return ["nothing"]

    def _run(
        self,
        request: Reader,
        writer: Writer,
        keys: list[int],
        is_chain: bool,
        told: list[Any],
        outputs: int,
        left: int,
        bound: str,
        tell_held: bool,
        discarded: bool,
    ) -> list[Any]:
        operators = [self._operators[key] for key in keys]
        last = operators[-1]
        inputs = [request.train(t, s, (NOT_HERE,)) for t, s in zip(told, operators[0].inputs, strict=True)]
        allowance = self._allowance
        allowance.left = unbounded if left < 0 else lambda: (left, bound)
        allowance.claimed, allowance.active = 0, True
        allowance.start()
        out = Emitter(outputs)
        counts: list[int] = []
        try:
            with np.errstate(all="ignore"):
                if is_chain:
                    inputs, counts = self._through_chain(tuple(keys), operators, inputs[0])
                if not is_chain or not can_fuse(last.recipe):
                    _process(last.logic, inputs, out, is_chain=is_chain)
                else:
                    out.emit(inputs[0])
        finally:
            allowance.active, allowance.left = False, unbounded
        if discarded:
            return ["nothing"]
        made = [[port, writer.train(out.trains[port])] for port in out.ports]  # type: ignore[arg-type]
        side = _side_rows(out, last.inputs, writer) if out.has_side_rows else None
        held = [last.logic.state_rows(), last.logic.state_bytes()] if tell_held else None
        return ["done", counts, made, side, last.logic.wake_at_us(), held]

    def _through_chain(self, keys: tuple[int, ...], operators: Sequence[Built], train: Train) -> tuple[list[Train], list[int]]:
        program = self._programs.get(keys)
        if program is None:
            working = operators if can_fuse(operators[-1].recipe) else operators[:-1]
            program = self._programs[keys] = FusedProgram([o.recipe for o in working], operators[0].inputs[0])
        try:
            left, counts = program.run(train)
        except TooMuchAtOnce as error:
            raise CutAt(0) from error  # by themselves the operators can cut it
        return [left], counts


def _process(logic: Operator, inputs: Sequence[Train], out: Emitter, *, is_chain: bool) -> None:
    try:
        logic.process(inputs, out)
    except TooMuchAtOnce as error:
        if is_chain and not logic.stateful:
            raise CutAt(0) from error
        raise


def _side_rows(out: Emitter, inputs: Sequence[Schema], writer: Writer) -> list[Any]:
    """Tell what was put out besides the output: late rows, seqs of partly late ones, errors, and late ones by output."""

    def rows(train: Train | None) -> Any:
        if train is None:
            return None
        known = next((i for i, schema in enumerate(inputs) if schema is train.schema), None)
        return [known, None if known is not None else writer.schema(train.schema), writer.train(train)]

    return [
        [[port, rows(train)] for port, train in out.late],
        [[port, writer.array(seqs)] for port, seqs in out.partly_late],
        [[one.reason, rows(one.rows)] for one in out.errors],
        [[output, rows(train), writer.array(seqs)] for output, train, seqs in out.late_of_output],
    ]


def _built(about: memoryview, state: memoryview | None) -> Built:
    from millstream.engine.operators.build import build_operator
    from millstream.engine.synopses.shared_aggregate import SharedAggregate

    recipe, schemas, is_shared = pickle.loads(about)
    logic: Operator = SharedAggregate(recipe, schemas[0]) if is_shared else build_operator(recipe, list(schemas))
    if state is not None:
        logic.restore(bytes(state))
    return Built(recipe, tuple(schemas), logic)


def _not_here() -> Train:
    """Return what stands for the rows of a source, which the server remembers: only that there are some is told."""
    from millstream.engine.data.train import empty_train
    from millstream.engine.data.watermarks import constant_track

    return empty_train(Schema(()), 0, 0, constant_track(0, 0, 0))


NOT_HERE = _not_here()


def serve(desk: Desk, channels: Sequence[Channel], poll: Callable[[], Sequence[tuple[int, int]]]) -> None:
    """Answer one request after the other."""
    by_event = {channel.asked: channel for channel in channels}
    while True:
        for descriptor, _ in poll():
            channel = by_event[descriptor]
            os.eventfd_read(descriptor)
            channel.answer.state = RUNNING
            parts = desk.answer(*channel.request.read())
            try:
                channel.answer.write(*parts)
            except TooLarge as error:
                channel.answer.write(*Writer().parts([["error", "limit", f"{error} would leave an operator", None], [], 0, 0]))
            channel.answer.state = IDLE
            os.eventfd_write(channel.answered, 1)
            del parts


def _bound(memory_bytes_max: int) -> None:
    """Let this process use so much memory beyond what it has; what is shared with the server does not count."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/status", encoding="ascii") as file:
        held = next(int(line.split()[1]) * 1024 for line in file if line.startswith(_DATA))
    resource.setrlimit(resource.RLIMIT_DATA, (held + memory_bytes_max, resource.RLIM_INFINITY))


def main() -> None:
    """Serve until the server ends. The only argument is JSON: lifeline, ways, channels, memory_bytes_max, step_ns_max."""
    told = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the server ends this process
    die_with_the_server(told["lifeline"])
    os.dup2(2, 1)
    from millstream.server.lean import keep_pandas_out

    keep_pandas_out()
    from millstream.engine.operators import build  # noqa: F401  before the memory is bounded

    gc.collect()
    gc.freeze()
    _bound(told["memory_bytes_max"])
    channels = [Channel(descriptors) for descriptors in told["channels"]]
    poller = select.epoll()
    for channel in channels:
        poller.register(channel.asked, select.EPOLLIN)
    segments = Segments(socket.socket(fileno=told["ways"]))
    serve(Desk(segments, told["step_ns_max"]), channels, poller.poll)


if __name__ == "__main__":
    main()
