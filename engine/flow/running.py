"""A running operator: the logic with its input cursors, its output logs, and the order in which its calls take effect.

Taking input and handing out a ticket is one atomic act, and output is pushed in the order of the tickets; so a stateless operator
may work on two trains at once and its log still grows in order. Nobody waits: a call that finishes early leaves its output for
the call before it to push.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeVar

from millstream.engine.data.allowance import BytesLeft, own, unbounded
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Train
from millstream.engine.flow.cursors import Cursor, LogNode, Place, Portion
from millstream.engine.flow.frontier import edge_frontier, interval_end
from millstream.engine.flow.queues import OutputLog
from millstream.engine.language.recipes import Recipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.receipts.keepers import Keeper
from millstream.engine.state.forms import Buffer


class Settling(Protocol):
    """What runs an operator along with others, and tells it later what it did there (chains/fused.py)."""

    def settle(self) -> None:
        """Count what was done in the statistics of all of them."""

    def dissolve(self) -> None:
        """Let go of the state of all: one of them was taken out, so this will not run again."""


@dataclass(slots=True)
class CallElsewhere:
    """A call of an operator in another process, or of a chain of which all are there. `inputs` are the trains of each input, to be joined.

    `bytes` is about what these occupy. `left` tells what the call may still make, as `Allowance.left` does.
    """

    operators: Sequence[RunningOperator]
    is_chain: bool
    inputs: Sequence[tuple[Train, ...]]
    bytes: int
    left: BytesLeft

    def upto(self, seq: int) -> CallElsewhere:
        """Return the call of the parts of its one input that lie before an arrival number."""
        (parts,) = self.inputs
        done = tuple(part for part in parts if part.hi <= seq)
        return CallElsewhere(self.operators, self.is_chain, [done], self.bytes * len(done) // len(parts), self.left)


@dataclass(slots=True)
class DoneElsewhere:
    """What came of a call.

    Of a chain: the rows that left each selection and projection, and their train if no other operator is behind them. What an operator of
    another kind put out: side rows in `out`, and `made`, trains by output port, in order. `cost_ns` is the time that it was at work,
    `claimed` the bytes that it made. `cut`: only what lies before this arrival number was done, as what follows raised `error`, or was too
    much at once (None) and nothing has come of it.
    """

    out: Emitter
    made: list[tuple[int, Train]]
    train: Train | None
    counts: list[int]
    cost_ns: int
    claimed: int
    cut: int | None = None
    error: Exception | None = None

    def made_by(self, running: RunningOperator) -> Made:
        """Return what an operator put out, by log."""
        return [(running.outputs[port], train) for port, train in self.made]


Outcome = TypeVar("Outcome")
Pending = Generator[None, None, Outcome]
"""What is done in another process: begun by the first `next`, which pauses when that is at work; later ones wait for it."""


def outcome(pending: Pending[Outcome]) -> Outcome:
    """Wait for what another process does, begun or not; returns what came of it, and raises what it raised."""
    while True:
        try:
            next(pending)
        except StopIteration as done:
            found: Outcome = done.value
            return found


class WorkPlace(Protocol):
    """Another process: the same one for all operators that are together in it."""

    number: int


class Elsewhere(Protocol):
    """The logic of an operator at work in another process, which has its state."""

    @property
    def place(self) -> WorkPlace:
        """The process."""
        ...

    def do(self, calls: Sequence[CallElsewhere], budget_ns: int | None) -> Pending[list[DoneElsewhere | Exception | None]]:
        """Have calls of operators that are in this process done, one after the other; returns what came of each.

        It is to be brought to its end once it has begun. Whoever has several begin before that takes them by the places' numbers, and ends
        them in the reverse order: each has a way to its process to itself until it ends, and two who wait for each other's would wait for
        ever.

        What it waits beyond the calls' own time is noted in the thread's allowance: it is nobody's cost.

        That is an exception where the logic raised it, or the operator is lost: CutAt and TooMuchAtOnce where nothing has come of it. None
        where it was not begun, as those before it took longer than the budget.
        """
        ...

    def snapshot(self) -> Buffer:
        """Return the state, as `Operator.snapshot` does; no call may be under way."""
        ...

    def take_up(self, state: Buffer) -> None:
        """Hold what `snapshot` gave."""
        ...

    def held(self) -> tuple[int, int]:
        """Return the rows and bytes held, as they were after one of the last calls."""
        ...

    def wake_at_us(self) -> int | None:
        """Return what `Operator.wake_at_us` said after the last call."""
        ...

    def leave(self) -> None:
        """Let go of it."""
        ...


def done_elsewhere(call: CallElsewhere) -> DoneElsewhere:
    """Have one call done where its operators are; returns what came of it. Raises what the logic raises, or why it is lost."""
    there = call.operators[-1].elsewhere
    assert there is not None
    (done,) = outcome(there.do((call,), None))
    assert done is not None
    if isinstance(done, Exception):
        raise done
    allowance = own()
    if allowance is not None:
        allowance.claimed = done.claimed
    return done


Appended = tuple[OutputLog, LogNode]
ALL_ROWS = 1 << 62  # no limit; where an interval was chosen by row count already


@dataclass(slots=True)
class OperatorStatistics:
    """What an operator has done so far. `cost_ns` includes apportioned costs of fused runs."""

    calls: int = 0
    rows_in: int = 0
    rows_out: int = 0
    cost_ns: int = 0

    def add(self, rows_in: int, rows_out: int, cost_ns: int, calls: int = 1) -> None:
        """Count one call, or several together."""
        self.calls += calls
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.cost_ns += cost_ns


@dataclass(slots=True)
class OperatorCall:
    """One call under way: its ticket, what it took from each input, and where the inputs stood before."""

    ticket: int
    taken: list[Portion]
    places: list[Place]

    @property
    def rows(self) -> int:
        """Rows taken from all inputs."""
        return sum([t.rows for t in self.taken])


@dataclass(slots=True, eq=False)
class RunningOperator:
    """An operator in the network, with its cursors, logs and tickets.

    `queries` counts the queries it serves, `failed` is set once it raised, `held` while its query is paused.

     `external` are the cursors that read logs of streams, by the stream's name. `port_streams` names the streams behind each input; `raw`
    tells that its input rows still are the stream's rows, one by one. `watched` counts the queries that judge late rows across it
    (branches.py); for them calls are counted from before they take anything until they have been told. `keeper` states what part of the
    input its answers saw, where load may be shed (receipts/keepers.py). `state_bytes` is what its state was when it was last looked at,
    `unseen_bytes` what has passed it since, `bytes_left` tells what a call may still make (memory.py). `elsewhere` runs it where that is
    another process: `logic` then tells what it is, and nothing of its state.
    """

    id: OperatorId
    logic: Operator
    recipe: Recipe
    inputs: list[Cursor] = field(default_factory=list)
    outputs: list[OutputLog] = field(default_factory=list)
    port_streams: list[frozenset[str]] = field(default_factory=list)
    raw: bool = True
    queries: int = 1
    failed: bool = False
    held: bool = False
    counted: OperatorStatistics = field(default_factory=OperatorStatistics)
    chains: list[Settling] = field(default_factory=list)
    started: int = 0
    finished: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    external: list[tuple[str, Cursor]] = field(default_factory=list)
    watched: int = 0
    watch_begun: int = 0
    watch_done: int = 0
    keeper: Keeper | None = None
    unseen_bytes: int = 0
    state_bytes: int = 0
    bytes_left: BytesLeft = unbounded
    elsewhere: Elsewhere | None = None
    _early: dict[int, list[Appended]] = field(default_factory=dict)

    @property
    def statistics(self) -> OperatorStatistics:
        """What it has done so far, by itself and within fused chains."""
        for chain in self.chains:
            chain.settle()
        return self.counted

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Run the logic, wherever that is."""
        if self.elsewhere is None:
            self.logic.process(inputs, out)
            return
        done = done_elsewhere(
            CallElsewhere((self,), False, [(train,) for train in inputs], sum(t.nbytes() for t in inputs), bytes_left_now())
        )
        for port, train in done.made:
            out.emit(train, port)
        out.take_side_rows(done.out)

    def snapshot(self) -> Buffer:
        """Return a copy of the state (`Operator.snapshot`)."""
        return self.logic.snapshot() if self.elsewhere is None else self.elsewhere.snapshot()

    def restore(self, state: Buffer, fields: dict[str, Any] | None = None) -> None:
        """Take up a state; `fields` are what `Operator.read` made of it, if it was asked. Errors: those of `Operator.restore`."""
        found = self.logic.read(state) if fields is None else fields
        if self.elsewhere is None:
            self.logic.take_up(found)
        else:
            self.elsewhere.take_up(state)

    def come_home(self) -> None:
        """Bring the state back into this process, where it can be changed; it is idle."""
        there = self.elsewhere
        if there is not None:
            self.logic.restore(there.snapshot())
            there.leave()
            self.elsewhere = None

    def asked_bytes(self) -> int:
        """Return the bytes of its state. RuntimeError while another thread changes a dictionary of it."""
        return self.logic.state_bytes() if self.elsewhere is None else self.elsewhere.held()[1]

    def held_bytes(self) -> int:
        """Return the same, for whatever thread asks: what was last known while another changes it."""
        try:
            return self.asked_bytes()
        except RuntimeError:
            return self.state_bytes

    def held_rows(self) -> int | None:
        """Return the rows of its state, for whatever thread asks: None while another changes it."""
        try:
            return self.logic.state_rows() if self.elsewhere is None else self.elsewhere.held()[0]
        except RuntimeError:
            return None

    @property
    def may_wake(self) -> bool:
        """Whether it ever needs a clock tick."""
        return type(self.logic).wake_at_us is not Operator.wake_at_us

    def wake_at_us(self) -> int | None:
        """Return the processing time of the next clock tick that it needs, or None."""
        return self.logic.wake_at_us() if self.elsewhere is None else self.elsewhere.wake_at_us()

    def leave(self) -> None:
        """Let go of the state: it has been taken out, and serves nobody any more.

        Also of what leads back here: in a ring, all that it still knows would stay until the collector's next long look.
        """
        self.failed = True
        if self.elsewhere is not None:
            self.elsewhere.leave()
            self.elsewhere = None
        for chain in self.chains:
            chain.dissolve()
        self.logic = RemovedOperator(self.logic.schemas)
        self.state_bytes = 0
        self.bytes_left = unbounded
        for log in self.outputs:
            log.producer = log.sink = None
        for cursor in self.inputs:
            if cursor.log.sink is self:
                cursor.log.sink = None

    def watch(self, begun: int, done: int) -> None:
        """Count calls that are about to begin, and calls of which the watchers know."""
        if self.watched:
            with self.lock:
                self.watch_begun += begun
                self.watch_done += done

    def begin(self, rows_max: int, *, in_parts: bool = False) -> OperatorCall | None:
        """Take one interval of every input, at most `rows_max` rows in all. None when nothing can be taken.

        `in_parts`: what one input gives is left in parts (`Cursor.take_parts`).
        """
        with self.lock:
            # `started` moves before anything is taken: see the argument in frontier.py.
            self.started += 1
            places = [self.inputs[0].place()] if len(self.inputs) == 1 else [cursor.place() for cursor in self.inputs]
            taken = self._take(rows_max, in_parts)
            if taken is None:
                self.started -= 1
                return None
            return OperatorCall(self.started - 1, taken, places)

    def cut(self, call: OperatorCall, seq: int) -> None:
        """Put back what a call took from the arrival number `seq` on, as if it had not been taken; nobody has seen any of it."""
        with self.lock:
            for cursor, place in zip(self.inputs, call.places, strict=True):
                cursor.put_back(place)
            call.taken = [t for t in (cursor.take(ALL_ROWS, seq) for cursor in self.inputs) if t is not None]

    def undo(self, call: OperatorCall) -> None:
        """Put back what the call taken last took: nothing has come of it."""
        with self.lock:
            for cursor, place in zip(self.inputs, call.places, strict=True):
                cursor.put_back(place)
            self.started -= 1

    def _take(self, rows_max: int, in_parts: bool) -> list[Portion] | None:
        if len(self.inputs) == 1:
            one = self.inputs[0].take_parts(rows_max) if in_parts else self.inputs[0].take(rows_max)
            return None if one is None else [one]
        upto = interval_end(self.inputs, rows_max)
        if upto is None:
            return None
        return [t for t in (cursor.take(ALL_ROWS, upto) for cursor in self.inputs) if t is not None]

    def finish(self, call: OperatorCall, trains: list[tuple[OutputLog, Train]]) -> list[Appended]:
        """Push what the call emitted, at most one train per output, in ticket order; return what was or will be appended."""
        nodes = [(log, LogNode(train, log)) for log, train in trains]
        with self.lock:
            if call.ticket == self.finished and not self._early:
                _push(nodes)
                self.finished += 1
                return nodes
            self._early[call.ticket] = nodes
            while (ready := self._early.pop(self.finished, None)) is not None:
                _push(ready)
                self.finished += 1
        return nodes

    def frontier(self, log: OutputLog) -> int:
        """Return the seq below which nothing more can come into an output (the argument is in frontier.py)."""
        started = self.started
        if started != self.finished:
            return log.hi
        bound = min(edge_frontier(cursor) for cursor in self.inputs)
        if self.started != started:
            return log.hi
        return max(bound, log.hi)


