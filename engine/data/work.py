"""Work orders and receipts: the only words between the scheduler and whoever executes. Plain data, no pyarrow."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NewType

from millstream.engine.data.graph import EdgeId, LogId, OperatorId
from millstream.engine.data.records import dataclass

# Counts and receipts are not frozen: several are made per operator and train, and freezing triples what that costs.
OrderId = NewType("OrderId", int)


@dataclass(frozen=True, slots=True)
class Step:
    """Run one operator on at most `rows_max` rows over all its inputs.

    In a first step "all" means the rows the ledger knew when it decided, so that a receipt can be foreseen; for a step whose
    input comes from an earlier step of the same order, `rows_max` None means whatever that step produced and what was waiting.
    """

    operator: OperatorId
    rows_max: int | None = None


@dataclass(slots=True)
class WorkOrder:
    """A list of steps to be done in order by one worker. `budget_ns` is checked between steps; what is not done comes back.

    `worker` has the operators, where each has its own; 0 where any may run them.
    """

    id: OrderId
    steps: tuple[Step, ...]
    budget_ns: int | None = None
    worker: int = 0


@dataclass(slots=True)
class EdgeCount:
    """Rows taken from an edge, and what now stands at its head: arrival time of the oldest row left (None when empty).

    `controls` are items without rows (end of stream, watermark, idle marks) taken in the same step.
    """

    edge: EdgeId
    rows: int
    bytes: int = 0
    head_arrival_ns: int | None = None
    controls: int = 0


@dataclass(slots=True)
class LogCount:
    """Rows appended to a log: their count and bytes, the arrival time of the oldest source tuple among them."""

    log: LogId
    rows: int
    bytes: int = 0
    oldest_arrival_ns: int | None = None
    controls: int = 0


@dataclass(slots=True)
class Emission:
    """Result rows that left at a sink: for response times. `arrival_ns` of each distinct arrival with its row count."""

    operator: OperatorId
    rows: int
    finished_ns: int
    arrivals_ns: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(slots=True)
class StepReceipt:
    """What one step did. `measured` is False when the cost was apportioned from a fused run and not timed by itself.

    `blocked` is True when rows wait at an input that could not be taken, since another input's arrival frontier lies behind: running
    the operator again helps only after an operator upstream has run or its source got something. `rows_passed` are the rows that went
    straight to sinks, and so into no log.
    """

    operator: OperatorId
    consumed: tuple[EdgeCount, ...]
    produced: tuple[LogCount, ...]
    cost_ns: int
    measured: bool = True
    blocked: bool = False
    rows_passed: int = 0

    @property
    def moved_nothing(self) -> bool:
        """Nothing was taken or put out."""
        taken = any(count.rows or count.controls for count in self.consumed)
        return not taken and not self.rows_passed and not any(count.rows or count.controls for count in self.produced)

    @property
    def rows_out(self) -> int:
        """Rows put out on all outputs."""
        return sum([made.rows for made in self.produced]) + self.rows_passed


@dataclass(frozen=True, slots=True, eq=False)
class ChainShape:
    """Operators that run as one, the first one first, with the edge before each and the log behind each; shared by receipts.

    The last one may have no log, or several. `row_bytes` is what a row in each log counts, `costs` what a row costs each of them (ns, as
    last sampled; 0.0 where nothing was): how a receipt's cost is shared out. A chain gets another shape with each sample, so that a receipt
    that is read again says what it said.
    """

    operators: tuple[OperatorId, ...]
    edges: tuple[EdgeId, ...]
    logs: tuple[LogId | None, ...]
    row_bytes: tuple[int, ...]
    costs: tuple[float, ...]

    def shares(self, rows_in: Sequence[int]) -> list[float]:
        """Return each operator's part of the cost of a run that brought so many rows to each."""
        weights = [cost * (rows or 1) for cost, rows in zip(self.costs, rows_in, strict=True)]
        total = sum(weights) or 1.0
        return [weight / total for weight in weights]


