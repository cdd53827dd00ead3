"""Recipes: what a query asks of each operator, as plain comparable data. Equal recipes over equal inputs can be shared.

Columns are positions in the input schema (ports in order). Group keys, aggregate arguments and FILTER conditions are columns that a
ProjectRecipe below has computed, so that stateful operators never evaluate expressions, save the residual of a join.
All times in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.engine.expressions.ir import Expression
from millstream.engine.schema import Schema
from millstream.engine.types import DataType


class WindowKind(Enum):
    """The kinds of window of docs/language.md."""

    HOPPING = "hopping"  # tumbling when range = slide
    SLIDING = "sliding"  # [RANGE w] without SLIDE
    ROWS = "rows"
    SESSION = "session"
    CUMULATE = "cumulate"
    LANDMARK = "landmark"
    NOW = "now"
    UNBOUNDED = "unbounded"


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window. Which members matter depends on `kind`; `rows` and `rows_slide` for ROWS, `partition` its key columns.

    `slide_within`: the slide is Golab's upper bound (K16). `zone`: windows of whole days or longer follow its calendar (K1).
    `gap_us` and `max_us` for SESSION; `range_us`, `slide_us` (CUMULATE: size and step), `offset_us` for HOPPING and CUMULATE.
    """

    kind: WindowKind
    range_us: int = 0
    slide_us: int = 0
    offset_us: int = 0
    zone: str | None = None
    slide_within: bool = False
    rows: int = 0
    rows_slide: int = 0
    partition: tuple[int, ...] = ()
    gap_us: int = 0
    max_us: int | None = None
    from_us: int | None = None
    state_rows_max: int | None = None


class EmitKind(Enum):
    """When answers leave (K9)."""

    FINAL = "final"
    CHANGES = "changes"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class EmitSpec:
    """How answers leave; `every_us` for EMIT EVERY, `empty` for EMIT EMPTY."""

    kind: EmitKind = EmitKind.FINAL
    every_us: int = 0
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """Base of the family. `schema` is the schema of (each) output."""

    schema: Schema


@dataclass(frozen=True, slots=True)
class SelectRecipe(Recipe):
    """Keep rows where the condition is true."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class ProjectRecipe(Recipe):
    """Compute the output columns."""

    columns: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class SplitRecipe(Recipe):
    """Output 0 gets rows where the condition is true, output 1 all others (false or NULL)."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class UnionRecipe(Recipe):
    """Merge `inputs` inputs of the same schema by arrival number."""

    inputs: int


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: canonical lower-case function name, argument column positions, mask column of FILTER, options (p, k …)."""

    function: str
    arguments: tuple[int, ...]
    type: DataType
    filter: int | None = None
    distinct: bool = False
    options: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class AggregateRecipe(Recipe):
    """GROUP BY over a window. Output columns: keys, then aggregates, then window_start and window_end (TIMESTAMP).

    `window` None is the aggregate without a window (K9). `live` is the position of a BOOLEAN column, or None: a row where it is
    false takes its place in a ROWS window but touches no group (K2, K17).
    """

    window: WindowSpec | None
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    emit: EmitSpec = EmitSpec()
    live: int | None = None


@dataclass(frozen=True, slots=True)
class WindowRecipe(Recipe):
    """Rows of a window without an aggregate: each row once per window, with window_start and window_end appended."""

    window: WindowSpec
    keys: tuple[int, ...] = ()


class JoinKind(Enum):
    """Which unmatched rows are kept."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class JoinRecipe(Recipe):
    """Windowed symmetric hash join of two streams; output columns are left's then right's.

    Rows pair when the key columns are equal (NULL matches NULL only where `null_safe`), when
    lower_us <= right.time - left.time <= upper_us (None: unbounded on that side), and when the residual condition over the joined
    columns is true.
    """

    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    lower_us: int | None
    upper_us: int | None
    residual: Expression | None = None


@dataclass(frozen=True, slots=True)
class DistinctRecipe(Recipe):
    """Each different row once per window (window columns are among the input's columns)."""

    window: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class SinkRecipe(Recipe):
    """The end of a query: hands result trains to whoever subscribed."""

    query: str