def bytes_left_now() -> BytesLeft:
    """Return what tells how much the call under way on this thread may still make."""
    allowance = own()
    return unbounded if allowance is None or not allowance.active else allowance.left


class RemovedOperator(Operator):
    """What stands in the place of an operator that has been taken out: no state, and nothing is asked of it any more."""

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Nobody calls it."""
        raise AssertionError("an operator that has been taken out was run")


def emitted(running: RunningOperator, inputs: Sequence[Train], out: Emitter) -> list[tuple[OutputLog, Train]]:
    """Return what a call put out, by log. Only a sparse operator may leave outputs without a train."""
    if running.keeper is not None:
        running.keeper.mark(inputs, out)
    if running.logic.sparse:
        return [(running.outputs[port], train) for port in out.ports if (train := out.trains[port]) is not None]
    if len(out.trains) == 1 and (only := out.trains[0]) is not None:
        return [(running.outputs[0], only)]
    made = [(log, train) for log, train in zip(running.outputs, out.trains, strict=True) if train is not None]
    assert len(made) == len(out.trains), f"{type(running.logic).__name__} put nothing on an output"
    return made


def _push(nodes: list[Appended]) -> None:
    for log, node in nodes:
        log.push(node)


Made = list[tuple[OutputLog, Train]]
Left = Callable[[RunningOperator, Train], None]


def pass_to_sinks(made: Made, left: Left, failed: Callable[[RunningOperator, Exception], None]) -> Made:
    """Hand trains from a shared aggregate straight to the sinks that can take them. Returns the others, for their logs.

    Hundreds of queries' answers need no order each, where nothing stands in between: the sink reads the output alone, nothing waits before
    it, it is neither running nor held (PAUSE). What goes this way is in no log and so in no receipt but the aggregate's. `left` hears of
    each train with rows that left, `failed` of a sink that raised.
    """
    rest: Made = []
    nothing = Emitter(0)
    for log, train in made:
        sink = log.sink
        if not isinstance(sink, RunningOperator) or sink.held or len(log.cursors) != 1 or not sink.lock.acquire(blocking=False):
            rest.append((log, train))
            continue
        try:
            cursor = sink.inputs[0]
            if sink.failed or sink.started != sink.finished or cursor.is_pending:
                rest.append((log, train))
                continue
            try:
                sink.logic.process((train,), nothing)
            except Exception as error:
                failed(sink, error)
                continue
            log.bypass(cursor, train, train.rows)
            sink.counted.add(train.rows, 0, 0)
            if train.rows:
                left(sink, train)
        finally:
            sink.lock.release()
    return rest
