"""All counts the scheduler keeps: a struct of NumPy columns indexed by the network's slots.

Per log the rows and control items ever appended, per edge the rows ever consumed; what waits is the difference. Per operator the sums
over its input edges, because that is what decisions read. Single values are read and written through memory views of the same columns (a
third of the time of a NumPy scalar).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from millstream.engine.data.graph import EdgeId, GraphDelta, LogId, OperatorId, QueryId
from millstream.engine.data.work import Arrived, EdgeCount, EdgeStart, LogCount, StepReceipt
from millstream.scheduler.errors import LedgerError
from millstream.scheduler.limits import EDGE_ROWS_MAX, NEVER_NS
from millstream.scheduler.network import NetworkModel
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]

# Above so many readers one NumPy call is cheaper than a loop.
_VECTOR_READERS_MIN = 12

_LOG_COLUMNS = ("log_rows", "log_bytes", "log_controls")
_EDGE_COLUMNS = ("edge_consumed", "edge_start", "edge_rows", "edge_bytes", "edge_head_ns", "edge_fresh_ns", "edge_controls", "edge_full")
_OPERATOR_COLUMNS = ("rows", "head_ns", "controls", "timers", "busy", "halted", "stalled", "full_outputs", "newest_ns")
_NEVER_COLUMNS = ("edge_head_ns", "edge_fresh_ns", "head_ns")


def single_values(column: IntColumn) -> memoryview[int]:
    """Return a view of the same memory whose items are plain integers."""
    return memoryview(column)  # type: ignore[arg-type]


class Ledger:
    """Counts of the network. Changed only by `SchedulerCore.handle`.

    Operator columns: `rows` waiting, `head_ns` arrival of the oldest row at the head of an input, `controls` waiting items without
    rows, `timers` due, `busy` 1 while locked, `halted` 1 while paused, failed or leaving, `stalled` 1 when its last step took nothing of
    what waits (an input that waits for its partner), `full_outputs` readers of its logs that are over their bound,
    `newest_ns` arrival of the newest row.
    """

    log_rows: IntColumn
    log_bytes: IntColumn
    log_controls: IntColumn
    edge_consumed: IntColumn
    edge_start: IntColumn
    edge_rows: IntColumn
    edge_bytes: IntColumn
    edge_head_ns: IntColumn
    edge_fresh_ns: IntColumn
    edge_controls: IntColumn
    edge_full: IntColumn
    rows: IntColumn
    head_ns: IntColumn
    controls: IntColumn
    timers: IntColumn
    busy: IntColumn
    halted: IntColumn
    stalled: IntColumn
    full_outputs: IntColumn
    newest_ns: IntColumn

    def __init__(self, network: NetworkModel, *, edge_rows_max: int = EDGE_ROWS_MAX) -> None:
        self.network = network
        self.edge_rows_max = edge_rows_max
        self.touched: dict[int, None] = {}
        """Operators whose state changed since the units were last brought up to date."""
        self.stalled_count = 0
        self.full_count = 0
        self.halted_count = 0
        self.rows_discarded = 0
        self.timer_count = 0
        self.settle: Callable[[], None] = lambda: None
        """Brings up to date the sums that others keep back for a while (chain_accounts.py)."""
        self.bytes_total = 0
        """Bytes before all operators, as a running sum."""
        self._unread: dict[LogId, tuple[int, int]] = {}
        self._capacity = {"log": 0, "edge": 0, "operator": 0}
        self._grow("log", _LOG_COLUMNS, 16)
        self._grow("edge", _EDGE_COLUMNS, 16)
        self._grow("operator", _OPERATOR_COLUMNS, 16)

    def _grow(self, kind: str, columns: tuple[str, ...], needed: int) -> None:
        if needed <= self._capacity[kind]:
            return
        capacity = max(needed, 2 * self._capacity[kind])
        for name in columns:
            column = np.full(capacity, NEVER_NS if name in _NEVER_COLUMNS else 0, dtype=np.int64)
            old = getattr(self, name, None)
            if old is not None:
                column[: len(old)] = old
            setattr(self, name, column)
        self._capacity[kind] = capacity
        self._open_views()

    def _open_views(self) -> None:
        if not all(self._capacity.values()):
            return
        self._log_rows = single_values(self.log_rows)
        self._log_bytes = single_values(self.log_bytes)
        self._log_controls = single_values(self.log_controls)
        self.consumed_at = single_values(self.edge_consumed)
        self.edge_rows_at = single_values(self.edge_rows)
        self.edge_bytes_at = single_values(self.edge_bytes)
        self.edge_head_at = single_values(self.edge_head_ns)
        self.fresh_at = single_values(self.edge_fresh_ns)
        self._edge_controls = single_values(self.edge_controls)
        self.edge_full_at = single_values(self.edge_full)
        self.rows_at = single_values(self.rows)
        self.head_at = single_values(self.head_ns)
        self.controls_at = single_values(self.controls)
        self.timers_at = single_values(self.timers)
        self.busy_at = single_values(self.busy)
        self.halted_at = single_values(self.halted)
        self.stalled_at = single_values(self.stalled)
        self._newest = single_values(self.newest_ns)
        self.full_at = single_values(self.full_outputs)

    # ---- the network changes

    def add(self, delta: GraphDelta, cursors: Mapping[EdgeId, EdgeStart]) -> None:
        """Put a delta in force. `cursors` tells where edges begin on logs that existed before."""
        self.settle()
        widened = [log for _, log in self.network.widened(delta)]
        operators, edges = self.network.add(delta)
        self._grow("log", _LOG_COLUMNS, len(self.network.logs))
        self._grow("edge", _EDGE_COLUMNS, len(self.network.edges))
        self._grow("operator", _OPERATOR_COLUMNS, len(self.network.operators))
        for slot in operators:
            for name in _OPERATOR_COLUMNS:
                getattr(self, name)[slot] = NEVER_NS if name in _NEVER_COLUMNS else 0
            for log in self.network.outputs[slot]:
                self._start_log(log)
        for log_id in widened:
            self._start_log(self.network.logs.slot_of[log_id])
        for _, log_id in delta.ports:
            log = self.network.logs.slot_of[log_id]
            self.log_rows[log] = self.log_bytes[log] = self.log_controls[log] = 0
        for slot in edges:
            producer = self.network.edge_producer[slot]
            log = self.network.edge_log[slot]
            if producer in operators or self.network.logs.identity(log) in widened:  # may have been filled before: its readers know
                start = cursors.get(self.network.edges.identity(slot), EdgeStart(0))
                self.log_rows[log] = max(int(self.log_rows[log]), start.rows)
                self.log_controls[log] = max(int(self.log_controls[log]), start.controls or 0)
        for slot in edges:
            self._start_edge(slot, cursors)
        self.touched.update(dict.fromkeys(operators))

    def _start_log(self, log: int) -> None:
        self.log_rows[log], self.log_controls[log] = self._unread.pop(self.network.logs.identity(log), (0, 0))
        self.log_bytes[log] = 0

    def _start_edge(self, edge: int, cursors: Mapping[EdgeId, EdgeStart]) -> None:
        for name in _EDGE_COLUMNS:
            getattr(self, name)[edge] = NEVER_NS if name in _NEVER_COLUMNS else 0
        log, consumer = self.network.edge_log[edge], self.network.edge_consumer[edge]
        known, controls = int(self.log_rows[log]), int(self.log_controls[log])
        start = cursors.get(self.network.edges.identity(edge), EdgeStart(known))
        self.edge_start[edge] = self.edge_consumed[edge] = start.rows
        # A cursor beyond what is known means that an `Arrived` is still on its way; the count is negative until it comes. One before it
        # means that something came behind the new reader, and was told of, before the reader is known here.
        self.edge_rows[edge] = known - start.rows
        self.rows[consumer] += known - start.rows
        if start.controls is not None:
            self.edge_controls[edge] = controls - start.controls
            self.controls[consumer] += controls - start.controls

    def reweigh(self, query: QueryId, weight: float) -> None:
        """Give a query another weight, if it is still here."""
        self.settle()  # the network counts as changed, and what was put off is known by the old one
        self.network.reweigh(query, weight)

    def remove(self, query: QueryId, gone: tuple[OperatorId, ...]) -> list[int]:
        """Take a query out; rows before its operators are dropped and counted in `rows_discarded`. Returns the slots now free."""
        self.settle()
        for slot in [self.network.operators.slot_of[one] for one in gone]:
            for log in self.network.outputs[slot] if self.network.is_source(slot) else ():
                self._unread[self.network.logs.identity(log)] = int(self.log_rows[log]), int(self.log_controls[log])
        operators, edges = self.network.remove(query, gone)
        removed = set(operators)
        for edge in edges:
            self.rows_discarded += max(0, int(self.edge_rows[edge]))
            producer = self.network.edge_producer[edge]
            self.full_count -= int(self.edge_full[edge])
            self.bytes_total -= int(self.edge_bytes[edge])
            if self.edge_full[edge] and producer not in removed:
                self.full_outputs[producer] -= 1
                self.touched[producer] = None
            self.edge_full[edge] = self.edge_rows[edge] = self.edge_controls[edge] = self.edge_bytes[edge] = 0
        for slot in operators:
            self.stalled_count -= int(self.stalled[slot])
            self.halted_count -= int(self.halted[slot])
            self.timer_count -= int(self.timers[slot])
            for name in _OPERATOR_COLUMNS:
                getattr(self, name)[slot] = NEVER_NS if name in _NEVER_COLUMNS else 0
        self.touched = {slot: None for slot in self.touched if slot not in removed}
        return operators

    # ---- rows come and go

    def note_unread(self, event: Arrived) -> None:
        """Count what came into a source's log that nobody reads, so that it is known where a reader begins that comes later."""
        rows, controls = self._unread.get(event.log, (0, 0))
        rows = rows + event.rows if event.total is None else max(rows, event.total)
        controls = controls + event.controls if event.controls_total is None else max(controls, event.controls_total)
        self._unread[event.log] = rows, controls

    def missing(self, log: int, event: Arrived) -> tuple[int, int]:
        """Return how many of the rows and control items ever appended to a log have not been counted yet."""
        rows, controls = event.rows, event.controls
        if event.total is not None:
            rows = event.total - self._log_rows[log]
        if event.controls_total is not None:
            controls = event.controls_total - self._log_controls[log]
        return rows if rows > 0 else 0, controls if controls > 0 else 0  # `max` takes a call, and single rows wait for it

    def append(self, log: int, rows: int, size_bytes: int, arrival_ns: int, controls: int) -> None:
        """Count rows and control items appended to a log, for every edge that reads it. Only bytes of rows count: no others are taken."""
        size_bytes = size_bytes if rows else 0
        self._log_rows[log] += rows
        self._log_bytes[log] += size_bytes
        if controls:
            self._log_controls[log] += controls
        readers = self.network.log_readers[log]
        count = len(readers.edges)
        self.bytes_total += size_bytes * count
        arrival_ns = arrival_ns if rows else NEVER_NS
        if count >= _VECTOR_READERS_MIN:
            self._append_many(log, rows, size_bytes, arrival_ns, controls)
        else:
            for edge, operator in zip(readers.edges, readers.consumers, strict=True):
                self._append_one(edge, operator, rows, size_bytes, arrival_ns, controls)
        self.touched.update(readers.marks)
        if self.stalled_count:
            for operator in readers.consumers:
                self.wake_below(operator)

    def _append_one(self, edge: int, operator: int, rows: int, size_bytes: int, arrival_ns: int, controls: int) -> None:
        if rows:
            waiting = self.edge_rows_at[edge] + rows
            self.edge_rows_at[edge] = waiting
            self.edge_bytes_at[edge] += size_bytes
            self.rows_at[operator] += rows
            if waiting > 0 and arrival_ns < self.edge_head_at[edge]:
                self.edge_head_at[edge] = arrival_ns
                if arrival_ns < self.head_at[operator]:
                    self.head_at[operator] = arrival_ns
            if arrival_ns < self.fresh_at[edge]:
                self.fresh_at[edge] = arrival_ns
            if arrival_ns > self._newest[operator] and arrival_ns != NEVER_NS:
                self._newest[operator] = arrival_ns
            if waiting >= self.edge_rows_max and not self.edge_full_at[edge]:
                self.set_full(edge, 1)
        if controls:
            self._edge_controls[edge] += controls
            self.controls_at[operator] += controls

    def _append_many(self, log: int, rows: int, size_bytes: int, arrival_ns: int, controls: int) -> None:
        readers = self.network.log_readers[log]
        edges, operators = readers.arrays
        self.edge_rows[edges] += rows
        self.edge_bytes[edges] += size_bytes
        self.edge_controls[edges] += controls
        heads = np.where(self.edge_rows[edges] > 0, np.minimum(self.edge_head_ns[edges], arrival_ns), NEVER_NS)
        self.edge_head_ns[edges] = heads
        self.edge_fresh_ns[edges] = np.minimum(self.edge_fresh_ns[edges], arrival_ns)
        if rows and arrival_ns != NEVER_NS:
            self.newest_ns[operators] = np.maximum(self.newest_ns[operators], arrival_ns)
        if readers.repeated:
            np.add.at(self.rows, operators, rows)
            np.add.at(self.controls, operators, controls)
        else:
            self.rows[operators] += rows
            self.controls[operators] += controls
        np.minimum.at(self.head_ns, operators, heads)
        over = edges[(self.edge_rows[edges] >= self.edge_rows_max) & (self.edge_full[edges] == 0)]
        for edge in over.tolist():
            self.set_full(edge, 1)

    def set_full(self, edge: int, full: int) -> None:
        """Mark an edge as full, or as full no longer."""
        self.edge_full_at[edge] = full
        producer = self.network.edge_producer[edge]
        change = 1 if full else -1
        self.full_at[producer] += change
        self.full_count += change
        self.touched[producer] = None

    def open(self, edges: Sequence[int]) -> None:
        """Note that an order goes out: what arrives at these edges, those fed from outside the order, is newer from now on."""
        for edge in edges:
            self.fresh_at[edge] = NEVER_NS

    def lock(self, operators: Sequence[int]) -> None:
        """Lock operators for an order, where several may be out."""
        for operator in operators:
            self.busy_at[operator] += 1

    def unlock(self, operators: Sequence[int]) -> None:
        """The order came back."""
        for operator in operators:
            self.busy_at[operator] -= 1

    def apply_steps(self, steps: Sequence[StepReceipt], record: Callable[[int, int, int, int], None]) -> int:
        """Count what these steps did and hand each one's slot, rows in, rows out and cost to `record`; return all rows in.

        Rows that one step puts into a log with one reader and the next step takes whole never count as waiting; this is what most
        steps of an order do, and this loop is most of what a decision costs. Whatever else happens in a step goes through `apply`.
        """
        operator_of, edge_of, log_of = self.network.operators.slot_of, self.network.edges.slot_of, self.network.logs.slot_of
        log_readers, edge_rows, log_rows, log_bytes = self.network.log_readers, self.edge_rows_at, self._log_rows, self._log_bytes
        timers_at, consumed_at, touched = self.timers_at, self.consumed_at, self.touched
        total = 0
        passed: LogCount | None = None
        passed_edge = -1
        for step in steps:
            produced, consumed = step.produced, step.consumed
            operator = operator_of[step.operator]
            if len(consumed) != 1 or len(produced) > 1 or not consumed[0].rows or consumed[0].controls or timers_at[operator]:
                if passed is not None:
                    self._put(passed_edge, passed)
                    passed = None
                operator, rows_in, rows_out = self.apply(step)
                record(operator, rows_in, rows_out, step.cost_ns)
                total += rows_in
                continue
            taken = consumed[0]
            edge, rows = edge_of[taken.edge], taken.rows
            if passed is not None and edge == passed_edge and rows == passed.rows:
                consumed_at[edge] += rows
                if passed.bytes != taken.bytes:
                    self.edge_bytes_at[edge] += passed.bytes - taken.bytes
                    self.bytes_total += passed.bytes - taken.bytes
            else:
                if passed is not None:
                    self._put(passed_edge, passed)
                self.take(operator, edge, rows, taken.bytes, taken.head_arrival_ns)
                touched[operator] = None
            passed, rows_out = None, step.rows_passed
            if produced:
                made = produced[0]
                rows_out += made.rows
                log = log_of[made.log]
                edges = log_readers[log].edges
                if len(edges) == 1 and made.rows and not made.controls:
                    log_rows[log] += made.rows
                    log_bytes[log] += made.bytes
                    if edge_rows[edges[0]]:
                        self._put(edges[0], made)
                    else:
                        passed, passed_edge = made, edges[0]
                elif made.rows or made.controls:
                    self._append(made)
            if self.stalled_count:
                self.wake_below(operator)
            record(operator, rows, rows_out, step.cost_ns)
            total += rows
        if passed is not None:
            self._put(passed_edge, passed)
        return total

    def _put(self, edge: int, made: LogCount) -> None:
        """Count rows as waiting before the one reader of a log (the log itself has counted them)."""
        consumer, rows = self.network.edge_consumer[edge], made.rows
        self.bytes_total += made.bytes
        self.edge_bytes_at[edge] += made.bytes
        waiting = self.edge_rows_at[edge] = self.edge_rows_at[edge] + rows
        self.rows_at[consumer] += rows
        arrival_ns = made.oldest_arrival_ns
        if arrival_ns is not None:
            if waiting > 0 and arrival_ns < self.edge_head_at[edge]:
                self.edge_head_at[edge] = arrival_ns
                if arrival_ns < self.head_at[consumer]:
                    self.head_at[consumer] = arrival_ns
            if arrival_ns < self.fresh_at[edge]:
                self.fresh_at[edge] = arrival_ns
            if arrival_ns > self._newest[consumer]:
                self._newest[consumer] = arrival_ns
        if waiting >= self.edge_rows_max and not self.edge_full_at[edge]:
            self.set_full(edge, 1)
        self.touched[consumer] = None

    def _append(self, made: LogCount) -> None:
        arrival_ns = NEVER_NS if made.oldest_arrival_ns is None else made.oldest_arrival_ns
        self.append(self.network.logs.slot_of[made.log], made.rows, made.bytes, arrival_ns, made.controls)

    def apply(self, step: StepReceipt) -> tuple[int, int, int]:
        """Count what one step did; return the operator's slot, rows in and rows out (over all output logs)."""
        operator = self.network.operators.slot_of[step.operator]
        rows_in, moved, rows_out = 0, 0, step.rows_passed
        for taken in step.consumed:
            if taken.rows:
                self.consume(operator, self.network.edges.slot_of[taken.edge], taken)
                rows_in += taken.rows
            if taken.controls:
                self._edge_controls[self.network.edges.slot_of[taken.edge]] -= taken.controls
                self.controls_at[operator] -= taken.controls
                moved = 1
        timers = self.timers_at[operator]
        if timers:
            self.timers_at[operator] = 0
            self.timer_count -= timers
            self.controls_at[operator] -= timers
            moved = 1
        for made in step.produced:
            rows_out += made.rows
            moved += made.controls
            if made.rows or made.controls:
                self._append(made)
        self.touched[operator] = None
        if rows_in or rows_out or moved:
            if self.stalled_count:
                self.wake_below(operator)
        elif not self.stalled_at[operator] and (self.rows_at[operator] > 0 or self.controls_at[operator] > 0):
            self.stalled_at[operator] = 1
            self.stalled_count += 1
        return operator, rows_in, rows_out

    def pass_through(self, edge: int, log: int, rows: int, size_bytes: int) -> None:
        """Count rows that were appended to a log and consumed over its one edge at once, inside a chain."""
        self.consumed_at[edge] += rows
        self._log_rows[log] += rows
        self._log_bytes[log] += size_bytes

    def consume(self, operator: int, edge: int, taken: EdgeCount) -> None:
        """Count rows that an operator took from an edge."""
        self.take(operator, edge, taken.rows, taken.bytes, taken.head_arrival_ns)

    def take(self, operator: int, edge: int, rows: int, size_bytes: int, head_arrival_ns: int | None) -> None:
        """Count rows that an operator took from an edge, and the arrival of the oldest row that the step left behind."""
        waiting = self.edge_rows_at[edge] - rows
        self.edge_rows_at[edge] = waiting
        self.edge_bytes_at[edge] -= size_bytes
        self.bytes_total -= size_bytes
        self.consumed_at[edge] += rows
        self.rows_at[operator] -= rows
        if waiting <= 0:
            head_ns = NEVER_NS
        elif head_arrival_ns is not None:
            head_ns = head_arrival_ns
        else:
            # The step left nothing behind, so what waits came after it began.
            fresh_ns = self.fresh_at[edge]
            head_ns = fresh_ns if fresh_ns != NEVER_NS else self.edge_head_at[edge]
        self.edge_head_at[edge] = head_ns
        inputs = self.network.inputs[operator]
        self.head_at[operator] = head_ns if len(inputs) == 1 else min(self.edge_head_at[one] for one in inputs)
        if self.full_count and self.edge_full_at[edge] and waiting < self.edge_rows_max:
            self.set_full(edge, 0)

    def timer_due(self, operator: int) -> None:
        """Count a due timer: the operator is runnable until its next step."""
        self.timers_at[operator] += 1
        self.timer_count += 1
        self.controls_at[operator] += 1
        self.unstall(operator)
        self.touched[operator] = None

    # ---- stalls and halts

    def unstall(self, operator: int) -> None:
        """Let an operator that made no progress try again."""
        if self.stalled_at[operator]:
            self.stalled_at[operator] = 0
            self.stalled_count -= 1
            self.touched[operator] = None

    def wake_below(self, operator: int) -> None:
        """Something moved at `operator`: whoever waits below it may go on."""
        stack, seen = [operator], {operator}
        consumers = self.network.topology.consumers
        while stack:
            slot = stack.pop()
            self.unstall(slot)
            for consumer in consumers[slot]:
                if consumer not in seen:
                    seen.add(consumer)
                    stack.append(consumer)

    def set_halted(self, operator: int, halted: bool) -> None:
        """Let the operator run or not, whatever waits before it."""
        if bool(self.halted_at[operator]) != halted:
            self.halted_at[operator] = int(halted)
            self.halted_count += 1 if halted else -1
            self.touched[operator] = None

    # ---- sums

    @property
    def anything_waits(self) -> bool:
        """Whether any operator has rows or control items before it."""
        return bool(self.rows.max() > 0 or self.controls.max() > 0)

    @property
    def rows_waiting(self) -> int:
        """Rows before all operators."""
        return int(np.maximum(self.rows, 0).sum())

    @property
    def bytes_waiting(self) -> int:
        """Bytes before all operators."""
        return max(0, self.bytes_total)


