"""Recipes: what a query asks of each operator, as plain comparable data. Equal recipes over equal inputs can be shared.

Columns are positions in the input schema (ports in order). Group keys, aggregate arguments and FILTER conditions are columns that a
ProjectRecipe below has computed, so that stateful operators never evaluate expressions, save the residual of a join.
All times in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.types import DataType
from millstream.engine.expressions.ir import Expression
from millstream.engine.state.forms import state_enum, state_record


@state_enum("window_kind")
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


@state_record("window", 1)
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


@state_enum("emit_kind")
class EmitKind(Enum):
    """When answers leave (K9)."""

    FINAL = "final"
    CHANGES = "changes"
    EVERY = "every"


@state_record("emit", 2, added={"always": bool})
@dataclass(frozen=True, slots=True)
class EmitSpec:
    """How answers leave; `every_us` for EMIT EVERY, `empty` for EMIT EMPTY.

    `instants`: the changes of an aggregate without a window are those between instants, for ISTREAM, DSTREAM and RSTREAM above it.
    `always`: an aggregate without a window and without keys answers also where no row came, as SQL does.
    """

    kind: EmitKind = EmitKind.FINAL
    every_us: int = 0
    empty: bool = False
    instants: bool = False
    always: bool = False


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


@state_record("union_recipe", 1)
@dataclass(frozen=True, slots=True)
class UnionRecipe(Recipe):
    """Merge `inputs` inputs of the same schema by arrival number."""

    inputs: int


@state_record("aggregate_call", 3, added={"carried": bool, "interpolated": bool})
@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: canonical lower-case function name, argument column positions, mask column of FILTER, options (p, k …).

    `carried` is LOCF( ) around it: in a window in which it is NULL, or its group has no row, it is what it was last (`GapFillRecipe`).
    `interpolated` is INTERPOLATE( ): there it lies between what it was last and what it is next (`InterpolateRecipe`).
    """

    function: str
    arguments: tuple[int, ...]
    type: DataType
    filter: int | None = None
    distinct: bool = False
    options: tuple[Any, ...] = ()
    carried: bool = False
    interpolated: bool = False

    def moved(self, places: Mapping[int, int] | Sequence[int]) -> AggregateCall:
        """Return the call over an input in which the column at position p stands at `places[p]`."""
        condition = None if self.filter is None else places[self.filter]
        return replace(self, arguments=tuple(places[a] for a in self.arguments), filter=condition)


@state_record("aggregate_recipe", 1)
@dataclass(frozen=True, slots=True)
class AggregateRecipe(Recipe):
    """GROUP BY over a window. Output columns: keys, then aggregates, then window_start and window_end (TIMESTAMP).

    `window` None is the aggregate without a window (K9); it has no window_start and window_end. `live` is the position of a BOOLEAN
    column, or None: a row where it is false (or NULL) takes its place in a ROWS window, and makes or prolongs a SESSION, but touches no
    group (K2, K17). With
    `emit.kind` CHANGES the output has one more column `op` (TEXT, '+' or '-') at the end. `retracts` is the position of the input's
    `op` column when the input is itself a change log: a '-' row takes back an equal '+' row. An output row of a HOPPING or CUMULATE
    window has the event time window_end - 1 (K19), of a SLIDING or ROWS window that of its instant.
    """

    window: WindowSpec | None
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    emit: EmitSpec = EmitSpec()
    live: int | None = None
    retracts: int | None = None


@state_record("gap_fill_recipe", 1)
@dataclass(frozen=True, slots=True)
class GapFillRecipe(Recipe):
    """EMIT EMPTY with keys: behind an aggregate of this window, with `keys` key columns, a row of each known key in each window (K6).

    Aggregates that are `carried` keep their last value where they would be NULL, also without keys.
    """

    window: WindowSpec
    keys: int
    aggregates: tuple[AggregateCall, ...]


@state_record("interpolate_recipe", 1)
@dataclass(frozen=True, slots=True)
class InterpolateRecipe(Recipe):
    """Behind what EMIT EMPTY gives, with `keys` key columns: of each key the DOUBLE columns `columns` are, where they are NULL, on the line
    between the values before and behind, by window_end, the last column (K6). A row leaves when these are known.
    """

    keys: int
    columns: tuple[int, ...]


