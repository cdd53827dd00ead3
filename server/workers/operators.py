"""An operator that runs in a worker, as the server's network sees it (`Elsewhere`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from millstream.engine.data import limits
from millstream.engine.data.allowance import own, unbounded
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Train
from millstream.engine.flow.running import CallElsewhere, DoneElsewhere, Pending, RunningOperator
from millstream.engine.operators.contract import Emitter, EvaluationErrors
from millstream.engine.state.forms import Buffer
from millstream.server.workers.process import Answer, Asked, Installed, KeptCall, Telling, Worker
from millstream.server.workers.wire import TELL_HELD, TELL_STATE, Inputs, Reader, Writer

KEPT_BYTES_MIN = 16 * 1024 * 1024  # of input since the last snapshot, before another one is made
KEPT_BYTES_MAX = 256 * 1024 * 1024
KEPT_CALLS_MAX = 4_096
SNAPSHOT_ASIDE_BYTES = 8 * 1024 * 1024  # a larger one is asked for by itself
SNAPSHOTS_WORTH = 4  # times the bytes of the last snapshot: making them is paid by as many bytes
NO_BOUND = -1, ""
_keys = count(1)


Part = tuple[int, int, int] | None
"""Which split of its query an operator belongs to, and which part of how many it is; None: it is not split."""


class Placed:
    """See `Elsewhere`. `why` says why it is in that worker, which may be another one after a move."""

    def __init__(self, worker: Worker, running: RunningOperator, about: bytes, state: Buffer, why: str, part: Part = None) -> None:
        self.worker = worker
        self.why = why
        self.part = part
        self._running = running
        self._about = about
        self.installed = Installed(next(_keys), about, state)
        worker.operators[self.installed.key] = self.installed
        self._held = running.logic.state_rows(), running.logic.state_bytes()
        self._wake_us = running.logic.wake_at_us()
        self._unasked = limits.CLAIM_BYTES_MIN  # bytes since it was asked what it holds

    @property
    def place(self) -> Worker:
        """The worker."""
        return self.worker

    def do(self, calls: Sequence[CallElsewhere], budget_ns: int | None) -> Pending[list[DoneElsewhere | Exception | None]]:
        """Have the worker do calls of operators that it has."""
        under_way = [_under_way(call) for call in calls]
        began_ns = time.perf_counter_ns()
        answers = yield from self.worker.ask_all([one.asked for one in under_way], budget_ns)
        allowance = own()
        if allowance is not None:
            at_work_ns = sum(answer.cost_ns for answer in answers if isinstance(answer, Answer))
            allowance.waited_ns += max(0, time.perf_counter_ns() - began_ns - at_work_ns)
        return [
            answer if isinstance(answer, Exception | None) else one.done(answer) for one, answer in zip(under_way, answers, strict=True)
        ]

    def snapshot(self) -> Buffer:
        """Ask the worker for it; where it has done nothing since the last one that is still it."""
        if not self._running.logic.state_fields:
            return b""
        if self.installed.kept or self.installed.lost is not None:
            self._stand()
        found: Buffer = self.installed.snapshot or self._running.logic.snapshot()
        return found

    def take_up(self, state: Buffer) -> None:
        """Have the worker begin with this."""
        self.installed.stand(bytes(state))
        self.installed.at = 0

    def held(self) -> tuple[int, int]:
        """Return what the worker told last."""
        return self._held

    def wake_at_us(self) -> int | None:
        """Return what the worker told last."""
        return self._wake_us

    def leave(self) -> None:
        """Let the worker forget it."""
        self.worker.drop(self.installed)

    def move(self, worker: Worker, why: str) -> None:
        """Go on in another worker, with the state as it is; no call may be under way. Raises what `snapshot` raises, and stays then."""
        state = self.snapshot()
        self.worker.drop(self.installed)
        self.worker, self.why = worker, why
        self.installed = Installed(next(_keys), self._about, state)
        worker.operators[self.installed.key] = self.installed

    # --- calls ---

    def note(self, answer: Answer, done: UnderWay) -> None:
        """Note what the worker told of the operator after a call, and that it has seen the call."""
        told = answer.told
        self._wake_us = told[4]
        self._unasked += done.size
        if told[5] is not None:
            self._held, self._unasked = (told[5][0], told[5][1]), 0
        if not self._running.logic.stateful:
            return
        one = self.installed
        if told[6] is not None:
            self.worker.stand(one, bytes(answer.reader.bytes(told[6])), answer)
            return
        self.worker.keep(one, KeptCall(done.asked.operators, done.asked.compose, done.size), answer)
        if len(one.snapshot or b"") > SNAPSHOT_ASIDE_BYTES and self.is_due_to_stand:
            self._stand()

    def telling(self, size: int) -> int:
        """Return what the worker is to tell after a call with so much input: what the operator holds, and its state."""
        tell_held = TELL_HELD if self._unasked + size >= limits.CLAIM_BYTES_MIN else 0
        is_small = len(self.installed.snapshot or b"") <= SNAPSHOT_ASIDE_BYTES
        return tell_held | (TELL_STATE if is_small and self._running.logic.stateful and self.is_due_to_stand else 0)

    @property
    def is_due_to_stand(self) -> bool:
        """Whether so much is kept that a snapshot is made."""
        one = self.installed
        most = min(KEPT_BYTES_MAX, max(KEPT_BYTES_MIN, SNAPSHOTS_WORTH * len(one.snapshot or b"")))
        return one.kept_bytes > most or len(one.kept) > KEPT_CALLS_MAX

    def _stand(self) -> None:
        """Make a snapshot the one to go on from."""
        key = self.installed.key
        answer = self.worker.ask((self.installed,), lambda writer, telling: ["snapshot", key])
        self.worker.stand(self.installed, bytes(answer.reader.bytes(answer.told[1])), answer)


@dataclass(slots=True, eq=False)
class UnderWay:
    """A call that a worker is asked."""

    call: CallElsewhere
    asked: Asked
    size: int

    def done(self, answer: Answer) -> DoneElsewhere:
        """Return what came of it."""
        last = self.call.operators[-1]
        there = last.elsewhere
        assert isinstance(there, Placed)
        reader, (_, counts, made, side, *_, cut, failure) = answer.reader, answer.told
        call = self.call if cut is None else self.call.upto(cut)
        there.note(answer, self if cut is None else _under_way(call))
        origin = tuple({id(o): o for parts in call.inputs for train in parts for o in train.origin}.values())
        error = None if failure is None else there.worker.error(failure)
        found = DoneElsewhere(Emitter(len(last.outputs)), [], None, counts, answer.cost_ns, answer.claimed, cut, error)
        if call.is_chain and len(counts) == len(call.operators):
            found.train = reader.rows(made, last.outputs[0].schema, call.inputs[0], origin)
            return found
        found.made = [(port, reader.train(told, last.outputs[port].schema, origin, self.call.inputs)) for port, told in made]
        if side is not None:
            _side_rows(reader, side, self.call.inputs, origin, found.out)
        return found


def _under_way(call: CallElsewhere) -> UnderWay:
    placed = [operator.elsewhere for operator in call.operators]
    installed = tuple(one.installed for one in placed if isinstance(one, Placed))
    last = placed[-1]
    assert isinstance(last, Placed)
    left, bound = NO_BOUND if call.left is unbounded else call.left()
    size = call.bytes
    keys, inputs, is_chain, outputs = [one.key for one in installed], call.inputs, call.is_chain, len(call.operators[-1].outputs)
    what = last.telling(size)

    def compose(writer: Writer, telling: Telling, discarded: bool = False) -> list[Any]:
        told = [[telling.train(writer, train) for train in parts] for parts in inputs]
        if discarded:
            return ["run", keys, is_chain, told, outputs, *NO_BOUND, 0, True]
        return ["run", keys, is_chain, told, outputs, left, bound, what, False]

    return UnderWay(call, Asked(installed, compose), size)


def _side_rows(reader: Reader, side: list[Any], inputs: Inputs, origin: tuple[Train, ...], out: Emitter) -> None:
    def rows(told: Any) -> Any:
        if told is None:
            return None
        known, schema, train = told
        return reader.train(train, inputs[known][-1].schema if known is not None else reader.schema(schema), origin, inputs)

    late, partly, errors, of_outputs = side
    out.late += [(port, rows(train)) for port, train in late]
    out.partly_late += [(port, reader.array(seqs)) for port, seqs in partly]
    out.errors += [EvaluationErrors(reason, rows(train)) for reason, train in errors]
    out.late_of_output += [(output, rows(train), reader.array(seqs)) for output, train, seqs in of_outputs]
