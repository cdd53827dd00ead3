"""What a worker does: operators' logic and state, one call after the other. A request is

    [drops, forgotten, released, trains, calls, budget_ns]

the keys of operators that are wanted no longer; the numbers of trains that nobody will name again; what the server has let go of in this
process's segments; `[number, train]` of new trains; and what is to be done, one after the other, as long as the budget lasts. Of each call:
`[key, what it is, state]` of operators that are new, and

    ["run", keys, whether they run as one chain, inputs, outputs, bytes left, name of that bound, what to tell, whether nobody wants
     what comes of it]
    ["snapshot", key]
    ["nothing"]

An input is a list of trains that follow one another, each by its number or as it is. One input is worked on in these parts (small ones are
joined), several are joined first. To a run the answer is

    ["done", rows out of each selection and projection, trains, side rows, when to wake, held, state, cut, failure]

`cut` is the arrival number before which the parts lie that were done, None for all; `failure` what the next one raised. What the server
asks to build may be a pickle, as it started this process; what is answered is none.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from millstream.engine.chains.fused_program import FusedProgram, can_fuse
from millstream.engine.data import limits
from millstream.engine.data.allowance import Allowance, CutAt, TooMuchAtOnce, give, unbounded
from millstream.engine.data.errors import EngineError
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train, concat_trains
from millstream.engine.language.recipes import Recipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.server.workers.channel import MESSAGE_BYTES_MAX, Message
from millstream.server.workers.segments import MappedSegments, SharedSegments
from millstream.server.workers.wire import TELL_HELD, TELL_STATE, Reader, Writer

SERVER = 0  # the reader of this process's segments
ANSWER_BYTES_MAX = 64 * 1024 * 1024  # then the calls behind it wait for another one


@dataclass(slots=True)
class Built:
    """One operator at work."""

    recipe: Recipe
    inputs: tuple[Schema, ...]
    logic: Operator


class Trains:
    """Trains that have a number: several operators take the same ones, and each is read once."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[Reader, list[Any]]] = {}
        self._read: dict[int, Train] = {}

    def take(self, reader: Reader, trains: Sequence[tuple[int, list[Any]]]) -> None:
        """Take in new ones."""
        for number, told in trains:
            self._told[number] = reader, told

    def forget(self, numbers: Sequence[int]) -> None:
        """Let go of some."""
        for number in numbers:
            self._told.pop(number, None)
            self._read.pop(number, None)

    def parts(self, reader: Reader, told: Sequence[Any], schema: Schema) -> list[Train]:
        """Return the parts of an input."""
        return [self._one(reader, part, schema) for part in told]

    def _one(self, reader: Reader, part: Any, schema: Schema) -> Train:
        if type(part) is not int:
            return reader.train(part, schema, (NOT_HERE,))
        found = self._read.get(part)
        if found is None:
            of, told = self._told.pop(part)
            found = self._read[part] = of.train(told, schema, (NOT_HERE,))
        return found


def queued(parts: Sequence[Train]) -> list[Train]:
    """Return the parts of an input, of which small ones are joined as a queue of this process would."""
    found: list[list[Train]] = []
    rows = 0
    for train in parts:
        if found and rows + train.rows <= limits.JOINED_ROWS_MAX:
            found[-1].append(train)
            rows += train.rows
        else:
            found.append([train])
            rows = train.rows
    return [concat_trains(trains) for trains in found]


@dataclass(slots=True, eq=False)
class Run:
    """A run under way: what was put out so far, in order, and how many bytes were claimed."""

    outputs: int
    side: Emitter
    counts: list[int] = field(default_factory=list)
    left: list[Train] = field(default_factory=list)  # what left a chain of selections and projections alone
    made: list[tuple[int, Train]] = field(default_factory=list)
    claimed: int = 0

    def took(self, out: Emitter, counts: list[int]) -> None:
        """Add what one part has made."""
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)] if self.counts else counts
        self.side.take_side_rows(out)
        for port in out.ports:
            train = out.trains[port]
            assert train is not None
            self.made.append((port, train))

    def joined(self) -> list[tuple[int, Train]]:
        """Return what was put out, by output: what follows on one another as one train."""
        found: dict[int, list[list[Train]]] = {}
        for port, train in self.made:
            groups = found.setdefault(port, [])
            if groups and groups[-1][-1].hi == train.lo and not groups[-1][-1].is_mark:
                groups[-1].append(train)
            else:
                groups.append([train])
        return [(port, concat_trains(trains)) for port, groups in found.items() for trains in groups]