@state_record("window_recipe", 1)
@dataclass(frozen=True, slots=True)
class WindowRecipe(Recipe):
    """Rows of a window without an aggregate: each row once per window, with window_start and window_end appended.

    `window` is HOPPING or CUMULATE (a row leaves at once and keeps its event time) or SESSION (`keys`: its PARTITION BY; rows come when
    their session has closed). With `changes` it is SLIDING, NOW, ROWS or UNBOUNDED and the output is a change log: the
    input's columns and `op` (TEXT) appended, no bounds; '+' when a row enters the window, '-' when it leaves it, each with the seq of
    the row (or the watermark) that made it so. With `closes` somebody above answers when a window closes, so a row is left out of the
    windows that have closed before it came, and is late when it reaches none (K4).
    """

    window: WindowSpec
    keys: tuple[int, ...] = ()
    changes: bool = False
    closes: bool = False


@dataclass(frozen=True, slots=True)
class FanOutRecipe(Recipe):
    """Hand rows on as they are to the parts of a split operator: by one order, which then runs all of them at once."""


@dataclass(frozen=True, slots=True)
class PartRecipe(SelectRecipe):
    """Keep the rows whose key is in part `part` of `parts`, for an operator that is split by key: the `split`th of its query.

    The condition says the same.
    """

    split: int
    part: int
    parts: int


EVENT_TIME = -1
"""A position in `KeyMergeRecipe.order`: the rows' event time."""

Order = tuple[int | tuple[int, ...], ...]
"""Positions of columns; for several together the least of their values counts."""


@state_record("key_merge_recipe", 1)
@dataclass(frozen=True, slots=True)
class KeyMergeRecipe(Recipe):
    """Merge what the parts of a split operator put out, so that it comes as from the whole one (K15).

    That is by arrival number, then by the columns at `order`, all BIGINT or TIMESTAMP without NULL, of which no two rows have the same.
    Only the columns at `kept` go on.
    """

    inputs: int
    order: Order
    kept: tuple[int, ...]


@state_enum("join_kind")
class JoinKind(Enum):
    """Which unmatched rows are kept; of a subquery what it gives: whether a row is in it (MARK), or its one row (SINGLE)."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    MARK = "mark"
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class KeyedJoinRecipe(Recipe):
    """What joins have in common: rows meet when the key columns are equal (NULL equals NULL only where `null_safe`).

    Output columns are the left's (port 0), then the right's (port 1); an unmatched row that is kept gets NULLs. The residual condition is
    over the output columns.
    """

    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    residual: Expression | None


@state_record("join_recipe", 1)
@dataclass(frozen=True, slots=True)
class JoinRecipe(KeyedJoinRecipe):
    """Windowed symmetric hash join of two streams: lower_us <= right.time - left.time <= upper_us (None: unbounded on that side)."""

    lower_us: int | None
    upper_us: int | None


@state_record("table_join_recipe", 1)
@dataclass(frozen=True, slots=True)
class TableJoinRecipe(KeyedJoinRecipe):
    """Stream–table join (K18). Port 0 is the stream, port 1 the table's change log (its columns, then `op`, TEXT '+' or '-').

    `table_key` are the table's primary key columns: '+' replaces the row with that key, '-' removes it. A left row meets the rows that
    stand in the table at its place in arrival order. `kind` is INNER or LEFT; the table's `op` is not put out.
    """

    table_key: tuple[int, ...]


@state_record("table_changes_recipe", 1)
@dataclass(frozen=True, slots=True)
class TableChangesRecipe(Recipe):
    """What changes of a table (K28): '-' for a row that goes, '+' for one that comes; first '+' for all that stand.

    The input is the table's change log as of TableJoinRecipe, `table_key` its primary key.
    """

    table_key: tuple[int, ...]


@state_record("view_changes_recipe", 1)
@dataclass(frozen=True, slots=True)
class ViewChangesRecipe(Recipe):
    """What changes of a materialized view (K29): first '+' for all that stand in it, then its changes as they come."""


@state_record("change_join_recipe", 1)
@dataclass(frozen=True, slots=True)
class ChangeJoinRecipe(KeyedJoinRecipe):
    """Join of two change logs (K28), whose last columns are the kind of the change. Output: the others of both, then that of the join."""


@state_record("standing_rows_recipe", 1)
@dataclass(frozen=True, slots=True)
class StandingRowsRecipe(Recipe):
    """A change log passed on, whose last column is the kind of the change; what stands after it is kept for whoever asks."""


@state_record("kept_rows_recipe", 1)
@dataclass(frozen=True, slots=True)
class KeptRowsRecipe(Recipe):
    """Rows that only come, as a change log (K29): '+' for one that comes, '-' for one that is kept no longer.

    The last `rows_max` rows are kept, or those whose event time is not more than `kept_us` below W; one of the two is None.
    """

    rows_max: int | None = None
    kept_us: int | None = None


@state_record("subquery_recipe", 1)
@dataclass(frozen=True, slots=True)
class SubqueryRecipe(KeyedJoinRecipe):
    """Each left row once, with what a subquery (port 1) says of it (K25).

    Output columns are the left's, then for MARK one BOOLEAN: whether a right row of its keys is there, and equal in `compared`, a column of
    each side, if there is one; NULL where that is unknown. For SINGLE they are the right's of the one row of its keys; of two or more NULL,
    and the row has failed. The residual is over the left's, then the right's columns. `ends`: the column of either side that tells when
    its window is complete; without, a row is answered when both inputs have ended.
    """

    compared: tuple[int, int] | None = None
    ends: tuple[int, int] | None = None


@state_record("table_subquery_recipe", 1)
@dataclass(frozen=True, slots=True)
class TableSubqueryRecipe(TableJoinRecipe):
    """The same over a table as it stands at the left row's place (K18): `steps` make the right rows of it, anew when it has changed."""

    compared: tuple[int, int] | None = None
    steps: tuple[Recipe, ...] = ()


