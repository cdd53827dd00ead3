"""What the parser makes of text: statements, and the query as written, before any name is looked up. Plain data.

Clauses are our own records; the expressions inside them are sqlglot nodes whose `meta` carries line and column. Durations are
microseconds. Names are already folded to lower case unless they were quoted.

`text` is the part of the source that matters later: of a query its SELECT (so that a catalogue can keep it and bind it again), of a
derived stream likewise.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, StreamDefinition, TableDefinition
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import EmitSpec, JoinKind, MatchSkip, Pattern, WindowKind

if TYPE_CHECKING:
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
    """A derived table: (SELECT …) [window] alias [(column, …)]."""

    query: SelectQuery
    window: WindowClause | None
    alias: Name | None
    place: Place = field(default=Place(), compare=False)
    columns: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class UnnestItem(FromItem):
    """UNNEST(list or map) [WITH ORDINALITY] [AS] alias [(column, …)]: a row for each item. It stands behind what it reads."""

    expression: exp.Expr
    alias: Name | None
    columns: tuple[Name, ...] = ()
    numbered: bool = False
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class Measure:
    """One of MEASURES: its expression and name. `final`: FINAL (true) or RUNNING (false) stands before it."""

    expression: exp.Expr
    name: Name | None
    final: bool | None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class MatchItem(FromItem):
    """source MATCH_RECOGNIZE ( … ). `pattern` names variables by place in `variables`; `define` and `subsets` are as written.

    `skip_to` is the variable of AFTER MATCH SKIP TO; `order` the keys of ORDER BY.
    """

    source: NamedItem | SubqueryItem
    partition: tuple[exp.Expr, ...]
    order: tuple[OrderItem, ...]
    measures: tuple[Measure, ...]
    variables: tuple[Name, ...]
    pattern: Pattern
    define: tuple[tuple[Name, exp.Expr], ...]
    subsets: tuple[tuple[Name, tuple[Name, ...]], ...] = ()
    skip: MatchSkip = MatchSkip.PAST_LAST
    skip_to: Name | None = None
    within_us: int | None = None
    all_rows: bool = False
    shows_empty: bool = True
    alias: Name | None = None
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
    """SELECT … FROM … WHERE … GROUP BY … HAVING … of one branch.

    `group_all` is GROUP BY ALL; `grouping_sets` the groupings of GROUPING SETS, ROLLUP and CUBE, in place of `group_by`.
    """

    items: tuple[SelectItem | Star, ...]
    source: FromItem
    where: exp.Expr | None = None
    group_by: tuple[exp.Expr, ...] = ()
    having: exp.Expr | None = None
    distinct: bool = False
    place: Place = field(default=Place(), compare=False)
    distinct_on: tuple[exp.Expr, ...] = ()
    group_all: bool = False
    grouping_sets: tuple[tuple[exp.Expr, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class UnionBody:
    """SELECT … UNION ALL SELECT …; at least two branches."""

    branches: tuple[SelectQuery, ...]
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class SetBody:
    """Two SELECTs and UNION, INTERSECT or EXCEPT (`operator`, in lower case) between them. `by_name`: their columns meet by name.

    `keeps_all`: it says ALL; all others give each different row once. UNION ALL of columns by position is a UnionBody.
    """

    operator: str
    left: SelectQuery
    right: SelectQuery
    by_name: bool = False
    keeps_all: bool = False
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class CommonTable:
    """name [(column, …)] AS (SELECT …) of a WITH clause."""

    name: Name
    query: SelectQuery
    columns: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A whole SELECT. `emit` None means that the text says nothing; `stream` is 'i', 'd', 'r' or None.

    `every_us` is the EVERY of RSTREAM.
    """

    body: SelectBody | UnionBody | SetBody
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


class ObjectKind(Enum):
    """What CREATE makes and DROP removes."""

    STREAM = "STREAM"
    TABLE = "TABLE"
    QUERY = "QUERY"
    CLASS = "CLASS"
    FUNCTION = "FUNCTION"


