"""What is registered under which name: streams, derived streams, tables, named queries, classes, users' functions.

Plain memory. Names of streams, derived streams and tables share one space, as any of them may stand in FROM. Users' queries share it too,
as a FETCH reads their results (`server/host` checks that: catalogues of earlier versions may hold both). Classes and functions have names
of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from millstream.engine.data.errors import InUse, InvalidDefinition, NameTaken, UnknownName
from millstream.engine.data.nearest import SHOWN_QUERIES, SHOWN_RELATIONS, did_you_mean, near_or_listed
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema, StreamDefinition, TableDefinition
from millstream.engine.expressions.user_functions import UserFunction
from millstream.engine.language.names import shown, validate_name
from millstream.engine.language.statements import ClassDefinition

DEFAULT_CLASS_NAME = "default"


@dataclass(frozen=True, slots=True)
class TimeOffset:
    """A TIMESTAMP column that lies within [row time + least, row time + most], in µs; (0, 0) is the event time itself."""

    least_us: int = 0
    most_us: int = 0


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """CREATE STREAM name AS SELECT …: the SELECT's text, its output, what it reads, and which columns tell the time (K19).

    `units` says in microseconds what 1 means in those that are whole numbers. `changes`: it is a change log, whose last column `op` says
    '+' or '-'. `planner.plan.derived_stream` makes one from a plan. `view`: a materialized view, which a continuous query sees as a table.
    """

    name: str
    schema: Schema
    text: str
    reads: tuple[str, ...] = ()
    times: Mapping[str, TimeOffset] = field(default_factory=dict)
    changes: bool = False
    units: Mapping[str, int] = field(default_factory=dict)
    view: bool = False


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """CREATE QUERY (or INSERT INTO … SELECT): its whole statement, output, what it reads; `view`: how others see a materialized one."""

    name: str
    schema: Schema
    statement: str
    reads: tuple[str, ...] = ()
    view: DerivedStream | None = None


Relation = StreamDefinition | DerivedStream | TableDefinition
RELATION = "stream or table"


def noun_of(relation: Relation) -> str:
    """Return what a relation is called in sentences: stream or table."""
    return "table" if isinstance(relation, TableDefinition) else "stream"


class Catalog:
    """Definitions by name. Every method raises the errors of engine/data/errors.py; none leaves a half-made change."""

    def __init__(self) -> None:
        self._relations: dict[str, Relation] = {}
        self._queries: dict[str, NamedQuery] = {}
        self._functions: dict[str, UserFunction] = {}
        self._classes: dict[str, ClassDefinition] = {DEFAULT_CLASS_NAME: ClassDefinition(DEFAULT_CLASS_NAME)}

    # -- looking up -----------------------------------------------------------------------------------------------------------

    def readable(self, name: str) -> Relation:
        """Return what may stand in FROM under this name, a materialized view too, or raise UnknownName with the nearest one."""
        found = self._queries.get(name)
        return self.relation(name) if name in self._relations or found is None or found.view is None else found.view

    def relation(self, name: str) -> Relation:
        """Return the stream or table of this name, or raise UnknownName with the nearest one."""
        found = self._relations.get(name)
        if found is None and name in self._queries:
            hint = f"FETCH SELECT … FROM {name} reads its answers so far; to go on from them, CREATE STREAM other AS SELECT … and read that"
            raise UnknownName(f"{name} is a query, and a continuous query reads streams, tables and views", hint=hint, token=name)
        if found is None:
            raise UnknownName(
                f"there is no stream or table {name}", hint=did_you_mean(name, self._relations) or SHOWN_RELATIONS, token=name
            )
        return found

    def find(self, name: str) -> Relation | None:
        """Return the stream or table of this name, or None."""
        return self._relations.get(name)

    def query(self, name: str) -> NamedQuery:
        """Return the query of this name, or raise UnknownName."""
        found = self._queries.get(name)
        if found is None:
            raise UnknownName(f"there is no query {name}", hint=did_you_mean(name, self._queries) or SHOWN_QUERIES, token=name)
        return found

    def query_class(self, name: str) -> ClassDefinition:
        """Return the class of this name, or raise UnknownName."""
        found = self._classes.get(name)
        if found is None:
            hint = near_or_listed(name, self._classes, "classes")
            raise UnknownName(f"there is no class {shown(name)}", hint=hint, token=name)
        return found

    def find_class(self, name: str) -> ClassDefinition | None:
        """Return the class of this name, or None."""
        return self._classes.get(name)

    def function(self, name: str) -> UserFunction:
        """Return the user's function of this name, or raise UnknownName."""
        found = self._functions.get(name)
        if found is None:
            hint = did_you_mean(name, self._functions) or "SHOW FUNCTIONS lists them"
            raise UnknownName(f"there is no function {name} of a user", hint=hint, token=name)
        return found

    def find_function(self, name: str) -> UserFunction | None:
        """Return the user's function of this name, or None."""
        return self._functions.get(name)

    def functions(self) -> tuple[UserFunction, ...]:
        """Return all users' functions in order of creation."""
        return tuple(self._functions.values())

    def streams(self) -> tuple[StreamDefinition | DerivedStream, ...]:
        """Return all streams, derived ones too, in order of creation."""
        return tuple(r for r in self._relations.values() if not isinstance(r, TableDefinition))

    def tables(self) -> tuple[TableDefinition, ...]:
        """Return all tables in order of creation."""
        return tuple(r for r in self._relations.values() if isinstance(r, TableDefinition))

    def queries(self) -> tuple[NamedQuery, ...]:
        """Return all named queries in order of creation."""
        return tuple(self._queries.values())

    def classes(self) -> tuple[ClassDefinition, ...]:
        """Return all classes in order of creation, `default` first."""
        return tuple(self._classes.values())

    def readers(self, name: str) -> tuple[str, ...]:
        """Return the derived streams and queries that read the stream or table `name`."""
        derived = [r.name for r in self._relations.values() if isinstance(r, DerivedStream) and name in r.reads]
        queries = [q.name for q in self._queries.values() if name in q.reads]
        return tuple(derived + queries)

    def with_relations(self, extra: Iterable[Relation]) -> Catalog:
        """Return a catalogue with further relations, for binding one query; what is called the same here keeps its name."""
        made = Catalog()
        made._relations = {**{r.name: r for r in extra}, **self._relations}
        made._queries, made._classes, made._functions = self._queries, self._classes, self._functions
        return made

    def narrowed(self, widths: Mapping[str, int]) -> Catalog:
        """Return a catalogue in which streams have their first columns alone, as when a query was planned."""
        made = self.with_relations(())
        for name, width in widths.items():
            found = self._relations.get(name)
            if isinstance(found, StreamDefinition):
                made._relations[name] = replace(found, schema=found.schema.first(width))
        return made

    # -- changing -------------------------------------------------------------------------------------------------------------

    def add(self, definition: Relation | NamedQuery | ClassDefinition | UserFunction) -> None:
        """Register a definition; NameTaken or InvalidDefinition when that cannot be."""
        if isinstance(definition, UserFunction):
            self._add_to(self._functions, definition, "function")
        elif isinstance(definition, ClassDefinition):
            self._add_to(self._classes, definition, "class")
        elif isinstance(definition, NamedQuery):
            self._add_to(self._queries, definition, "query")
        else:
            self._add_to(self._relations, definition, RELATION)

    def _add_to(self, space: dict[str, Any], definition: Any, what: str) -> None:
        validate_name(definition.name, f"{what} name")
        if isinstance(definition, DerivedStream):
            _check_derived(definition)
        if definition.name in space:
            noun = what if what != RELATION else noun_of(space[definition.name])
            raise NameTaken(f"the name {definition.name} is taken by a {noun}", hint=f"drop that {noun} first, or take another name")
        space[definition.name] = definition

    def widen(self, definition: StreamDefinition) -> None:
        """Put a stream that has further columns in the place of what it was."""
        self.relation(definition.name)
        self._relations[definition.name] = definition

    def drop_relation(self, name: str) -> None:
        """Remove a stream or table; InUse when something reads it."""
        self.relation(name)
        readers = self.readers(name)
        if readers:
            raise InUse(f"{name} is read by {', '.join(readers)}", hint=f"drop them first, or write DROP … {name} CASCADE")
        del self._relations[name]

    def renew_query(self, definition: NamedQuery) -> None:
        """Give a query that was planned anew the columns that it has now."""
        self._queries[self.query(definition.name).name] = definition

    def drop_query(self, name: str) -> None:
        """Remove a query."""
        self.query(name)
        del self._queries[name]

    def replace_class(self, definition: ClassDefinition) -> None:
        """Give a class other properties."""
        self.query_class(definition.name)
        self._classes[definition.name] = definition

    def drop_class(self, name: str) -> None:
        """Remove a class. The server checks that no query is in it."""
        self.query_class(name)
        if name == DEFAULT_CLASS_NAME:
            raise InvalidDefinition("the class default cannot be dropped")
        del self._classes[name]

    def drop_function(self, name: str) -> None:
        """Remove a user's function. The server checks that no query calls it."""
        self.function(name)
        del self._functions[name]

    def dependents(self, name: str) -> tuple[str, ...]:
        """Return all that reads `name`, directly or through derived streams, in the order in which CASCADE drops it: leaves first."""
        order: list[str] = []

        def visit(current: str) -> None:
            for reader in self.readers(current):
                if reader not in order:
                    visit(reader)
                    order.append(reader)

        visit(name)
        return tuple(order)


def _check_derived(stream: DerivedStream) -> None:
    """A window over the derived stream has bounds of its own, so those of the windows inside need other names."""
    clash = next((n for n in stream.schema.names if n in ("window_start", "window_end")), None)
    if clash is not None:
        short = clash.removeprefix("window_")
        raise InvalidDefinition(f"the derived stream {stream.name} selects {clash}", hint=f"give it an alias, as in {clash} AS {short}_of")
