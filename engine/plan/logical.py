"""The logical plan: what a query computes, operator by operator, before anybody says how.

Each node lists its output attributes; expressions refer to the attributes of its input by position (of a join: the left's, then the
right's). A window stands where FROM put it, as a node of its own that appends window_start and window_end; the lowering joins it with the
aggregate above. All times are microseconds. Nodes are plain immutable data with structural equality.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum
from typing import TypeVar

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import DataType
from millstream.engine.expressions.ir import ColumnRef, Expression
from millstream.engine.language.recipes import AggregateCall, EmitSpec, JoinKind, MatchSpec, OrderColumn, OverPart, WindowSpec
from millstream.engine.language.statements import Place
from millstream.engine.plan.catalog import TimeOffset
from millstream.engine.plan.physical import QueryOptions


class Role(Enum):
    """What an attribute is besides a value: the bounds of the window it belongs to, or the kind of a change."""

    PLAIN = "plain"
    WINDOW_START = "window_start"
    WINDOW_END = "window_end"
    CHANGE = "op"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One output of a node. `qualifier` is the alias it can be called by; `time` says how it relates to the row's event time.

    `time_unit_us` is the worth of 1 in an integer time column (1 for a TIMESTAMP). `covered`: a merged column (JOIN … USING) stands for it,
    so it is found by its qualifier only. `called`: the name by which text calls it, where `name` had to be made unique.
    """

    name: str
    type: DataType
    nullable: bool = True
    qualifier: str | None = None
    time: TimeOffset | None = None
    time_unit_us: int = 1
    role: Role = Role.PLAIN
    covered: bool = False
    called: str | None = None

    @property
    def word(self) -> str:
        """The name by which text calls it."""
        return self.called or self.name

    def picked(self, name: str, role: Role) -> Attribute:
        """Return what a projection makes of it under another name: it is found by that alone, and keeps what is known of its time."""
        return Attribute(name, self.type, self.nullable, None, self.time, self.time_unit_us, role)

    def reference(self, position: int) -> ColumnRef:
        """Return the reference to this attribute at `position`."""
        return ColumnRef(self.type, position, self.name)