class Desk:
    """Answers requests."""

    def __init__(self, segments: MappedSegments, own: SharedSegments, step_ns_max: int) -> None:
        self._segments = segments
        self._own = own
        self._told: dict[int, tuple[Reader, int, int | None]] = {}  # of operators that no call has needed yet: what they are, their state
        self._operators: dict[int, Built] = {}
        self._programs: dict[tuple[int, ...], FusedProgram] = {}
        self._trains = Trains()
        self._schemas: dict[Schema, Schema] = {}
        self._began_ns = 0  # when the call under way began with its rows
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
            self._told.pop(key, None)
            self._operators.pop(key, None)
        if drops:
            gone = set(drops)
            self._programs = {keys: p for keys, p in self._programs.items() if gone.isdisjoint(keys)}
        self._trains.take(request, trains)
        for installs, _ in calls:  # those of calls that are put off, too: of each is told once
            self._told.update({key: (request, about, state) for key, about, state in installs})
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
            now_ns = time.perf_counter_ns()
            answers.append([told, now_ns - self._began_ns, self._allowance.claimed])
        self._trains.forget(forgotten)
        return writer.parts([answers, self._segments.take_released()])

    def _answered(self, request: Reader, writer: Writer, installs: Sequence[Any], call: list[Any]) -> list[Any]:
        self._allowance.claimed, self._began_ns = 0, time.perf_counter_ns()
        try:
            return self._done(request, writer, installs, call)
        except Exception as error:
            return _told(error)

    def _done(self, request: Reader, writer: Writer, installs: Sequence[Any], call: list[Any]) -> list[Any]:
        for key, *_ in installs:
            self._operator(key)
        if call[0] == "run":
            return self._run(request, writer, *call[1:])
        if call[0] == "snapshot":
            return ["state", writer.bytes(self._operator(call[1]).logic.snapshot())]
        return ["nothing"]

    def _operator(self, key: int) -> Built:
        """Return an operator, built when it is first wanted. What building it raises is raised to each call that wants it."""
        if key in self._told:
            of, about, state = self._told[key]
            self._operators[key] = self._built(of.bytes(about), None if state is None else of.bytes(state))
            del self._told[key]
        return self._operators[key]

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
        operators = [self._operator(key) for key in keys]
        last = operators[-1]
        program = self._program(tuple(keys), operators) if is_chain else None
        self._began_ns = time.perf_counter_ns()  # what a first call builds, and the code that this loads, is no row's cost
        came = [self._trains.parts(request, parts, schema) for parts, schema in zip(told, operators[0].inputs, strict=True)]
        writer.tracks = {id(train.track): (port, part) for port, parts in enumerate(came) for part, train in enumerate(parts)}
        inputs = [queued(parts) for parts in came]
        tail = None if is_chain and can_fuse(last.recipe) else last.logic
        allowance, run = self._allowance, Run(outputs, Emitter(outputs))
        allowance.left = unbounded if left < 0 else lambda: (left, bound)
        allowance.active = True
        cut: int | None = None
        failure: list[Any] | None = None
        try:
            with np.errstate(all="ignore"):
                pieces = [[part] for part in inputs[0]] if len(inputs) == 1 else [[concat_trains(parts) for parts in inputs]]
                for number, piece in enumerate(pieces):
                    try:
                        self._work(run, program, tail, piece)
                    except Exception as error:
                        if not number:
                            raise
                        cut, failure = piece[0].lo, None if _is_again(error, tail) else _told(error)
                        break
        finally:
            allowance.active, allowance.left, allowance.claimed = False, unbounded, run.claimed
        if discarded:
            return ["nothing"]
        if tail is None:
            made: list[Any] = writer.rows(run.left)
        else:
            made = [[port, writer.train(train)] for port, train in run.joined()]
        side = _side_rows(run.side, last.inputs, writer) if run.side.has_side_rows else None
        held = [last.logic.state_rows(), last.logic.state_bytes()] if telling & TELL_HELD else None
        state = writer.bytes(last.logic.snapshot()) if telling & TELL_STATE else None
        return ["done", run.counts, made, side, last.logic.wake_at_us(), held, state, cut, failure]

    def _work(self, run: Run, program: FusedProgram | None, tail: Operator | None, inputs: list[Train]) -> None:
        """Do one part. CutAt, or TooMuchAtOnce of an operator without state, where nothing has come of it."""
        allowance = self._allowance
        allowance.claimed = 0
        allowance.start()
        counts: list[int] = []
        try:
            if program is not None:
                try:
                    train, counts = program.run(inputs[0])
                except TooMuchAtOnce as error:
                    raise CutAt(0) from error  # by themselves the operators can cut it
                if tail is None:
                    run.left.append(train)
                    run.took(Emitter(0), counts)
                    return
                inputs = [train]
            assert tail is not None
            out = Emitter(run.outputs)
            try:
                tail.process(inputs, out)
            except TooMuchAtOnce as error:
                if program is not None and not tail.stateful:
                    raise CutAt(0) from error
                raise
            run.took(out, counts)
        finally:
            run.claimed += allowance.claimed

    def _program(self, keys: tuple[int, ...], operators: Sequence[Built]) -> FusedProgram:
        program = self._programs.get(keys)
        if program is None:
            working = operators if can_fuse(operators[-1].recipe) else operators[:-1]
            program = self._programs[keys] = FusedProgram([o.recipe for o in working], operators[0].inputs[0])
        return program

    def _built(self, about: memoryview, state: memoryview | None) -> Built:
        from millstream.engine.operators.build import build_operator
        from millstream.engine.synopses.shared_aggregate import SharedAggregate
        from millstream.engine.windows.pane_aggregates import Aggregates

        recipe, schemas, is_shared = pickle.loads(about)
        schemas = tuple(self._schemas.setdefault(schema, schema) for schema in schemas)  # so that trains of one log are read once
        if is_shared:
            Aggregates(recipe.aggregates, schemas[0])  # loads what the state is made of
        logic: Operator = SharedAggregate(recipe, schemas[0]) if is_shared else build_operator(recipe, list(schemas))
        if state is not None:
            logic.restore(bytes(state))
        return Built(recipe, schemas, logic)


def _told(error: Exception) -> list[Any]:
    if isinstance(error, CutAt):
        return ["cut", error.seq]
    if isinstance(error, EngineError):
        return ["error", "again" if isinstance(error, TooMuchAtOnce) else error.code, error.message, error.hint]
    if isinstance(error, MemoryError):
        return ["error", "memory", "", None]
    return ["error", "", f"{type(error).__name__}: {error}", None]


def _is_again(error: Exception, tail: Operator | None) -> bool:
    """Whether nothing has come of a part, and with fewer rows something may."""
    return isinstance(error, CutAt) or (isinstance(error, TooMuchAtOnce) and (tail is None or not tail.stateful))


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
