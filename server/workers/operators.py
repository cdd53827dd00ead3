"""An operator that runs in a worker, as the server's network sees it (`Elsewhere`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from millstream.engine.data import limits
from millstream.engine.data.allowance import own
from millstream.engine.data.train import Train
from millstream.engine.flow.running import Elsewhere, RunningOperator
from millstream.engine.operators.contract import Emitter, EvaluationErrors
from millstream.engine.state.forms import Buffer
from millstream.server.workers.process import Answer, Installed, KeptCall, Worker
from millstream.server.workers.wire import Reader, Writer

KEPT_BYTES_MIN = 16 * 1024 * 1024  # of input since the last snapshot, before another one is made
KEPT_BYTES_MAX = 256 * 1024 * 1024
KEPT_CALLS_MAX = 4_096
SNAPSHOTS_WORTH = 4  # times the bytes of the last snapshot: making them is paid by as many bytes
NO_BOUND = -1, ""
_keys = count(1)


class Placed:
    """See `Elsewhere`. `why` says why it is in that worker."""

    def __init__(self, worker: Worker, running: RunningOperator, about: bytes, state: Buffer, why: str) -> None:
        self.worker = worker
        self.why = why
        self._running = running
        self.installed = Installed(next(_keys), about, state)
        worker.operators[self.installed.key] = self.installed
        self._held = running.logic.state_rows(), running.logic.state_bytes()
        self._wake_us = running.logic.wake_at_us()
        self._unasked = limits.CLAIM_BYTES_MIN  # bytes since it was asked what it holds

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Have the worker do it."""
        answer = self._run((self._running,), inputs, is_chain=False)
        self._emit(answer, inputs, out)

    def carry(self, operators: Sequence[RunningOperator], train: Train, out: Emitter) -> tuple[Train | None, list[int]]:
        """Have the worker do it."""
        answer = self._run(operators, (train,), is_chain=True)
        counts: list[int] = answer.told[1]
        if len(counts) < len(operators):
            self._emit(answer, (train,), out)
            return None, counts
        port, told = answer.told[2][0]
        return answer.reader.train(told, self._running.outputs[port].schema, train.origin), counts

    def is_beside(self, other: Elsewhere | None) -> bool:
        """Whether another operator is in the same worker."""
        return isinstance(other, Placed) and other.worker is self.worker

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

    # --- calls ---

    def _run(self, operators: Sequence[RunningOperator], inputs: Sequence[Train], *, is_chain: bool) -> Answer:
        placed = [o.elsewhere for o in operators]
        installed = tuple(p.installed for p in placed if isinstance(p, Placed))
        allowance = own()
        left, bound = NO_BOUND if allowance is None or not allowance.active else allowance.left()
        size = sum(t.nbytes() for t in inputs)
        self._unasked += size
        tell_held = self._unasked >= limits.CLAIM_BYTES_MIN
        compose = _composed([one.key for one in installed], is_chain, inputs, len(self._running.outputs), left, bound, tell_held)
        began_ns = time.perf_counter_ns()
        answer = self.worker.ask(installed, compose)
        if allowance is not None:
            allowance.claimed = answer.claimed
            allowance.waited_ns += max(0, time.perf_counter_ns() - began_ns - answer.cost_ns)
        self._wake_us = answer.told[4]
        if answer.told[5] is not None:
            self._held, self._unasked = (answer.told[5][0], answer.told[5][1]), 0
        if self._running.logic.stateful:
            self._keep(KeptCall(installed, compose, size))
        return answer

    def _keep(self, call: KeptCall) -> None:
        one = self.installed
        one.keep(call)
        most = min(KEPT_BYTES_MAX, max(KEPT_BYTES_MIN, SNAPSHOTS_WORTH * len(one.snapshot or b"")))
        if one.kept_bytes > most or len(one.kept) > KEPT_CALLS_MAX:
            self._stand()

    def _stand(self) -> None:
        """Make a snapshot the one to go on from."""
        key = self.installed.key
        answer = self.worker.ask((self.installed,), lambda writer: ["snapshot", key])
        self.installed.stand(bytes(answer.reader.bytes(answer.told[1])))

    def _emit(self, answer: Answer, inputs: Sequence[Train], out: Emitter) -> None:
        reader, (_, _, made, side, _, _) = answer.reader, answer.told
        origin = inputs[0].origin if len(inputs) == 1 else tuple({id(o): o for t in inputs for o in t.origin}.values())
        for port, told in made:
            out.emit(reader.train(told, self._running.outputs[port].schema, origin), port)
        if side is not None:
            _side_rows(reader, side, inputs, origin, out)


def _composed(
    keys: list[int], is_chain: bool, inputs: Sequence[Train], outputs: int, left: int, bound: str, tell_held: bool
) -> Callable[..., list[Any]]:
    """Return what writes a call, now or again."""

    def compose(writer: Writer, discarded: bool = False) -> list[Any]:
        told = [writer.train(train) for train in inputs]
        if discarded:
            return ["run", keys, is_chain, told, outputs, *NO_BOUND, False, True]
        return ["run", keys, is_chain, told, outputs, left, bound, tell_held, False]

    return compose


def _side_rows(reader: Reader, side: list[Any], inputs: Sequence[Train], origin: tuple[Train, ...], out: Emitter) -> None:
    def rows(told: Any) -> Any:
        if told is None:
            return None
        known, schema, train = told
        return reader.train(train, inputs[known].schema if known is not None else reader.schema(schema), origin)

    late, partly, errors, of_outputs = side
    out.late += [(port, rows(train)) for port, train in late]
    out.partly_late += [(port, reader.array(seqs)) for port, seqs in partly]
    out.errors += [EvaluationErrors(reason, rows(train)) for reason, train in errors]
    out.late_of_output += [(output, rows(train), reader.array(seqs)) for output, train, seqs in of_outputs]
