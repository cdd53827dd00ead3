"""CREATE: streams, tables, queries, classes, and functions in Python."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from millstream.engine.aggregates.table import is_aggregate
from millstream.engine.data.errors import InvalidDefinition, NameTaken
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import ARCHIVE_COLUMNS, ArchiveRule, Field, OnError, Schema, StreamDefinition, TableDefinition, TimeRule
from millstream.engine.expressions.functions import is_function
from millstream.engine.language import statements
from millstream.engine.language.column_types import TypeParser, checked_time_rule
from millstream.engine.language.select_parser import SelectParser
from sqlglot.tokenizer_core import TokenType

COMMENT_LENGTH_MAX = 2_000  # a page: SHOW gives them all
LIMIT_US = 1_000_000  # unless TIME LIMIT says otherwise
_TAKEN = ("tumble", "hop", "session", "cumulate", "lag", "lead", "rank", "row_number", "dense_rank")


def create_function(parser: TypeParser, rule: Existing) -> statements.CreateFunction:
    """Read the statement after CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS]."""
    name = parser.name("function name", check=True)
    _check_name(name)
    parser.expect_symbol(TokenType.L_PAREN, "(", "before the parameters")
    parameters: list[Field] = []
    if not parser.sees_symbol(TokenType.R_PAREN):
        parser.listed(lambda: parameters.append(_parameter(parser, parameters)))
    parser.expect_symbol(TokenType.R_PAREN, ")", "after the parameters")
    if not parameters:
        raise parser.problem("a function needs at least one parameter: a function of nothing is a constant", parser.previous)
    parser.expect("RETURNS", where="after the parameters")
    result = parser.column_type()
    if not parser.takes_symbol(TokenType.FROM):
        parser.unexpected(["FROM"], "after the type of the result")
    file = parser.string("a file name")
    limit_us = LIMIT_US
    if parser.takes("TIME", "LIMIT"):
        limit_us = parser.duration("TIME LIMIT")
    definition = statements.FunctionDefinition(name.text, tuple(parameters), result, file, limit_us)
    return statements.CreateFunction(definition, *rule)


def _check_name(name: statements.Name) -> None:
    place = name.place
    if is_function(name.text) or is_aggregate(name.text) or name.text in _TAKEN:
        raise NameTaken(
            f"{name.text.upper()} is a function of the language", hint="take another name", line=place.line, column=place.column
        )
    if name.text != name.text.lower() or not name.text.isidentifier():
        raise InvalidDefinition(
            f"a function's name must be a lower-case Python name, not {name.text}", line=place.line, column=place.column
        )


def _parameter(parser: TypeParser, before: list[Field]) -> Field:
    name = parser.name("parameter name", check=True)
    if any(f.name == name.text for f in before):
        raise parser.problem(f"parameter {name.text} is named twice", parser.previous)
    return Field(name.text, parser.column_type())


def _check_archive(definition: StreamDefinition, name: statements.Name) -> None:
    """Refuse an archive of rows that nothing holds until they are in it, and columns that it adds itself."""
    if definition.archive is None:
        return
    if definition.durability == "none":
        raise InvalidDefinition(
            f"stream {definition.name} says ARCHIVE, and its rows are not journaled until they are archived",
            hint="add DURABILITY journal or DURABILITY sync",
            line=name.place.line,
            column=name.place.column,
        )
    for column in ARCHIVE_COLUMNS:
        if definition.schema.position(column) is not None:
            raise InvalidDefinition(
                f"the archive of stream {definition.name} adds a column {column}",
                hint="choose another name for the stream's",
                line=name.place.line,
                column=name.place.column,
                token=column,
            )


Existing = tuple[bool, bool]
"""What is to become of one that has the name: IF NOT EXISTS leaves it, OR REPLACE takes its place."""
_KINDS = ("STREAM", "TABLE", "QUERY", "CLASS", "FUNCTION", "SOURCE", "SINK")
_TIME_WORDS = ("UNIT", "ROUND", "ZONE")
_STREAM_CLAUSES = ("TIMESTAMP BY", "DELAY", "WATERMARK", "SKEW", "IDLE", "LATE", "ON ERROR", "DURABILITY", "ARCHIVE", "RATE")


@dataclass(slots=True)
class StreamClauses:
    """The clauses of CREATE STREAM as they are read. `named` are those already seen."""

    time: TimeRule = field(default_factory=TimeRule)
    time_name: statements.Name | None = None
    late_into: str | None = None
    on_error: OnError = OnError.DROP
    errors_into: str | None = None
    durability: str = "none"
    rate: float | None = None
    archive: ArchiveRule | None = None
    named: set[str] = field(default_factory=set)


class DefinitionParser(TypeParser, SelectParser):
    """Adds CREATE to the cursor."""

    def create(self) -> statements.Statement:
        """Read a CREATE statement after the word CREATE."""
        replaces = self.takes("OR", "REPLACE")
        is_view = self.takes("MATERIALIZED", "VIEW")
        kind = "QUERY" if is_view else self.choice(_KINDS, "after CREATE OR REPLACE" if replaces else "after CREATE")
        rule = self.takes("IF", "NOT", "EXISTS"), replaces
        if all(rule):
            raise self.problem("OR REPLACE and IF NOT EXISTS contradict one another", self.previous, hint="write one of the two")
        if kind == "STREAM":
            return self._create_stream(rule)
        if kind == "TABLE":
            return self._create_table(rule)
        if kind == "QUERY":
            return self._create_query(rule, is_view=is_view)
        if kind == "FUNCTION":
            return create_function(self, rule)
        if kind in ("SOURCE", "SINK"):
            from millstream.engine.language.connector_parser import create_connector  # loaded by the first that is read

            return create_connector(self, statements.ConnectorKind(kind), rule)
        return self._create_class(rule)

    def alter(self) -> statements.Statement:
        """Read an ALTER statement after the word ALTER."""
        if self.choice(("STREAM", "QUERY"), "after ALTER") == "STREAM":
            return self._alter_stream()
        name = self.name("query name")
        self.expect("SET", where="after the name of the query")
        return statements.AlterQuery(name, self.options("after SET"))

    def _alter_stream(self) -> statements.AlterStream:
        name = self.name("stream name")
        columns: list[Field] = []
        skips: set[str] = set()

        def one() -> None:
            self.expect("ADD", where="in ALTER STREAM")
            self.takes("COLUMN")
            may_exist = self.takes("IF", "NOT", "EXISTS")
            column = self._column(columns)
            if not column.nullable:
                message = f"column {column.name} cannot be NOT NULL: rows that came before, and those of older publishers, have none"
                raise InvalidDefinition(message, hint="leave NOT NULL out", line=self.previous.line, column=self.previous.col)
            if may_exist:
                skips.add(column.name)
            columns.append(column)

        self.listed(one)
        return statements.AlterStream(name, tuple(columns), frozenset(skips))

    def comment(self) -> statements.CommentOn:
        """Read COMMENT ON kind name IS 'text' | NULL after the word COMMENT."""
        self.expect("ON", where="after COMMENT")
        kind = "query" if self.takes("MATERIALIZED", "VIEW") else self.choice(_KINDS, "after COMMENT ON").lower()
        name = self.name(f"{kind} name")
        self.expect("IS", where=f"after the name of the {kind}")
        if self.takes_symbol(TokenType.NULL):
            return statements.CommentOn(kind, name, None)
        place = self.current
        text = self.string("a comment")
        if len(text) > COMMENT_LENGTH_MAX:
            raise self.problem(f"a comment has at most {COMMENT_LENGTH_MAX} characters, and this one has {len(text)}", place)
        return statements.CommentOn(kind, name, text or None)

    # -- streams --------------------------------------------------------------------------------------------------------------

    def _create_stream(self, rule: Existing) -> statements.Statement:
        name = self.name("stream name", check=True)
        if self.takes_symbol(TokenType.ALIAS):
            query, text = self.query_with_text()
            return statements.CreateDerivedStream(name.text, query, text, *rule)
        clauses = StreamClauses()
        columns = self._stream_columns(clauses)
        while self._stream_clause(clauses):
            pass
        schema = Schema(columns)
        definition = StreamDefinition(
            name.text,
            schema,
            checked_time_rule(clauses.time, schema, clauses.time_name),
            clauses.late_into,
            clauses.on_error,
            clauses.errors_into,
            clauses.durability,
            clauses.rate,
            clauses.archive,
        )
        _check_archive(definition, name)
        return statements.CreateStream(definition, *rule)

    def _stream_columns(self, clauses: StreamClauses) -> tuple[Field, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "before the columns")
        columns: list[Field] = []

        def one() -> None:
            if self.sees("WATERMARK", "FOR"):
                self._watermark(clauses)
            else:
                columns.append(self._column(columns))

        self.listed(one)
        self.expect_symbol(TokenType.R_PAREN, ")", "after the columns")
        if not columns:
            raise self.problem("a stream needs at least one column", self.previous)
        return tuple(columns)

    def _column(self, before: list[Field]) -> Field:
        name = self.name("column name", check=True)
        if any(f.name == name.text for f in before):
            place = name.place
            raise InvalidDefinition(f"column {name.text} is named twice", line=place.line, column=place.column, token=name.text)
        type_ = self.column_type()
        if self.takes("NOT", "NULL"):
            return Field(name.text, type_, nullable=False)
        self.takes_symbol(TokenType.NULL)
        return Field(name.text, type_)

    def _stream_clause(self, clauses: StreamClauses) -> bool:
        if self.at_end():
            return False
        if self.takes("TIMESTAMP"):
            self._once(clauses, "TIMESTAMP BY")
            self._timestamp_by(clauses)
        elif self.takes("DELAY"):
            self._once(clauses, "DELAY")
            clauses.time = replace(clauses.time, delay_us=self.duration("DELAY", least=0))
        elif self.sees("WATERMARK"):
            self._watermark(clauses)
        elif self.takes("SKEW"):
            self._once(clauses, "SKEW")
            clauses.time = replace(clauses.time, skew_us=self.duration("SKEW", least=0))
        elif self.takes("IDLE"):
            self._once(clauses, "IDLE")
            clauses.time = replace(clauses.time, idle_us=self.duration("IDLE"), idle_flush=self.takes("FLUSH"))
        else:
            self._handling_clause(clauses)
        return True

    def _handling_clause(self, clauses: StreamClauses) -> None:
        if self.takes("LATE"):
            self._once(clauses, "LATE")
            if self.choice(("DROP", "INTO"), "after LATE") == "INTO":
                clauses.late_into = self.name("stream name").text
        elif self.takes("ON", "ERROR"):
            self._once(clauses, "ON ERROR")
            clauses.on_error = OnError(self.choice(("FAIL", "DROP", "INTO"), "after ON ERROR"))
            if clauses.on_error is OnError.INTO:
                clauses.errors_into = self.name("stream name").text
        elif self.takes("DURABILITY"):
            self._once(clauses, "DURABILITY")
            clauses.durability = self._durability()
        elif self.takes("ARCHIVE"):
            self._once(clauses, "ARCHIVE")
            clauses.archive = self._archive()
        elif self.takes("RATE"):
            self._once(clauses, "RATE")
            clauses.rate = self.number("RATE")
            if clauses.rate <= 0:
                raise self.problem("RATE must be positive", self.previous)
            self.expect("PER", "SECOND", where="after RATE n")
        else:
            self._misplaced_time_word()
            self.unexpected(_STREAM_CLAUSES, "in CREATE STREAM")

    def _misplaced_time_word(self) -> None:
        """Refuse what says more of the time column, and stands apart from it."""
        word = next((word for word in _TIME_WORDS if self.sees(word)), None)
        if word is not None:
            hint = "write TIMESTAMP BY ts [UNIT u] [ROUND] [ZONE 'Area/City'], and the other clauses after that"
            raise self.problem(f"{word} belongs directly after the time column of TIMESTAMP BY", hint=hint)

    def _archive(self) -> ArchiveRule:
        """Read [INTO 'uri'] [PARTITION BY DAY] [KEEP n DAYS] after ARCHIVE."""
        into = self.string("a place such as 's3://bucket/folder'") if self.takes("INTO") else None
        by_day = self.takes_symbol(TokenType.PARTITION_BY)
        if by_day:
            self.expect("DAY", where="after PARTITION BY")
        keep_days = None
        if self.takes("KEEP"):
            days = self.number("KEEP")
            if days < 1 or days != int(days):
                raise self.problem("KEEP needs a whole number of days, at least 1", self.previous)
            keep_days = int(days)
            self.choice(("DAYS", "DAY"), "after KEEP n")
        return ArchiveRule(into, by_day, keep_days)

    def _once(self, clauses: StreamClauses, clause: str) -> None:
        if clause in clauses.named:
            raise self.problem(f"{clause} is given twice", self.previous)
        clauses.named.add(clause)

    def _timestamp_by(self, clauses: StreamClauses) -> None:
        self.expect("BY", where="after TIMESTAMP")
        if self.takes("ARRIVAL"):
            if clauses.time_name is not None:
                raise self.problem("WATERMARK FOR names a column, but TIMESTAMP BY ARRIVAL has none", self.previous)
            return
        name = self.name("time column")
        unit, rounded, zone = None, False, None
        if self.takes("UNIT"):
            unit = self.choice(("S", "MS", "US", "NS"), "after UNIT").lower()
        rounded = self.takes("ROUND")
        if self.takes("ZONE"):
            zone = self.string("a time zone such as 'Europe/Rome'")
        self._time_column(clauses, name)
        clauses.time = replace(clauses.time, unit=unit, unit_round=rounded, zone=zone)

    def _time_column(self, clauses: StreamClauses, name: statements.Name) -> None:
        if clauses.time_name is not None and clauses.time_name != name:
            raise self.problem(f"a stream has one time column, not both {clauses.time_name.text} and {name.text}", self.previous)
        clauses.time_name = name
        clauses.time = replace(clauses.time, column=name.text)

    def _watermark(self, clauses: StreamClauses) -> None:
        """Read WATERMARK FOR col AS col - d, which is TIMESTAMP BY col DELAY d."""
        self.expect("WATERMARK", "FOR")
        self._once(clauses, "DELAY")
        name = self.name("time column")
        if "TIMESTAMP BY" in clauses.named and clauses.time_name is None:
            raise self.problem("WATERMARK FOR names a column, but TIMESTAMP BY ARRIVAL has none", self.previous)
        self._time_column(clauses, name)
        self.expect("AS", where="after the time column")
        again = self.name("time column")
        if again != name:
            raise self.problem(f"the watermark of {name.text} must be {name.text} or {name.text} - duration", self.previous)
        if self.takes_symbol(TokenType.DASH):
            clauses.time = replace(clauses.time, delay_us=self.duration("the delay", least=0))

    # -- tables, queries, classes ---------------------------------------------------------------------------------------------

    def _create_table(self, rule: Existing) -> statements.Statement:
        name = self.name("table name", check=True)
        self.expect_symbol(TokenType.L_PAREN, "(", "before the columns")
        columns: list[Field] = []
        key: list[statements.Name] = []

        def one() -> None:
            if self.takes("PRIMARY", "KEY"):
                self._primary_key(key)
            else:
                columns.append(self._column(columns))
                if self.takes("PRIMARY", "KEY"):
                    self._add_key(key, statements.Name(columns[-1].name, self.place()))

        self.listed(one)
        self.expect_symbol(TokenType.R_PAREN, ")", "after the columns")
        file = self.string("a file name") if self.takes_symbol(TokenType.FROM) else None
        fresh_min = self._refresh(file) if self.takes("REFRESH") else None
        durability = self._durability() if self.takes("DURABILITY") else "none"
        table = self._table(name, Schema(tuple(columns)), key, file)
        return statements.CreateTable(replace(table, durability=durability, fresh_min=fresh_min), *rule)

    def _refresh(self, file: str | None) -> float:
        """Read what follows REFRESH: MIN FRESHNESS f, or nothing."""
        if file is None:
            raise self.problem("REFRESH needs a file: write FROM 'file' REFRESH", self.previous)
        if not self.takes("MIN"):
            return 0.0
        self.expect("FRESHNESS", where="after MIN")
        share = self.number("the share of the time for which the table is to be fresh")
        if not 0.0 < share < 1.0:
            raise self.problem(
                f"MIN FRESHNESS is a share of the time, above 0 and below 1, not {share:g}", self.previous, hint="write MIN FRESHNESS 0.9"
            )
        return share

    def _durability(self) -> str:
        return self.choice(("NONE", "JOURNAL", "SYNC"), "after DURABILITY").lower()

    def _primary_key(self, key: list[statements.Name]) -> None:
        self.expect_symbol(TokenType.L_PAREN, "(", "after PRIMARY KEY")
        for name in self.listed(lambda: self.name("key column")):
            self._add_key(key, name)
        self.expect_symbol(TokenType.R_PAREN, ")", "after the key")

    def _add_key(self, key: list[statements.Name], name: statements.Name) -> None:
        if name in key:
            raise self.problem(f"key column {name.text} is named twice", self.previous)
        key.append(name)

    def _table(self, name: statements.Name, schema: Schema, key: list[statements.Name], file: str | None) -> TableDefinition:
        if not key:
            raise InvalidDefinition(
                f"table {name.text} has no primary key",
                hint="add PRIMARY KEY (column, …)",
                line=name.place.line,
                column=name.place.column,
                token=name.text,
            )
        for column in key:
            self.known_column(schema, column)
        return TableDefinition(name.text, schema, tuple(column.text for column in key), file)

    def _create_query(self, rule: Existing, *, is_view: bool = False) -> statements.Statement:
        """Read a query; a materialized view is one that keeps what stands after its changes."""
        name = self.name("name of the view" if is_view else "query name", check=True)
        options: tuple[statements.Option, ...] = ()
        if self.takes_symbol(TokenType.WITH):
            options = self.options()
        self.expect("AS", where="after the name of the view" if is_view else "after the name of the query")
        query, text = self.query_with_text()
        if is_view:
            options = (*(o for o in options if o.name != "materialized"), statements.Option("materialized", True, statements.Place()))
        return statements.CreateQuery(name.text, query, text, options, *rule)

    def query_with_text(self) -> tuple[Any, str]:
        """Read a query and return it with its source text."""
        start = self.current.start if self.current else len(self.sql)
        if not self.sees_query():
            self.unexpected(["SELECT"])
        query = self.query()
        return query, self.slice_from(start)

    def _create_class(self, rule: Existing) -> statements.Statement:
        definition = statements.ClassDefinition(self.name("class name", check=True).text)
        seen: set[str] = set()
        while not self.at_end():
            word = self.choice(("PRIORITY", "TARGET", "SHED", "NEVER SHED", "WORKERS"), "in CREATE CLASS")
            group = "SHED" if word.endswith("SHED") else word
            if group in seen:
                raise self.problem(f"{group} is given twice", self.previous)
            seen.add(group)
            definition = self._class_clause(definition, word)
        if "PRIORITY" not in seen:
            self.unexpected(["PRIORITY"])
        return statements.CreateClass(definition, *rule)

    def _workers(self) -> tuple[int, ...]:
        found: list[int] = []
        while not found or self.takes_symbol(TokenType.COMMA):
            found.append(self.integer("WORKERS"))
            if found[-1] in found[:-1]:
                raise self.problem(f"worker {found[-1]} is named twice", self.previous)
        return tuple(found)

    def _class_clause(self, definition: statements.ClassDefinition, word: str) -> statements.ClassDefinition:
        if word == "PRIORITY":
            priority = self.number("PRIORITY")
            if priority <= 0:
                raise self.problem("PRIORITY must be positive", self.previous)
            return replace(definition, priority=priority)
        if word == "TARGET":
            return replace(definition, target_us=self.duration("TARGET"))
        if word == "WORKERS":
            return replace(definition, workers=self._workers())
        return replace(definition, may_shed=word == "SHED")
