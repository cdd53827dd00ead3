"""Statements of the language as plain data: what `parse_script` and `parse_statement` return.

`text` is the part of the source that matters later: of a query its SELECT (so that a catalogue can keep it and bind it again), of a
derived stream likewise.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, StreamDefinition, TableDefinition
from millstream.engine.data.types import DataType
from millstream.engine.language.syntax import Name, Option, Place, Query

if TYPE_CHECKING:  # loading sqlglot takes as long as loading NumPy, and only the parser and the planner make nodes
    from sqlglot import exp


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
    QUERIES = "QUERIES"
    CLASSES = "CLASSES"
    FUNCTIONS = "FUNCTIONS"
    POLICIES = "POLICIES"
    SHARING = "SHARING"
    WATERMARKS = "WATERMARKS"
    DECISIONS = "DECISIONS"
    MEASURES = "MEASURES"
    SCHEDULER = "SCHEDULER"


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

    query: Query
    text: str


@dataclass(frozen=True, slots=True)
class Fetch(Statement):
    """FETCH SELECT … | FETCH QUERY name: an answer once and at once, from what is held. Exactly one of `query` and `name` is set."""

    query: Query | None = None
    name: Name | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateStream(Statement):
    """CREATE STREAM name (columns) …."""

    definition: StreamDefinition
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateDerivedStream(Statement):
    """CREATE STREAM name AS SELECT …."""

    name: str
    query: Query
    text: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """CREATE TABLE name (columns, PRIMARY KEY (…)) [FROM 'file']."""

    definition: TableDefinition
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateQuery(Statement):
    """CREATE QUERY name [WITH (…)] AS SELECT …: a durable continuous query."""

    name: str
    query: Query
    text: str
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ClassDefinition:
    """A query class: priority (greater is more important), delay target in µs, whether its input may be shed."""

    name: str
    priority: float = 1.0
    target_us: int | None = None
    may_shed: bool = False


@dataclass(frozen=True, slots=True)
class CreateClass(Statement):
    """CREATE CLASS name PRIORITY n [TARGET d] [SHED | NEVER SHED]."""

    definition: ClassDefinition
    if_not_exists: bool = False


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
    query: Query
    text: str


@dataclass(frozen=True, slots=True)
class ChangeQuery(Statement):
    """START | STOP | PAUSE | RESUME QUERY name."""

    verb: QueryVerb
    name: Name


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """DROP STREAM | TABLE | QUERY | CLASS | FUNCTION [IF EXISTS] name [CASCADE]."""

    kind: ObjectKind
    name: Name
    cascade: bool = False
    if_exists: bool = False


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
    query: Query | None = None
    name: Name | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class SetPolicy(Statement):
    """SET POLICY name [WITH (…)]."""

    name: Name
    options: tuple[Option, ...] = ()


class Recorded(Enum):
    """What can be recorded of a running server."""

    ARRIVALS = "ARRIVALS"
    DECISIONS = "DECISIONS"


@dataclass(frozen=True, slots=True)
class Record(Statement):
    """START | STOP RECORDING [ARRIVALS | DECISIONS]."""

    what: Recorded
    begins: bool


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the source that one statement occupies: its text without the semicolon, offsets, and place of its first token."""

    text: str
    start: int
    stop: int
    place: Place = field(default=Place())
