"""The query as written: what the parser makes of a SELECT, before any name is looked up.

Clauses are our own records; the expressions inside them are sqlglot nodes whose `meta` carries line and column. Durations are
microseconds. Names are already folded to lower case unless they were quoted.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from millstream.engine.data.records import dataclass
from millstream.engine.language.recipes import EmitSpec, JoinKind, WindowKind

if TYPE_CHECKING:  # loading sqlglot takes as long as loading NumPy, and only the parser and the planner make nodes
    from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the text something stands; 1-based line and column."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier, folded, with its place."""

    text: str
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `alias.*` in a select list."""

    qualifier: Name | None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One expression of a select list with its alias, if it has one. `text` is the expression as written."""

    expression: exp.Expr
    alias: Name | None
    text: str
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One key of ORDER BY. NULLs sort last ascending and first descending (K13) unless the text says otherwise."""

    expression: exp.Expr
    descending: bool
    nulls_first: bool
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class WindowClause:
    """A window as written, in any spelling. `partition` are the expressions of PARTITION BY.

    `landmark` is the expression of LANDMARK FROM; `descriptor` the column that a window function named as its time.
    """

    kind: WindowKind
    range_us: int = 0
    slide_us: int = 0
    offset_us: int = 0
    zone: str | None = None
    slide_within: bool = False
    rows: int = 0
    rows_slide: int = 0
    partition: tuple[exp.Expr, ...] = ()
    gap_us: int = 0
    max_us: int | None = None
    landmark: exp.Expr | None = None
    state_rows_max: int | None = None
    descriptor: Name | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class FromItem:
    """Base of what may stand in FROM."""


@dataclass(frozen=True, slots=True)
class NamedItem(FromItem):
    """A stream, table, derived stream or common table expression, with its window and alias."""

    name: Name
    window: WindowClause | None
    alias: Name | None


@dataclass(frozen=True, slots=True)
class SubqueryItem(FromItem):
    """A derived table: (SELECT …) [window] alias."""

    query: Query
    window: WindowClause | None
    alias: Name | None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class JoinItem(FromItem):
    """left JOIN right. A comma in FROM is an inner join whose condition stands in WHERE (`comma`).

    `within_us` is WITHIN d; `asof` an ASOF JOIN; `system_time` the expression of FOR SYSTEM_TIME AS OF;
    `using` the columns of USING, which stands in place of ON.
    """

    left: FromItem
    right: FromItem
    kind: JoinKind
    on: exp.Expr | None
    within_us: int | None = None
    asof: bool = False
    system_time: exp.Expr | None = None
    comma: bool = False
    using: tuple[Name, ...] = ()
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class Option:
    """One `name = value` of a WITH list."""

    name: str
    value: str | int | float | bool
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class SelectBody:
    """SELECT … FROM … WHERE … GROUP BY … HAVING … of one branch."""

    items: tuple[SelectItem | Star, ...]
    source: FromItem
    where: exp.Expr | None = None
    group_by: tuple[exp.Expr, ...] = ()
    having: exp.Expr | None = None
    distinct: bool = False
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class UnionBody:
    """SELECT … UNION ALL SELECT …; at least two branches."""

    branches: tuple[Query, ...]
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class CommonTable:
    """name AS (SELECT …) of a WITH clause."""

    name: Name
    query: Query


@dataclass(frozen=True, slots=True)
class Query:
    """A whole SELECT. `emit` None means that the text says nothing; `stream` is 'i', 'd', 'r' or None.

    `every_us` is the EVERY of RSTREAM.
    """

    body: SelectBody | UnionBody
    common_tables: tuple[CommonTable, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    limit: int | None = None
    with_ties: bool = False
    emit: EmitSpec | None = None
    emit_place: Place | None = field(default=None, compare=False)
    options: tuple[Option, ...] = ()
    stream: str | None = None
    every_us: int | None = None
    place: Place = field(default=Place(), compare=False)
