"""The operator contract: small and ordered.

A *recipe* (recipes.py) is what the query asked: plain, comparable data. An *operator* is the logic with its state while running, made
from a recipe by `operators/build.py`. The executor calls

    process(inputs, out)      one train per input port, all covering the same arrival interval [lo, hi)
    snapshot() / restore(s)   between calls only

and nothing else, never two calls at once for an operator with `stateful = True`. An input that has ended is given as an empty train
whose track stands at TIME_MAX and whose `ended` is True. Each call must emit on every output exactly one train that covers [lo, hi)
(perhaps without rows), so that progress and watermark flow on, and must pass `ended` on once all inputs have ended.
`wake_at_us` says at which processing time the operator wants its source's clock to tick although nothing arrives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from millstream.engine.data.arrow import column_to_arrow, plain_values
from millstream.engine.data.column import Column
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, original_rows
from millstream.engine.state.forms import Buffer, Default, Fields, Form, Migration, StateError, register_form


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """One row at which an expression failed: its seq, the reason, the row's columns as text for the error stream."""

    seq: int
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class EvaluationErrors:
    """Rows of one call at which one operation failed for one reason; the operation gave NULL there (K8)."""

    reason: str
    rows: Train

    def records(self) -> list[EvaluationError]:
        """Return one error a row. `raw` shows the stream's own columns where the train remembers its origin."""
        rows = original_rows(self.rows)
        texts = [_shown(c) for c in rows.columns()]
        raws = [",".join("" if v is None else str(v) for v in row) for row in zip(*texts, strict=True)]
        return [EvaluationError(s, self.reason, raw) for s, raw in zip(rows.seq.array().tolist(), raws, strict=True)]


def _shown(column: Column) -> list[Any]:
    try:
        return list(column_to_arrow(column).to_pylist())
    except (OverflowError, ValueError):  # instants and dates that Python's do not reach
        return plain_values(column)


class Emitter:
    """Where an operator puts its output: a train per output port, and side rows.

    `late` holds (input port, the late rows), `partly_late` (input port, their seqs), `errors` the evaluation errors. An operator whose
    outputs belong to different queries tells them apart in `late_of_output`: (output, late rows or None, seqs of the partly late).
    """

    __slots__ = ("errors", "late", "late_of_output", "partly_late", "ports", "trains")

    def __init__(self, outputs: int = 1) -> None:
        self.trains: list[Train | None] = [None] * outputs
        self.ports: list[int] = []  # outputs that got a train, in that order
        self.late_of_output: list[tuple[int, Train | None, Int64Array]] = []
        self.late: list[tuple[int, Train]] = []
        self.partly_late: list[tuple[int, Int64Array]] = []
        self.errors: list[EvaluationErrors] = []

    def emit(self, train: Train, output: int = 0) -> None:
        """Put out the one train of this call on an output port."""
        self.trains[output] = train
        self.ports.append(output)

    def take_side_rows(self, other: Emitter) -> None:
        """Add another's side rows to these."""
        self.late += other.late
        self.partly_late += other.partly_late
        self.errors += other.errors
        self.late_of_output += other.late_of_output

    @property
    def has_side_rows(self) -> bool:
        """There is something besides the output."""
        return bool(self.late or self.partly_late or self.errors or self.late_of_output)


def _fits(fresh: Any, found: Any) -> bool:
    """Whether a field may have this value where an operator without rows has the other."""
    return fresh is None or found is None or type(fresh) is type(found)


class Operator(ABC):
    """One running operator. `schemas` are the schemas of its outputs, in port order."""

    stateful: bool = True
    calls_late: bool = False  # rows can be late for it (K4)
    sparse: bool = False  # may put nothing on an output whose log does not want progress (queues.py, `quiet`)
    state_fields: tuple[str, ...] = ()  # the attributes that are the state; all else is made from the recipe
    state_name: ClassVar[str] = ""  # what the state is called, wherever the class stands
    state_version: ClassVar[int] = 1  # rises as engine/state/forms.py says; so do these two
    state_added: ClassVar[Mapping[str, Default]] = {}
    state_migrations: ClassVar[Mapping[int, Migration]] = {}

    def __init_subclass__(cls) -> None:
        """Let the class's state be written."""
        super().__init_subclass__()
        if "state_name" in cls.__dict__:
            form = Form(cls.state_name, cls.state_version, cls, cls.state_fields, cls.state_added, cls.state_migrations, is_bare=True)
            register_form(form)

    def __init__(self, schemas: Sequence[Schema]) -> None:
        self.schemas = tuple(schemas)

    @abstractmethod
    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take one interval of every input and emit it on every output."""

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Learn before the first call where each input's W stands and which are idle; return where the outputs' W stands (K3)."""
        awake = [w for w, asleep in zip(watermarks_us, idle, strict=True) if not asleep]
        return min(awake) if awake else max(watermarks_us)

    def preload(self, port: int, rows: Train) -> None:
        """Take up what stands in the table behind an input when the query is attached; called after `attached`."""
        raise NotImplementedError(f"{type(self).__name__} reads no table")  # not abstract: most operators read none, and are not asked

    def wake_at_us(self) -> int | None:
        """Return the processing time of the next clock tick this operator needs, or None."""
        return None

    def snapshot(self) -> bytes:
        """Return a copy of the state (engine/state), without a check; b"" for a stateless operator. What it shares stays shared."""
        if not self.state_fields:
            return b""
        from millstream.engine.state.encoding import encode  # loaded by whoever keeps or copies state

        return encode(Fields(self.state_name, {name: getattr(self, name) for name in self.state_fields}), check=False)

    def restore(self, state: Buffer) -> None:
        """Take up what `snapshot` gave. InvalidDefinition when it is another operator's, a newer release's, or damaged."""
        self.take_up(self.read(state))

    def read(self, state: Buffer) -> dict[str, Any]:
        """Return the fields of a snapshot, for `take_up`; the errors are those of `restore`."""
        if not self.state_fields:
            if state:
                raise InvalidDefinition(f"{type(self).__name__} has no state, and there is one")
            return {}
        from millstream.engine.state.decoding import decode

        try:
            found = decode(state, check=False)
        except StateError as error:
            raise InvalidDefinition(f"the state of {self.state_name} cannot be read: {error}") from error
        if not isinstance(found, Fields) or found.name != self.state_name:
            told = found.name if isinstance(found, Fields) else type(found).__name__
            raise InvalidDefinition(f"the state of {told} is not one of {self.state_name}")
        odd = [name for name, value in found.values.items() if not _fits(getattr(self, name), value)]
        if odd:
            raise InvalidDefinition(f"the state of {self.state_name} is damaged: {', '.join(odd)}")
        return found.values

    def take_up(self, fields: dict[str, Any]) -> None:
        """Hold what `read` returned."""
        for name, value in fields.items():
            setattr(self, name, value)

    def standing(self, lo: int, watermark_us: int) -> Train | None:
        """Return the rows of a change log that stand now, each as a '+', as what an item with the arrival number `lo` gives.

        For a copy (fork.py). None from operators that give no changes, or do not know which of these are current.
        """
        return None

    def oldest_us(self) -> int | None:
        """Return the least event time of the rows in open sessions, for operators that have those; else None."""
        return None

    def state_rows(self) -> int:
        """Return the rows (or panes × groups) held, for the memory measure and the bound that EXPLAIN states."""
        return 0

    def state_bytes(self) -> int:
        """Return the bytes held."""
        return 0