Attributes = tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Hints:
    """What the user declared of an operator in a plan object."""

    selectivity: float | None = None
    cost_us: float | None = None


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base of the family."""

    attributes: Attributes
    hints: Hints = field(default=NO_HINTS)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes below, left to right."""
        return ()

    @property
    def schema(self) -> Schema:
        """The output as a schema; a second column of a name gets a suffix."""
        names = unique_names([a.name for a in self.attributes])
        return Schema(tuple(Field(n, a.type, a.nullable) for n, a in zip(names, self.attributes, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Node):
    """Reads a stream or derived stream."""

    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScan(Node):
    """Reads a table: on the right of a join with a stream, or below TableChanges."""

    table: str
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one below."""
        return (self.input,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Unary):
    """Keeps rows where the condition is true."""

    condition: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Unary):
    """Computes its attributes."""

    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges(Unary):
    """The rows of a table, the one below, as a change log (K28): appends the kind of the change, which a view's scan has (K29)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation(Unary):
    """A change log seen as a table while FROM is bound: its attributes but the kind of the change. `as_changes` takes it away again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(Unary):
    """Keeps the rows of one branch: those where the condition is true (`keep`), or all others. Branches of one split are shared."""

    condition: Expression
    keep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Unary):
    """Puts each row into its windows and appends window_start and window_end. `spec.partition` are positions in the input.

    With `changes` it appends the kind of a change too: '+' when a row enters a sliding window, '-' when it leaves.
    """

    spec: WindowSpec
    changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Unary):
    """GROUP BY. Attributes: the keys, the aggregates, and window_start and window_end when the input is windowed.

    The input is the Project that computes keys, arguments and FILTER conditions (and passes the window's columns through).
    `retracts` is the position of the input's change kind when the input is a change log. When `emit` says CHANGES the last attribute
    is the kind of the change.
    """

    keys: tuple[int, ...]
    items: tuple[AggregateCall, ...]
    windowed: bool
    emit: EmitSpec = field(default_factory=EmitSpec)
    retracts: int | None = None


@dataclass(frozen=True, slots=True)
class JoinKey:
    """One equality of a join: an expression over the left input, one over the right, of one type; `null_safe`: IS NOT DISTINCT FROM."""

    left: Expression
    right: Expression
    null_safe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    """A node with two inputs."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left and right."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedJoin(Binary):
    """A join: rows meet whose keys are equal and for which the residual over left's then right's attributes is true."""

    kind: JoinKind
    keys: tuple[JoinKey, ...]
    residual: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(KeyedJoin):
    """Stream–stream join: lower_us <= right.time - left.time <= upper_us."""

    lower_us: int | None
    upper_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin(KeyedJoin):
    """Stream–table join: the table's version at the left row's place in arrival order (K18). `kind` is INNER or LEFT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeJoin(KeyedJoin):
    """Join of two change logs (K28). Attributes: the left's and the right's without the kinds of their changes, then the join's own.

    Keys and residual count the attributes of either input without the kind of the change, which stands last. While FROM is bound, it has
    relations below and no kind of the change itself.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryJoin(Binary):
    """Appends to each left row what a subquery, the right input, says of it (K25): `kind` is MARK or SINGLE.

    The right side of a key, and of `compared` (x IN (SELECT y …)), is a column. `ends` are the columns of both sides that hold the end of
    the window which they share. In a continuous query without `ends` the right is made of one table, step by step.
    """

    kind: JoinKind
    keys: tuple[JoinKey, ...]
    compared: JoinKey | None = None
    residual: Expression | None = None
    ends: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsofJoin(KeyedJoin):
    """As-of join: the last right row of the key with time <= the left's (K18; `strict`: <). `kind` is INNER or LEFT.

    `forward`: the first with time >= the left's (`strict`: >), and then no residual. `within_us`: how far away it may be at most.
    """

    strict: bool = False
    forward: bool = False
    within_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(Node):
    """Merges its inputs by arrival."""

    branches: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """All branches."""
        return self.branches


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(Unary):
    """Each different row once: per window when `window` says so, else once and for all."""

    window: WindowSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Top(Unary):
    """The first `limit` rows of each window in the given order; `with_ties` also those equal to the last."""

    order: tuple[OrderColumn, ...]
    limit: int
    with_ties: bool
    partition: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Unary):
    """Appends one attribute: the number of a row in its partition. That is complete when W reaches column `closing` plus `shift_us`.

    Without `closing`, of a FETCH, it is complete when all rows have come.
    """

    function: str
    order: tuple[OrderColumn, ...]
    partition: tuple[int, ...]
    closing: int | None
    shift_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTop(Unary):
    """The first `limit` rows of each group of all rows so far (K24); appends the number of a row in its group and the kind of the change.

    `limit` is None until what the query asks of the number is known (`running_tops.py`), as is `numbered`: somebody reads the number.
    `retracts`: the input is a change log, and this the position of the kind of its changes; then `order` has all other columns too.
    """

    order: tuple[OrderColumn, ...]
    partition: tuple[int, ...]
    limit: int | None = None
    numbered: bool = True
    retracts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag(Unary):
    """Appends one attribute: the value of column `value` in the row `offset` before this one of the same partition."""

    value: int
    offset: int
    partition: tuple[int, ...]


def lag_attribute(attributes: tuple[Attribute, ...], type_: DataType) -> Attribute:
    """Return what LAG appends to attributes: called as none of them, so that a plan object can name it."""
    taken = {attribute.name for attribute in attributes}
    return Attribute(next(name for name in ("lag", *(f"lag_{n}" for n in range(1, len(taken) + 1))) if name not in taken), type_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Over(Unary):
    """Appends an attribute for each aggregate of each part: its answer over the frame of a row."""

    parts: tuple[OverPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(Unary):
    """The matches of a row pattern: the partition's attributes (of ALL ROWS the input's), then one a measure."""

    spec: MatchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnest(Unary):
    """A row for each item of a list, or entry of a map: appends the item (key and value), and its number when `numbered`."""

    items: Expression
    numbered: bool = False
    outer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows(Unary):
    """The rows of a view that only come, each as long as it is kept (K29): appends the kind of the change."""

    rows_max: int | None = None
    kept_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationToStream(Unary):
    """ISTREAM ('i'), DSTREAM ('d'), RSTREAM ('r', every `every_us` if given) or EMIT FINAL ('f') of an input that changes."""

    stream: str
    every_us: int | None = None


@dataclass(frozen=True, slots=True)
class LogicalQuery:
    """A whole query: its plan, how answers leave, options, and notes for EXPLAIN."""

    root: Node
    emit: EmitSpec
    options: QueryOptions
    notes: tuple[str, ...] = ()

    @property
    def change_kind(self) -> int | None:
        """The position of the `op` column when the answer is a change log."""
        return change_position(self.root.attributes)


def unique_names(names: list[str]) -> list[str]:
    """Return the names with the suffix _1 for a second one that is the same, _2 for a third."""
    taken, seen, result = set(names), set[str](), []
    if len(taken) == len(names):
        return names
    suffixes: dict[str, int] = {}  # the last that a name was given
    for original in names:
        name, suffix = original, suffixes.get(original, 0)
        while name in seen or (suffix and name in taken):
            suffix += 1
            name = f"{original}_{suffix}"
        if suffix:
            suffixes[original] = suffix
        seen.add(name)
        result.append(name)
    return result


AnyNode = TypeVar("AnyNode", bound=Node)


def with_inputs(node: AnyNode, inputs: tuple[Node, ...]) -> AnyNode:
    """Return the node over other inputs of the same shape."""
    if isinstance(node, Unary):
        return node if node.input is inputs[0] else replace(node, input=inputs[0])
    if isinstance(node, Binary):
        return replace(node, left=inputs[0], right=inputs[1])
    if isinstance(node, Union):
        return replace(node, branches=inputs)
    return node


def walk_plan(node: Node) -> list[Node]:
    """Return the node and everything below it, inputs first."""
    found: list[Node] = []
    _walk_into(found, node)
    return found


def _walk_into(found: list[Node], node: Node) -> None:
    for below in node.inputs:
        _walk_into(found, below)
    found.append(node)


def passing(attributes: Attributes) -> tuple[Expression, ...]:
    """Return the references that pass all attributes through a Project unchanged."""
    return tuple(a.reference(i) for i, a in enumerate(attributes))


def change_position(attributes: Attributes) -> int | None:
    """Return the position of the change kind, or None when the rows are not a change log."""
    return next((i for i, a in enumerate(attributes) if a.role is Role.CHANGE), None)


def table_below(node: Node) -> TableScan | None:
    """Return the one table that a node's rows are made of, step by step; None where there is another input, or several."""
    while isinstance(node, Unary):
        node = node.input
    return node if isinstance(node, TableScan) else None


IN_PLACE_OF = {
    "a subquery": "join tables and views: JOIN (SELECT DISTINCT k FROM b) q ON a.k = q.k, for NOT EXISTS with LEFT JOIN and "
    "WHERE q.k IS NULL; a stream's rows may ask a table, not a view",
    "ORDER BY … LIMIT": "write ORDER BY … LIMIT n, without WITH TIES",
    "RANK": "ROW_NUMBER() OVER ( ) <= n works",
    "DENSE_RANK": "ROW_NUMBER() OVER ( ) <= n works",
    "UNION": "write SELECT DISTINCT … FROM (SELECT … UNION ALL SELECT …) q",
    "INTERSECT": "of a stream and a table write WHERE k IN (SELECT k FROM b), of others a JOIN (SELECT DISTINCT … FROM b) q ON …",
    "EXCEPT": "of a stream and a table write WHERE k NOT IN (SELECT k FROM b), of others a LEFT JOIN (SELECT DISTINCT … FROM b) q ON … "
    "WHERE q.k IS NULL",
}  # what says the same of rows that change


def check_append_only(node: Node, what: str, place: Place | None = None, token: str | None = None) -> None:
    """Raise Unsupported, which names `what`, when the node's rows are a change log."""
    if change_position(node.attributes) is not None:
        line, column = (place.line, place.column) if place is not None else (None, None)
        message = f"{what} over a change log is not supported"
        of_tables = any(isinstance(below, TableChanges) for below in walk_plan(node))
        hint = "FETCH SELECT … answers it over what stands now" if of_tables else "aggregate inside a window, or EMIT FINAL"
        hint = f"{IN_PLACE_OF[what]}; {hint}" if what in IN_PLACE_OF else hint
        raise Unsupported(message, hint=hint, line=line, column=column, token=token)


def requalified(attributes: Attributes, qualifier: str | None) -> Attributes:
    """Return the attributes as they are called under an alias."""
    return tuple(replace(a, qualifier=qualifier, covered=False, called=None) for a in attributes)