@dataclass(slots=True)
class ChainReceipt:
    """What one run of a fused chain did, in one record: rows out of each operator, what the first took and what the last one appended.

    The rows out of the last one that it did not append went straight to sinks.
    """

    shape: ChainShape
    consumed: EdgeCount
    rows_out: list[int]
    produced: tuple[LogCount, ...]
    cost_ns: int

    def steps(self) -> list[StepReceipt]:
        """Return the same as one receipt an operator."""
        shape, rows_out = self.shape, self.rows_out
        rows_in = [self.consumed.rows, *rows_out[:-1]]
        shares = shape.shares(rows_in)
        receipts: list[StepReceipt] = []
        taken, last = self.consumed, len(rows_out) - 1
        for place, operator in enumerate(shape.operators):
            rows = rows_out[place]
            log = shape.logs[place]
            size_bytes = rows * shape.row_bytes[place]
            made = self.produced if place == last or log is None else (LogCount(log, rows, size_bytes),)
            passed = rows - sum([one.rows for one in made]) if place == last else 0
            receipts.append(StepReceipt(operator, (taken,), made, int(shares[place] * self.cost_ns), False, rows_passed=passed))
            if place < last:
                taken = EdgeCount(shape.edges[place + 1], rows, size_bytes)
        return receipts


RUN_FIELDS = 7
"""Numbers a run in `ChainRuns.taken`."""


@dataclass(slots=True, eq=False)
class ChainRuns:
    """Runs of fused chains that end in a sink, one after the other, in columns: most of what a busy server's orders are made of.

    Each took rows and no control items. `taken` holds for every run the rows and bytes taken, the arrival time of the oldest row left
    (-1 for none), the cost, the time the results left, their arrival time and their number (0 where there are none, or where they
    arrived at several times and are among the receipt's emissions). `rows_out` holds the rows out of each operator, run by run.
    """

    shapes: list[ChainShape] = field(default_factory=list)
    taken: array[int] = field(default_factory=lambda: array("q"))
    rows_out: array[int] = field(default_factory=lambda: array("q"))

    def receipts(self) -> Iterator[ChainReceipt]:
        """Give the same as one receipt a run."""
        first = 0
        for place, shape in enumerate(self.shapes):
            rows, size_bytes, head_ns, cost_ns = self.taken[place * RUN_FIELDS : place * RUN_FIELDS + 4]
            consumed = EdgeCount(shape.edges[0], rows, size_bytes, None if head_ns < 0 else head_ns)
            last = first + len(shape.operators)
            yield ChainReceipt(shape, consumed, list(self.rows_out[first:last]), (), cost_ns)
            first = last


@dataclass(slots=True)
class WorkReceipt:
    """What one order did: receipts of the steps done, those not done, results that left, start and end on the worker's clock."""

    order: OrderId
    steps: tuple[StepReceipt | ChainReceipt | ChainRuns, ...]
    unfinished: tuple[Step, ...]
    emissions: tuple[Emission, ...]
    started_ns: int
    finished_ns: int

    @property
    def moved_nothing(self) -> bool:
        """No step took or put out anything."""
        return all(isinstance(step, StepReceipt) and step.moved_nothing for step in self.steps)

    def each_step(self) -> Iterator[StepReceipt]:
        """Give one receipt a step, those of chains among them."""
        for step in self.steps:
            if isinstance(step, ChainRuns):
                for receipt in step.receipts():
                    yield from receipt.steps()
            elif isinstance(step, ChainReceipt):
                yield from step.steps()
            else:
                yield step


@dataclass(slots=True)
class Arrived:
    """Rows, and items without rows, were appended to a source's log from outside.

    `arrival_ns` is the arrival of the oldest of these rows; of control items (watermark, end of stream, idle mark) only the count
    is told. Every edge that reads the log sees both. Post it after the append, never before. `total` and `controls_total` are what was ever
    appended to the log then, where whoever posts knows: so a log that nobody read for a while, of whose rows nobody told, is counted
    rightly again. `shed` are rows that came with these and were dropped before the log. One without anything tells that it is known for
    longer that nothing came: whoever waits for that looks again.
    """

    log: LogId
    rows: int
    bytes: int = 0
    arrival_ns: int = 0
    controls: int = 0
    total: int | None = None
    shed: int = 0
    controls_total: int | None = None


@dataclass(frozen=True, slots=True)
class EdgeStart:
    """Where a new reader of a log begins: the rows and control items ever appended to it then (None: those the scheduler was told of)."""

    rows: int
    controls: int | None = None