class QueryVerb(Enum):
    """What can be asked of a named query."""

    START = "START"
    STOP = "STOP"
    PAUSE = "PAUSE"
    RESUME = "RESUME"


class ShowWhat(Enum):
    """What SHOW lists."""

    STREAMS = "STREAMS"
    TABLES = "TABLES"
    ARCHIVES = "ARCHIVES"
    QUERIES = "QUERIES"
    CLASSES = "CLASSES"
    FUNCTIONS = "FUNCTIONS"
    POLICIES = "POLICIES"
    SHARING = "SHARING"
    WATERMARKS = "WATERMARKS"
    DECISIONS = "DECISIONS"
    MEASURES = "MEASURES"
    SCHEDULER = "SCHEDULER"
    WORKERS = "WORKERS"
    OPERATORS = "OPERATORS"
    SOURCES = "SOURCES"
    SINKS = "SINKS"


class ExplainMode(Enum):
    """Which explanation is asked for."""

    PLAN = "PLAN"
    SEMANTICS = "SEMANTICS"
    ANALYZE = "ANALYZE"
    QOS = "QOS"


@dataclass(frozen=True, slots=True)
class Statement:
    """Base of the family."""


@dataclass(frozen=True, slots=True)
class SelectStatement(Statement):
    """A bare SELECT: a temporary query, owned by whoever sent it."""

    query: SelectQuery
    text: str


@dataclass(frozen=True, slots=True)
class HistoryOf:
    """`stream HISTORY [FROM ts] [TO ts]`: event times [from, to) in µs since 1970, None where no bound is given."""

    stream: Name
    from_us: int | None = None
    to_us: int | None = None


