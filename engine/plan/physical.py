"""The physical plan: a tree (or DAG) of recipes, ready for the instantiator. Made by `lower.py` from the optimised logical plan."""

from __future__ import annotations

from dataclasses import field

from millstream.engine.data.graph import DEFAULT_QOS, NS_PER_S
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.expressions.ir import Expression
from millstream.engine.language.recipes import EmitSpec, Recipe


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads a stream (or derived stream) by name; or a table's change log, when `table`.

    A table's change log has the table's columns and then `op`, TEXT: '+' puts the row in place of the one with its key, '-' removes it.
    """

    stream: str
    schema: Schema
    table: bool = False


@dataclass(frozen=True, slots=True)
class InputRef:
    """An input of a physical node: which node, and which of its output ports (only a split has more than one)."""

    node: PhysicalNode | SourceNode
    output: int = 0


@dataclass(frozen=True, slots=True)
class PhysicalNode:
    """One operator to be: its recipe, its inputs in port order, and what the user declared of its cost and selectivity."""

    recipe: Recipe
    inputs: tuple[InputRef, ...]
    selectivity: float | None = None
    cost_us: float | None = None


@dataclass(frozen=True, slots=True)
class ShedBy:
    """What a row is worth when load is shed: the expression as written, and bound over the stream's columns (DOUBLE)."""

    text: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """WITH (…) of a query: class, latency utility graph as (seconds, utility), weight, deadline, life time. Units in the names.

    `latency_target_ns` is the mean latency that is wanted, `memory_bytes_max` the most that queues and state may hold, and
    `tolerance_percent` how far either may be exceeded before it counts as missed.
    `history`: it begins with the windows that are seen whole, also those whose first rows came before it where a synopsis holds them.
    `materialized`: what stands after its changes is kept, as a view that FETCH reads. `keep_rows` and `keep_us` bound one whose rows only
    come: the last so many, or those of so much event time.
    `split`: into so many parts, by key, its operators are split that read rows of streams (`splitting.py`).
    `archive`: it begins with what the archives of its streams hold, from the event time `archive_from_us` on.
    """

    class_name: str = "default"
    qos: tuple[tuple[float, float], ...] = DEFAULT_QOS
    weight: float = 1.0
    deadline_ns: int = NS_PER_S
    period_ns: int | None = None
    latency_target_ns: int | None = None
    memory_bytes_max: int | None = None
    tolerance_percent: float | None = None
    start_at_us: int | None = None
    lifetime_us: int | None = None
    scale_up: bool = False
    shed_by: ShedBy | None = None
    history: bool = False
    archive: bool = False
    archive_from_us: int | None = None
    materialized: bool = False
    keep_rows: int | None = None
    keep_us: int | None = None
    split: int = 1


@dataclass(frozen=True, slots=True)
class PhysicalQuery:
    """A whole query: its root (whose rows are the answer), output schema, emission, options.

    `schema` is the root's output schema; every column of it is shown. `change_kind` is the position of the `op` column ('+'/'-') when the
    answer is a change log, else None. `notes` are sentences for EXPLAIN (such as state without a bound), `splits` those that say what is
    split by key.
    """

    root: PhysicalNode | SourceNode
    schema: Schema
    emit: EmitSpec
    options: QueryOptions = field(default_factory=QueryOptions)
    change_kind: int | None = None
    notes: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
