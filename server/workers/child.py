"""The process of a worker: operators' logic and state, one call after the other.

Its arguments are JSON: the lifeline, the socket on which segments come and go, the channels' descriptors, bounds. A request is

    [drops, forgotten, released, trains, calls, budget_ns]

the keys of operators that are wanted no longer; the numbers of trains that nobody will name again; what the server has let go of in this
process's segments; `[number, train]` of new trains; and what is to be done, one after the other, as long as the budget lasts. Of each call:
`[key, what it is, state]` of operators that are new, and

    ["run", keys, whether they run as one chain, inputs, outputs, bytes left, name of that bound, what to tell, whether nobody wants
     what comes of it]
    ["snapshot", key]
    ["nothing"]

An input is a list of trains that follow one another, each by its number or as it is. What several calls take alike is read and joined once.

It ends with the server. What it is asked to build comes from the server that started it, so that may be a pickle; what it answers is none.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from millstream.engine.chains.fused_program import FusedProgram, can_fuse
from millstream.engine.data.allowance import Allowance, CutAt, TooMuchAtOnce, give, unbounded
from millstream.engine.data.errors import EngineError
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train, concat_trains
from millstream.engine.language.recipes import Recipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.server.functions.child import die_with_the_server
from millstream.server.workers.channel import MESSAGE_BYTES_MAX, Channel, Message
from millstream.server.workers.segments import MappedSegments, SharedSegments, ToldSegments
from millstream.server.workers.wire import TELL_HELD, TELL_STATE, Reader, Writer

_DATA = "VmData:"
SERVER = 0  # the reader of this process's segments
ANSWER_BYTES_MAX = 64 * 1024 * 1024  # then the calls behind it wait for another one
ANSWERS_BYTES_MAX = 256 * 1024 * 1024  # in segments; what the server does not let go of beyond that is copied
PLACED_BYTES_MIN = 16 * 1024  # a smaller answer is copied sooner than its segment is told of and let go again
JOINED_KEPT = 4


@dataclass(slots=True)
class Built:
    """One operator at work."""

    recipe: Recipe
    inputs: tuple[Schema, ...]
    logic: Operator


class Trains:
    """Trains that have a number, and what was joined of them last."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[Reader, list[Any]]] = {}
        self._read: dict[int, Train] = {}
        self._joined: OrderedDict[tuple[int, ...], Train] = OrderedDict()

    def take(self, reader: Reader, trains: Sequence[tuple[int, list[Any]]]) -> None:
        """Take in new ones."""
        for number, told in trains:
            self._told[number] = reader, told

    def forget(self, numbers: Sequence[int]) -> None:
        """Let go of some."""
        for number in numbers:
            self._told.pop(number, None)
            self._read.pop(number, None)
        gone = set(numbers)
        for joined in [one for one in self._joined if gone.intersection(one)]:
            del self._joined[joined]

    def input(self, reader: Reader, parts: Sequence[Any], schema: Schema) -> Train:
        """Return the train of an input."""
        if len(parts) == 1:
            return self._one(reader, parts[0], schema)
        key = tuple(part for part in parts if type(part) is int)
        if len(key) != len(parts):
            return concat_trains([self._one(reader, part, schema) for part in parts])
        found = self._joined.get(key)
        if found is None:
            found = self._joined[key] = concat_trains([self._one(reader, part, schema) for part in parts])
            if len(self._joined) > JOINED_KEPT:
                self._joined.popitem(last=False)
        return found

    def _one(self, reader: Reader, part: Any, schema: Schema) -> Train:
        if type(part) is not int:
            return reader.train(part, schema, (NOT_HERE,))
        found = self._read.get(part)
        if found is None:
            of, told = self._told.pop(part)
            found = self._read[part] = of.train(told, schema, (NOT_HERE,))
        return found