@dataclass(frozen=True, slots=True)
class Fetch(Statement):
    """FETCH SELECT … | FETCH QUERY name: an answer once and at once, from what is held. Exactly one of `query` and `name` is set.

    `history` names the streams whose whole past is asked for.
    """

    query: SelectQuery | None = None
    name: Name | None = None
    text: str = ""
    history: tuple[HistoryOf, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateStream(Statement):
    """CREATE STREAM name (columns) …."""

    definition: StreamDefinition
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateDerivedStream(Statement):
    """CREATE STREAM name AS SELECT …."""

    name: str
    query: SelectQuery
    text: str
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """CREATE TABLE name (columns, PRIMARY KEY (…)) [FROM 'file' [REFRESH [MIN FRESHNESS f]]]."""

    definition: TableDefinition
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateQuery(Statement):
    """CREATE QUERY name [WITH (…)] AS SELECT …: a durable continuous query."""

    name: str
    query: SelectQuery
    text: str
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class ClassDefinition:
    """A query class: priority (greater is more important), delay target in µs, whether its input may be shed, its workers (none: any)."""

    name: str
    priority: float = 1.0
    target_us: int | None = None
    may_shed: bool = False
    workers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateClass(Statement):
    """CREATE CLASS name PRIORITY n [TARGET d] [SHED | NEVER SHED] [WORKERS n, …]."""

    definition: ClassDefinition
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A function in Python: its parameters and result, the file that holds it, how long a call may take in µs."""

    name: str
    parameters: tuple[Field, ...]
    result: DataType
    file: str
    limit_us: int


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """CREATE FUNCTION name (parameter type, …) RETURNS type FROM 'file.py' [TIME LIMIT d]."""

    definition: FunctionDefinition
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class InsertValues(Statement):
    """INSERT INTO name [(columns)] VALUES (…), …; `planner.insert.bind_rows` makes values of the expressions."""

    name: Name
    columns: tuple[Name, ...]
    rows: tuple[tuple[exp.Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class InsertSelect(Statement):
    """INSERT INTO stream [(columns)] SELECT …: a continuous statement."""

    name: Name
    columns: tuple[Name, ...]
    query: SelectQuery
    text: str


@dataclass(frozen=True, slots=True)
class ChangeQuery(Statement):
    """START | STOP | PAUSE | RESUME QUERY name."""

    verb: QueryVerb
    name: Name


@dataclass(frozen=True, slots=True)
class AlterStream(Statement):
    """ALTER STREAM name ADD [COLUMN] [IF NOT EXISTS] column type, …: columns behind those that are there.

    `skips` names those that may be there already.
    """

    name: Name
    columns: tuple[Field, ...]
    skips: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AlterQuery(Statement):
    """ALTER QUERY name SET (option = value, …)."""

    name: Name
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class CommentOn(Statement):
    """COMMENT ON STREAM | TABLE | QUERY | CLASS | FUNCTION | SOURCE | SINK name IS 'text'; `text` None is IS NULL, which takes it away."""

    kind: str
    name: Name
    text: str | None


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """DROP STREAM | TABLE | QUERY | MATERIALIZED VIEW | CLASS | FUNCTION [IF EXISTS] name [CASCADE]. A view is a query."""

    kind: ObjectKind
    name: Name
    cascade: bool = False
    if_exists: bool = False
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """SHOW STREAMS and the like."""

    what: ShowWhat


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """DESCRIBE [STREAM | TABLE | QUERY | CLASS] name."""

    name: Name
    kind: ObjectKind | None = None


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN [SEMANTICS | ANALYZE | QOS] SELECT … | name. Exactly one of `query` and `name` is set."""

    mode: ExplainMode
    query: SelectQuery | None = None
    name: Name | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class SetPolicy(Statement):
    """SET POLICY name [WITH (…)]."""

    name: Name
    options: tuple[Option, ...] = ()


class ConnectorKind(Enum):
    """Which way a connector goes: rows into a stream, or results out of a query."""

    SOURCE = "SOURCE"
    SINK = "SINK"

    @property
    def noun(self) -> str:
        """The word in a sentence."""
        return self.value.lower()


@dataclass(frozen=True, slots=True)
class EnvironmentName:
    """ENV('NAME'): the value of a variable where the connector runs, so that no secret stands in a statement."""

    variable: str


ConnectorValue: TypeAlias = str | int | float | bool | EnvironmentName


@dataclass(frozen=True, slots=True)
class ConnectorDefinition:
    """A source or sink: the stream or query that is its `target`, and its options as they were written."""

    kind: ConnectorKind
    name: str
    target: str
    options: tuple[tuple[str, ConnectorValue], ...]

    def option(self, name: str) -> str:
        """Return an option as text, the empty one when it is not there."""
        value = dict(self.options).get(name, "")
        return "" if isinstance(value, EnvironmentName) else str(value)


@dataclass(frozen=True, slots=True)
class CreateConnector(Statement):
    """CREATE SOURCE name INTO stream WITH (…), CREATE SINK name FROM query WITH (…)."""

    definition: ConnectorDefinition
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class DropConnector(Statement):
    """DROP SOURCE | SINK [IF EXISTS] name."""

    kind: ConnectorKind
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeConnector(Statement):
    """PAUSE | RESUME SOURCE | SINK name."""

    kind: ConnectorKind
    verb: QueryVerb
    name: Name


@dataclass(frozen=True, slots=True)
class ExplainConnector(Statement):
    """EXPLAIN SOURCE | SINK name."""

    kind: ConnectorKind
    name: Name


@dataclass(frozen=True, slots=True)
class ReportConnector(Statement):
    """REPORT SOURCE | SINK name 'json': what `millstream connect` tells of one."""

    kind: ConnectorKind
    name: Name
    report: str


class Recorded(Enum):
    """What can be recorded of a running server."""

    ARRIVALS = "ARRIVALS"
    DECISIONS = "DECISIONS"


@dataclass(frozen=True, slots=True)
class SetRecording(Statement):
    """START | STOP RECORDING [ARRIVALS | DECISIONS]."""

    what: Recorded
    begins: bool


@dataclass(frozen=True, slots=True)
class ShowRecording(Statement):
    """SHOW RECORDING [LAST duration]: what arrived before now; None for all that is kept."""

    last_us: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the source that one statement occupies: its text without the semicolon, offsets, and place of its first token."""

    text: str
    start: int
    stop: int
    place: Place = field(default=Place())
