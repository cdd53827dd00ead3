"""Orders whose operators run in other processes: all that can be done there at once goes there together.

An order is cut into pieces, each a chain or one operator. Pieces whose inputs no earlier piece is about to change are begun, their calls
go to the process in one message, and what comes back is appended as the executor does it. What depends on that goes next, in the same way;
so an order takes as many messages as its queries have operators one behind the other, sinks and chains aside. Inputs go there in parts,
as they lie: they are joined by whoever computes with them.

Left to the executor are operators of this process, those of which somebody here asks what reached them (late rows across inputs, receipts
of shed rows), and what turned out to be too much at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from millstream.engine.chains.fused import Begun, ChainCache, ChainOutcome, FusedChain
from millstream.engine.data import limits
from millstream.engine.data.allowance import CutAt, TooMuchAtOnce
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Train
from millstream.engine.data.work import Emission, Step
from millstream.engine.flow.running import (
    ALL_ROWS,
    CallElsewhere,
    DoneElsewhere,
    Elsewhere,
    Made,
    OperatorCall,
    Pending,
    RunningOperator,
    outcome,
    pass_to_sinks,
)
from millstream.engine.runtime.executor import StepCounts
from millstream.engine.runtime.network import Network
from millstream.engine.runtime.side_rows import pass_side_rows

Clock = Callable[[], int]
Came = DoneElsewhere | Exception | None


class Books(Protocol):
    """What the executor notes of an order."""

    clock_ns: Clock
    receipts: list[Any]
    emissions: list[Emission]

    def chain_done(self, chain: FusedChain, outcome: ChainOutcome, cost_ns: int, claimed: int) -> None:
        """A chain has run."""
        ...

    def failed(self, running: RunningOperator, error: Exception) -> None:
        """An operator has raised."""
        ...

    def left(self, sink: RunningOperator, train: Train) -> None:
        """Results have left."""
        ...

    def to_sinks(self, made: Made) -> Made:
        """Hand on what a shared aggregate has for sinks."""
        ...

    def run_here(self, steps: tuple[Step, ...]) -> None:
        """Run steps one after the other, as without other processes."""
        ...


@dataclass(slots=True, eq=False)
class Piece:
    """Steps that go together: those of a chain, or one."""

    steps: tuple[Step, ...]
    chain: FusedChain | None
    operators: list[RunningOperator]
    is_left: bool = False  # to the executor


@dataclass(slots=True, eq=False)
class UnderWay:
    """A piece of which the other process has the call."""

    piece: Piece
    call: CallElsewhere
    begun: Begun | OperatorCall


class _Begun:
    """Calls that a process is at work on, unless they failed at once."""

    def __init__(self, pending: Pending[list[Came]], calls: int) -> None:
        self._pending, self._calls = pending, calls
        self._found: list[Came] | None = None
        try:
            next(pending)
        except StopIteration as done:
            self._found = done.value
        except Exception as error:
            self._found = [error] * calls

    def outcome(self) -> list[Came]:
        """Return what came of each."""
        if self._found is not None:
            return self._found
        try:
            return outcome(self._pending)
        except Exception as error:
            return [error] * self._calls


class Crossing:
    """One order."""

    def __init__(self, network: Network, chains: ChainCache, books: Books) -> None:
        self._network = network
        self._chains = chains
        self._books = books

    def run(self, steps: tuple[Step, ...], budget_ns: int | None) -> tuple[Step, ...]:
        """Run an order's steps; return those that were not done as it took too long."""
        pieces = list(self._pieces(steps))
        late: list[Piece] = []
        while pieces:
            under_way, pieces = self._begin(pieces)
            if under_way:
                late += self._exchange(under_way, budget_ns)
                pieces = [*[way.piece for way in under_way if way.piece.is_left], *pieces]
            ready, pieces = self._here(pieces, late)
            for piece in ready:
                self._books.run_here(piece.steps)
            if not under_way and not ready:
                break
        return tuple(step for piece in [*late, *pieces] for step in piece.steps)

    def _pieces(self, steps: tuple[Step, ...]) -> Iterator[Piece]:
        at, operators = 0, self._network.operators
        while at < len(steps):
            chain = self._chains.find(steps, at)
            length = 1 if chain is None else chain.length
            some = steps[at : at + length]
            found = [operators.get(step.operator) for step in some]
            yield Piece(some, chain, [one for one in found if one is not None], is_left=None in found)
            at += length

    # --- what goes there ---

    def _begin(self, pieces: Sequence[Piece]) -> tuple[list[UnderWay], list[Piece]]:
        """Begin what can go now; return that, and the pieces that cannot."""
        under_way: list[UnderWay] = []
        left: list[Piece] = []
        changing, busy = set[int](), set[OperatorId]()
        for piece in pieces:
            begun = None
            if not piece.is_left and _is_apart(piece, changing, busy):
                if piece.chain is not None and piece.chain.has_nothing:
                    self._books.receipts.extend(piece.chain.nothing_done)
                    continue
                begun = _begun(piece)
                piece.is_left = begun is None
            if begun is None:
                left.append(piece)
            else:
                under_way.append(begun)
            for running in piece.operators:
                busy.add(running.id)
                changing.update(id(log) for log in running.outputs)
        return under_way, left

    def _exchange(self, under_way: Sequence[UnderWay], budget_ns: int | None) -> list[Piece]:
        """Have calls done, in all processes at once, and finish them; return the pieces that were not begun there."""
        by_place: dict[int, tuple[Elsewhere, list[UnderWay]]] = {}
        for way in under_way:
            there = way.call.operators[-1].elsewhere
            assert there is not None
            by_place.setdefault(there.place.number, (there, []))[1].append(way)
        begun = [
            (ways, _Begun(there.do([way.call for way in ways], budget_ns), len(ways)))
            for _, (there, ways) in sorted(by_place.items(), key=lambda one: one[0])
        ]
        late: list[Piece] = []
        for ways, one_place in reversed(begun):  # who must ask again, as the process has ended, holds only ways to those before it
            for way, one in zip(ways, one_place.outcome(), strict=True):
                if one is None:
                    self._undo(way)
                    late.append(way.piece)
                else:
                    self._finish(way, one)
        return late

    def _undo(self, way: UnderWay) -> None:
        if isinstance(way.begun, OperatorCall):
            way.piece.operators[0].undo(way.begun)
        elif way.piece.chain is not None:
            way.piece.chain.undo(way.begun)

    def _finish(self, way: UnderWay, done: DoneElsewhere | Exception) -> None:
        last = way.piece.operators[-1]
        is_again = isinstance(done, CutAt) or (isinstance(done, TooMuchAtOnce) and not last.logic.stateful)
        if is_again:  # by themselves the operators can cut it
            self._undo(way)
            way.piece.is_left = True
            return
        if not isinstance(done, Exception) and done.cut is not None:
            self._cut(way, done.cut)
            way.piece.is_left = done.error is None
        if isinstance(way.begun, Begun):
            self._finish_chain(way, way.begun, done)
        elif isinstance(done, Exception):
            self._books.failed(last, done)
        else:
            self._finish_call(last, way.begun, done)
        if not isinstance(done, Exception) and done.error is not None:
            self._books.failed(last, done.error)

    def _cut(self, way: UnderWay, seq: int) -> None:
        if isinstance(way.begun, OperatorCall):
            way.piece.operators[0].cut(way.begun, seq)
        elif way.piece.chain is not None:
            way.piece.chain.cut(way.begun, seq)

    def _finish_chain(self, way: UnderWay, begun: Begun, done: DoneElsewhere | Exception) -> None:
        chain, books = way.piece.chain, self._books
        assert chain is not None
        if isinstance(done, Exception):
            chain.abandon()
            books.failed(way.piece.operators[-1], done)
            return
        chain.runs += 1
        try:
            outcome = chain.finish(begun, done, books.to_sinks if chain.is_sparse else None)
        except Exception as error:
            books.failed(way.piece.operators[-1], error)
        else:
            books.chain_done(chain, outcome, done.cost_ns, done.claimed)

    def _finish_call(self, running: RunningOperator, call: OperatorCall, done: DoneElsewhere) -> None:
        counts, books, out = StepCounts(running), self._books, done.out
        made = done.made_by(running)
        counts.taken(call)
        if out.has_side_rows:
            pass_side_rows(self._network, running, out)
        if running.logic.sparse:
            made = pass_to_sinks(made, counts.passed(books.left), books.failed)
        counts.produced(running.finish(call, made))
        running.unseen_bytes += done.claimed + sum(taken.bytes for taken in call.taken)
        if running.unseen_bytes >= limits.CLAIM_BYTES_MIN:
            self._network.memory.passed(running)
        running.counted.add(counts.rows_in, counts.rows_out, done.cost_ns)
        books.receipts.append(counts.receipt(done.cost_ns))

    # --- what is left to the executor ---

    def _here(self, pieces: Sequence[Piece], late: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
        """Return the pieces that the executor runs now, and those that wait for what goes there, or was too late to go."""
        ready: list[Piece] = []
        waiting: list[Piece] = []
        changing = {id(log) for piece in late for running in piece.operators for log in running.outputs}
        busy = {running.id for piece in late for running in piece.operators}
        goes = [piece for piece in pieces if _goes(piece)]
        for piece in pieces:
            if piece not in goes and _is_apart(piece, changing, busy):
                ready.append(piece)
                continue
            waiting.append(piece)
            for running in piece.operators:
                busy.add(running.id)
                changing.update(id(log) for log in running.outputs)
        return ready, waiting


def _is_apart(piece: Piece, changing: set[int], busy: set[OperatorId]) -> bool:
    """Whether no input is about to change, and no operator is at work."""
    for running in piece.operators:
        if running.id in busy:
            return False
        for cursor in running.inputs:
            if id(cursor.log) in changing:
                return False
    return True


def _goes(piece: Piece) -> bool:
    """Whether a piece can be done in another process in one call."""
    if piece.is_left:
        return False
    if piece.chain is not None:
        return piece.chain.goes_there
    running = piece.operators[0]
    return running.elsewhere is not None and not (running.failed or running.watched or running.keeper is not None)


def _begun(piece: Piece) -> UnderWay | None:
    """Take what a piece works on; None where it is left to the executor."""
    if not _goes(piece):
        return None
    rows_max = piece.steps[0].rows_max
    if any(step.rows_max is not None and (rows_max is None or step.rows_max < rows_max) for step in piece.steps):
        return None
    in_parts = len(piece.operators[0].inputs) == 1  # several inputs are one call, as they are joined there
    rows = min(ALL_ROWS if rows_max is None else rows_max, limits.CROSSING_ROWS_MAX if in_parts else limits.TRAIN_ROWS_MAX)
    if piece.chain is not None:
        begun = piece.chain.begin(rows) if piece.chain.is_due_to_fuse else None
        return None if begun is None else UnderWay(piece, begun.call, begun)
    running = piece.operators[0]
    call = running.begin(rows, in_parts=True)
    if call is None:
        return None
    inputs = [taken.parts or (taken.train,) for taken in call.taken]
    size = sum(taken.bytes for taken in call.taken)
    return UnderWay(piece, CallElsewhere([running], False, inputs, size, running.bytes_left), call)