class Desk:
    """Answers requests."""

    def __init__(self, segments: MappedSegments, own: SharedSegments, step_ns_max: int) -> None:
        self._segments = segments
        self._own = own
        self._operators: dict[int, Built] = {}
        self._programs: dict[tuple[int, ...], FusedProgram] = {}
        self._trains = Trains()
        self._schemas: dict[Schema, Schema] = {}
        self._allowance = Allowance((time.thread_time_ns if step_ns_max else None, step_ns_max))
        give(self._allowance)

    def answer(self, head: bytes, behind: bytes, began: Callable[[int], None]) -> Message:
        """Return the parts of the answer to a request: `[[told, ns, bytes claimed] of each call, segments released]`.

        `began` hears which call, from 1 on, is next.
        """
        writer = Writer()
        request = Reader(head, behind, self._segments.base)
        drops, forgotten, released, trains, calls, budget_ns = request.body
        self._own.untell(released, SERVER)
        for key in drops:
            self._operators.pop(key, None)
        if drops:
            gone = set(drops)
            self._programs = {keys: p for keys, p in self._programs.items() if gone.isdisjoint(keys)}
        self._trains.take(request, trains)
        answers = []
        started_ns = now_ns = time.perf_counter_ns()
        for number, (installs, call) in enumerate(calls):
            is_late = writer.size > ANSWER_BYTES_MAX or (budget_ns is not None and now_ns - started_ns > budget_ns)
            if number and is_late:
                answers.append([["late"], 0, 0])
                continue
            began(number + 1)
            mark = writer.mark()
            told = self._answered(request, writer, installs, call)
            if writer.size > MESSAGE_BYTES_MAX:
                told = ["error", "limit", f"a message of {writer.size} bytes would leave an operator", None]
                writer.cut(mark)
            before_ns, now_ns = now_ns, time.perf_counter_ns()
            answers.append([told, now_ns - before_ns, self._allowance.claimed])
        self._trains.forget(forgotten)
        return writer.parts([answers, self._segments.take_released()])

    def _answered(self, request: Reader, writer: Writer, installs: Sequence[Any], call: list[Any]) -> list[Any]:
        self._allowance.claimed = 0
        try:
            return self._done(request, writer, installs, call)
        except CutAt as cut:
            return ["cut", cut.seq]
        except EngineError as error:
            return ["error", "again" if isinstance(error, TooMuchAtOnce) else error.code, error.message, error.hint]
        except MemoryError:
            return ["error", "memory", "", None]
        except Exception as error:
            return ["error", "", f"{type(error).__name__}: {error}", None]

    def _done(self, request: Reader, writer: Writer, installs: Sequence[Any], call: list[Any]) -> list[Any]:
        for key, about, state in installs:
            self._operators[key] = self._built(request.bytes(about), None if state is None else request.bytes(state))
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
        telling: int,
        discarded: bool,
    ) -> list[Any]:
        operators = [self._operators[key] for key in keys]
        last = operators[-1]
        inputs = [self._trains.input(request, parts, schema) for parts, schema in zip(told, operators[0].inputs, strict=True)]
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
        held = [last.logic.state_rows(), last.logic.state_bytes()] if telling & TELL_HELD else None
        state = writer.bytes(last.logic.snapshot()) if telling & TELL_STATE else None
        return ["done", counts, made, side, last.logic.wake_at_us(), held, state]

    def _built(self, about: memoryview, state: memoryview | None) -> Built:
        from millstream.engine.operators.build import build_operator
        from millstream.engine.synopses.shared_aggregate import SharedAggregate

        recipe, schemas, is_shared = pickle.loads(about)
        schemas = tuple(self._schemas.setdefault(schema, schema) for schema in schemas)  # so that trains of one log are read once
        logic: Operator = SharedAggregate(recipe, schemas[0]) if is_shared else build_operator(recipe, list(schemas))
        if state is not None:
            logic.restore(bytes(state))
        return Built(recipe, schemas, logic)

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


def _not_here() -> Train:
    """Return what stands for the rows of a source, which the server remembers: only that there are some is told."""
    from millstream.engine.data.train import empty_train
    from millstream.engine.data.watermarks import constant_track

    return empty_train(Schema(()), 0, 0, constant_track(0, 0, 0))


NOT_HERE = _not_here()


def serve(desk: Desk, channels: Sequence[Channel], poll: Callable[[], Sequence[tuple[int, int]]], way: Answers) -> None:
    """Answer requests in the order in which they were written: a later one may name trains that an earlier one brought."""
    by_event = {channel.asked: channel for channel in channels}
    while True:
        for channel in sorted([by_event[descriptor] for descriptor, _ in poll()], key=lambda channel: channel.request.number):
            os.eventfd_read(channel.asked)

            def began(call: int, channel: Channel = channel) -> None:
                channel.answer.at = call

            way.send(channel, desk.answer(*channel.request.read(), began))


class Answers:
    """Puts answers where the server reads them: what they bring lies in segments of this process, unless it is small."""

    def __init__(self, own: SharedSegments, ways: socket.socket) -> None:
        self._own = own
        self._told = ToldSegments(ways)

    def send(self, channel: Channel, message: Message) -> None:
        """Put an answer into its channel and tell so."""
        _, bodies, size = message
        place = self._own.written(bodies, size, SERVER) if size >= PLACED_BYTES_MIN else None
        if place is not None:
            self._told.tell([place[0]], self._own)
        channel.answer.write(message, place=place)
        channel.answer.at = 0
        os.eventfd_write(channel.answered, 1)


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
    threading.Thread(target=die_with_the_server, args=(told["lifeline"],), daemon=True).start()
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
    ways = socket.socket(fileno=told["ways"])
    own = SharedSegments(ANSWERS_BYTES_MAX)
    serve(Desk(MappedSegments(ways), own, told["step_ns_max"]), channels, poller.poll, Answers(own, ways))


if __name__ == "__main__":
    main()