@state_record("asof_join_recipe", 2, added={"forward": bool, "within_us": lambda: None})
@dataclass(frozen=True, slots=True)
class AsofJoinRecipe(KeyedJoinRecipe):
    """As-of join (K18): a left row meets the right row of its keys with the greatest time <= its own (`strict`: < its own).

    `forward`: the one with the least time >= its own (`strict`: >). At equal times the last to arrive counts. Right rows further away than
    `within_us` do not count. `kind` is INNER or LEFT. The residual reads only the left's columns: where it is not true, nothing matches;
    `forward` has none.
    """

    strict: bool = False
    forward: bool = False
    within_us: int | None = None


def _end_of_distinct(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had no `end`: the window's columns had their own names, or came last and were hidden."""
    names = fields["schema"].names
    if fields["window"] is None:
        end = None
    elif "window_end" in names:
        end = names.index("window_end")
    else:
        end = len(names) - 1 if names[-1].startswith("hidden_") else None
    return {**fields, "end": end}


@state_record("distinct_recipe", 2, migrations={1: _end_of_distinct})
@dataclass(frozen=True, slots=True)
class DistinctRecipe(Recipe):
    """Each different row once per window, whose end the input's column `end` says; `window` None: once and for all."""

    window: WindowSpec | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class UnnestRecipe(Recipe):
    """A row for each item of a list or each entry of a map: the input's columns, then the item (or key and value), then its number.

    `numbered`: there is a number, from 1. `outer`: a row without items stays, once, with NULLs.
    """

    items: Expression
    numbered: bool = False
    outer: bool = False


@state_record("order_column", 1)
@dataclass(frozen=True, slots=True)
class OrderColumn:
    """A column to order by, descending or not, NULLs first or last (K13: text by code point, NaN greater than every number)."""

    position: int
    descending: bool = False
    nulls_first: bool = False


@state_record("top_recipe", 1)
@dataclass(frozen=True, slots=True)
class TopRecipe(Recipe):
    """The first `limit` rows of each window, in order; ties by arrival (K11). `with_ties` adds the rows equal to the last one.

    `partition` are the columns (window_start, window_end) that tell windows apart. Rows of a window come together, so a window is answered
    when the next one's first row or a watermark past its end arrives. Output rows stand in the order asked for.
    """

    order: tuple[OrderColumn, ...]
    limit: int
    with_ties: bool
    partition: tuple[int, ...]


@state_record("rank_recipe", 1)
@dataclass(frozen=True, slots=True)
class RankRecipe(Recipe):
    """Appends `function` (row_number, rank, dense_rank) of each row in its partition, in the given order.

    A partition is complete once W reaches the value of its column `closing` plus `shift_us`, without one when the input has ended.
    """

    function: str
    order: tuple[OrderColumn, ...]
    partition: tuple[int, ...]
    closing: int | None
    shift_us: int = 0


@state_record("running_top_recipe", 1)
@dataclass(frozen=True, slots=True)
class RunningTopRecipe(Recipe):
    """The first `limit` rows of each group of all rows so far, as a change log (K24); ties by arrival (K11).

    Output: the input's columns, the row's number in its group, and the kind of the change. Where not `numbered`, nobody reads the number:
    it is NULL, and a row whose number changes stays.
    """

    order: tuple[OrderColumn, ...]
    limit: int
    partition: tuple[int, ...]
    numbered: bool


@state_record("changing_top_recipe", 1)
@dataclass(frozen=True, slots=True)
class ChangingTopRecipe(Recipe):
    """The first `limit` rows of each group of those that stand after a change log (K24), as RunningTopRecipe gives them.

    `order` tells all rows apart that differ. `change` is the column with the kind of the input's changes; it is put out as '+'.
    """

    order: tuple[OrderColumn, ...]
    limit: int
    partition: tuple[int, ...]
    numbered: bool
    change: int


def _values_of_lag(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had one `value`."""
    return {**{name: kept for name, kept in fields.items() if name != "value"}, "values": (fields["value"],)}


@state_record("lag_recipe", 2, migrations={1: _values_of_lag})
@dataclass(frozen=True, slots=True)
class LagRecipe(Recipe):
    """Appends what columns `values` had `offset` rows before, in event-time order (ties: arrival) within `partition`; else NULL."""

    values: tuple[int, ...]
    offset: int
    partition: tuple[int, ...] = ()


@state_record("over_frame", 1)
@dataclass(frozen=True, slots=True)
class FrameSpec:
    """The rows about a row that an aggregate with OVER sees (K23): counted in rows (ROWS), or by event time in µs (RANGE).

    From `preceding` before it (None: UNBOUNDED PRECEDING; negative: behind it) to `following` behind it (negative: before it).
    """

    by_rank: bool
    preceding: int | None
    following: int = 0


@state_record("over_part", 1)
@dataclass(frozen=True, slots=True)
class OverPart:
    """Aggregates of one frame, among the rows of a `partition` in event-time order (ties: arrival)."""

    aggregates: tuple[AggregateCall, ...]
    frame: FrameSpec
    partition: tuple[int, ...] = ()


@state_record("over_recipe", 1)
@dataclass(frozen=True, slots=True)
class OverRecipe(Recipe):
    """Appends to each row the aggregates of its frames, part by part.

    A row leaves when all its frames are complete, with that moment as its event time: RANGE of d FOLLOWING is complete d after the row,
    ROWS of n FOLLOWING with the n-th row behind it.
    """

    parts: tuple[OverPart, ...]


@state_enum("match_skip")
class MatchSkip(Enum):
    """Where the next match may begin: behind the last row of a match, one row on, or at the first or last row of a variable."""

    PAST_LAST = "past last row"
    TO_NEXT = "to next row"
    TO_FIRST = "to first"
    TO_LAST = "to last"


Pattern = tuple[Any, ...]
"""A row pattern: ("row", variable), ("then", parts), ("or", parts), ("times", part, least, most or None, reluctant)."""


@state_record("match_value", 1)
@dataclass(frozen=True, slots=True)
class MatchValue:
    """A value of the rows of a match that are mapped to one of `variables`, of all its rows where there are none.

    With `call` the aggregate over them. Else `column` of the `offset`-th of them from the last one (`first`: from the first one), `shift`
    rows on in the partition. `word` is "classifier" (the variable of that row) or "number" (of the match) instead. `final`: seen from the
    end of the match, though the row stands before.
    """

    variables: tuple[int, ...] = ()
    call: AggregateCall | None = None
    column: int | None = None
    first: bool = False
    offset: int = 0
    shift: int = 0
    word: str = ""
    final: bool = False

    def moved(self, places: Mapping[int, int] | Sequence[int]) -> MatchValue:
        """Return the value over an input in which the column at position p stands at `places[p]`."""
        call = None if self.call is None else self.call.moved(places)
        return replace(self, call=call, column=None if self.column is None else places[self.column])

    @property
    def reads(self) -> tuple[int, ...]:
        """The positions that it reads."""
        if self.call is not None:
            return (*self.call.arguments, *(() if self.call.filter is None else (self.call.filter,)))
        return () if self.column is None else (self.column,)


@state_record("match_spec", 1)
@dataclass(frozen=True, slots=True)
class MatchSpec:
    """MATCH_RECOGNIZE (K27) over the rows of each `partition` in event-time order (ties: arrival).

    `conditions` holds one a variable, None where every row will do. It is over the columns `near`, (position, rows on in the partition) of
    the row at hand, then the values `past` of the match up to and with that row. `measures` are what a result shows. With `all_rows` each
    row of a match is a result, and with `shows_empty` a match without rows is one too. `skip_to` are the variables that `skip` names.
    """

    partition: tuple[int, ...]
    variables: tuple[str, ...]
    pattern: Pattern
    near: tuple[tuple[int, int], ...]
    past: tuple[MatchValue, ...]
    conditions: tuple[Expression | None, ...]
    measures: tuple[MatchValue, ...]
    skip: MatchSkip = MatchSkip.PAST_LAST
    skip_to: tuple[int, ...] = ()
    within_us: int | None = None
    all_rows: bool = False
    shows_empty: bool = True

    def moved(self, places: Mapping[int, int] | Sequence[int]) -> MatchSpec:
        """Return the same over an input in which the column at position p stands at `places[p]`."""
        return replace(
            self,
            partition=tuple(places[p] for p in self.partition),
            near=tuple((places[p], shift) for p, shift in self.near),
            past=tuple(value.moved(places) for value in self.past),
            measures=tuple(value.moved(places) for value in self.measures),
        )

    @property
    def reads(self) -> set[int]:
        """The positions that it reads."""
        values = {p for value in (*self.past, *self.measures) for p in value.reads}
        return {*self.partition, *(p for p, _ in self.near), *values}

    @property
    def ahead(self) -> int:
        """How many rows behind its own a condition looks at most."""
        return max(0, *(shift for _, shift in self.near), 0)

    @property
    def back(self) -> int:
        """How many rows before a match are looked at."""
        shifts = (*(shift for _, shift in self.near), *(value.shift for value in (*self.past, *self.measures)))
        return max(0, -min(shifts, default=0))

    @property
    def lag_us(self) -> int | None:
        """How far W behind it is behind: as long as a row may wait for its match. None: to the end of the stream."""
        return None if self.within_us is None else self.within_us * (2 if self.ahead else 1)


@state_record("match_recipe", 1)
@dataclass(frozen=True, slots=True)
class MatchRecipe(Recipe):
    """The matches of a row pattern. Output: the partition's columns (with `all_rows` all of the input), then the measures.

    A match leaves when W has passed what decides it. Its event time is that of its last row, with `all_rows` each row's own.
    """

    spec: MatchSpec


@state_record("relation_to_stream_recipe", 1)
@dataclass(frozen=True, slots=True)
class RelationToStreamRecipe(Recipe):
    """ISTREAM, DSTREAM, RSTREAM of CQL, or EMIT FINAL, over a change log whose column `change` says '+' or '-'. Output: the others.

    The changes of one instant (equal event time; for ROWS one row's seq) are taken together, those that cancel drop out. 'i' gives the
    rows that came, 'd' those that went, 'r' the whole relation after each instant, or with `every_us` at its multiples from the epoch;
    'f' the relation once, at the end of the stream.
    """

    stream: str
    change: int
    every_us: int | None = None


@dataclass(frozen=True, slots=True)
class SinkRecipe(Recipe):
    """The end of a query: hands result trains to whoever subscribed."""

    query: str