def validate(ledger: Ledger, *, settled: bool = True) -> None:
    """Check every sum; raises `LedgerError` naming the place.

    `settled` False allows an edge to be ahead of the arrivals told so far, as happens while a live driver runs.
    """
    ledger.settle()
    network = ledger.network
    for edge_id, edge in network.edges.slot_of.items():
        produced = int(ledger.log_rows[network.edge_log[edge]])
        waiting, consumed = int(ledger.edge_rows[edge]), int(ledger.edge_consumed[edge])
        if produced != consumed + waiting:
            raise LedgerError(f"edge {edge_id}: {produced} rows appended, {consumed} consumed, {waiting} waiting")
        if settled and (waiting < 0 or int(ledger.edge_controls[edge]) < 0):
            raise LedgerError(f"edge {edge_id}: {waiting} rows and {int(ledger.edge_controls[edge])} controls waiting")
        if (waiting <= 0) != (int(ledger.edge_head_ns[edge]) == NEVER_NS):
            raise LedgerError(f"edge {edge_id}: {waiting} rows waiting, head {int(ledger.edge_head_ns[edge])}")
        if bool(ledger.edge_full[edge]) != (waiting >= ledger.edge_rows_max):
            raise LedgerError(f"edge {edge_id}: full mark {int(ledger.edge_full[edge])} at {waiting} rows")
    for operator_id, slot in network.operators.slot_of.items():
        _validate_operator(ledger, operator_id, slot)
    if ledger.bytes_total != int(ledger.edge_bytes.sum()):
        raise LedgerError(f"{ledger.bytes_total} bytes counted in all, {int(ledger.edge_bytes.sum())} by edges")
    if ledger.stalled_count != int(ledger.stalled.sum()):
        raise LedgerError(f"{ledger.stalled_count} operators counted as stalled, {int(ledger.stalled.sum())} marked")


def _validate_operator(ledger: Ledger, operator_id: OperatorId, slot: int) -> None:
    network = ledger.network
    edges = network.inputs[slot]
    rows = sum(int(ledger.edge_rows[edge]) for edge in edges)
    controls = sum(int(ledger.edge_controls[edge]) for edge in edges) + int(ledger.timers[slot])
    head = min((int(ledger.edge_head_ns[edge]) for edge in edges), default=NEVER_NS)
    full = sum(int(ledger.edge_full[edge]) for log in network.outputs[slot] for edge in network.log_readers[log].edges)
    expected = {"rows": rows, "controls": controls, "head_ns": head, "full_outputs": full}
    for name, value in expected.items():
        if int(getattr(ledger, name)[slot]) != value:
            raise LedgerError(f"operator {operator_id}: {name} is {int(getattr(ledger, name)[slot])}, its edges say {value}")
    if int(ledger.busy[slot]) not in (0, 1):
        raise LedgerError(f"operator {operator_id}: locked {int(ledger.busy[slot])} times")
