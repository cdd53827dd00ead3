"""CREATE OR REPLACE: what takes the place of one that has the name, and what becomes of those that use it.

One that is the same stays as it is. Otherwise: a query begins anew with the rows from now on, and its former results with their tokens are
gone; a stream takes further columns and keeps all else, so that no row is lost; a derived stream, a table and a function change only
while nothing uses them; a class changes under its queries, save whether they are shed and where they run; a source or sink goes on as the
new one. All that may be refused is looked at before the old one goes.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from millstream.engine.data.errors import InUse, InvalidDefinition, NameTaken
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.expressions.user_functions import UserFunction
from millstream.engine.language.statements import ClassDefinition, ConnectorDefinition, ConnectorKind
from millstream.engine.plan.catalog import DEFAULT_CLASS_NAME, DerivedStream, noun_of
from millstream.scheduler.events import ClassChanged
from millstream.server.functions.process import FunctionProcess
from millstream.server.host import running
from millstream.server.host.connectors import Connector
from millstream.server.host.lifecycle import QueryState, Verb
from millstream.server.host.queries import Query
from millstream.server.host.table_files import TableRows
from millstream.server.results.outcome import Outcome, said
from millstream.server.statements.alterations import add_columns
from millstream.server.statements.drop import check_connectors, check_unread_view

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost

REPLACED = "it was replaced"
_CLAUSES = {
    "time": "TIMESTAMP BY, DELAY, SKEW or IDLE",
    "late_into": "LATE",
    "on_error": "ON ERROR",
    "errors_into": "ON ERROR",
    "durability": "DURABILITY",
    "rate_per_second_max": "RATE",
    "archive": "ARCHIVE",
}


# --- queries ---


def replace_query(host: EngineHost, old: Query, query: Query) -> None:
    """Let a query take the place of another one of its name, within the present change; it begins anew."""
    check_connectors(host, ConnectorKind.SINK, f"query {old.name}", old.name)
    check_unread_view(host, old, "drop them first")
    host.class_node(query.planned.physical.options)
    host.admit(query)
    for stream in host.base_streams(query.reads):
        source = host.network.sources.get(stream)
        if source is not None and source.table is None and source.ended:
            raise InvalidDefinition(f"stream {stream} has ended, so a query would never see a row of it", hint=f"query {old.name} stays")
    comment = host.store.comments("query").get(old.name)
    with host.store.change() as change:
        if old.identity:
            host.store.forget_run(old.key)
        host.store.forget([], [old.name])
        host.store.set_comment("query", old.name, comment)
        change.after(lambda: _exchange(host, old, query))


def _exchange(host: EngineHost, old: Query, query: Query) -> None:
    running.end(host, old, Verb.DROP, QueryState.DROPPED, REPLACED)
    host.queries.remove(old)
    host.catalog.drop_query(old.name)
    try:
        running.enter(host, query)
    except BaseException:  # the catalogue has the new one: it can be started, and a restart does
        running.enter(host, query, start=False)
        raise


# --- streams and tables ---


def replace_stream(host: EngineHost, definition: StreamDefinition) -> Outcome:
    """Give a stream the columns that it lacks. NameTaken or InvalidDefinition, saying what differs, when it is another one."""
    name = definition.name
    found = host.catalog.relation(name)
    if not isinstance(found, StreamDefinition):
        what = "table" if isinstance(found, TableDefinition) else "derived stream"
        raise NameTaken(f"{name} is a {what}, which a stream cannot replace", hint=f"DROP {noun_of(found).upper()} {name} first")
    width = len(found.schema)
    same = replace(definition, schema=found.schema, added=found.added)
    if definition.schema.first(width) != found.schema or same != found:
        differs = [
            _CLAUSES[f.name] for f in fields(StreamDefinition) if f.name in _CLAUSES and getattr(same, f.name) != getattr(found, f.name)
        ]
        if definition.schema.first(width) != found.schema:
            differs.insert(0, "its columns")
        raise InvalidDefinition(
            f"stream {name} cannot be replaced without losing its rows: {', '.join(dict.fromkeys(differs))} would change",
            hint="further columns may stand behind those that it has; for all else, DROP STREAM … CASCADE and create it anew",
        )
    added = list(definition.schema.fields[width:])
    needed = next((f.name for f in added if not f.nullable), None)
    if needed is not None:
        raise InvalidDefinition(f"column {needed} cannot be NOT NULL: rows that came before have none", hint="leave NOT NULL out")
    if not added:
        return said(f"stream {name} is as it was")
    add_columns(host, found, added)
    return said(*(f"column {f.name} added to stream {name}" for f in added))


def replace_derived(host: EngineHost, derived: DerivedStream, query: Query, text: str) -> None:
    """Let a derived stream take the place of another one that nothing reads."""
    name = derived.name
    found = host.catalog.relation(name)
    if not isinstance(found, DerivedStream):
        raise NameTaken(f"{name} is a {noun_of(found)}, which a derived stream cannot replace", hint="take another name")
    _check_unread(host, "stream", name)
    if name in query.reads:
        raise InvalidDefinition(f"stream {name} would read itself", hint="read what it is made of")
    old = host.derived[name]
    comment = host.store.comments("stream").get(name)
    with host.store.change() as change:
        if old.identity:
            host.store.forget_run(old.key)
        host.store.forget([("stream", name)], [])
        host.store.add_definition("stream", name, text)
        host.store.set_comment("stream", name, comment)
        change.after(lambda: _exchange_derived(host, derived, query))


def _exchange_derived(host: EngineHost, derived: DerivedStream, query: Query) -> None:
    running.drop_relation(host, derived.name)
    host.catalog.add(derived)
    host.derived[derived.name] = query
    query.state = QueryState.FINISHED  # should it not begin, a restart will let it
    running.begin_or_defer(host, query)


def replace_table(host: EngineHost, definition: TableDefinition, rows: TableRows | None, text: str) -> None:
    """Make a table that nothing reads anew: its rows go, and those of its file come."""
    name = definition.name
    found = host.catalog.relation(name)
    if not isinstance(found, TableDefinition):
        raise NameTaken(f"{name} is a stream, which a table cannot replace", hint="take another name")
    _check_unread(host, "table", name)
    check_connectors(host, ConnectorKind.SOURCE, f"table {name}", name)
    comment = host.store.comments("table").get(name)
    journaling = host.journaling if definition.durability != "none" else None
    number = None if journaling is None else host.store.reserve_number()
    with host.store.change() as change:
        host.store.forget([("table", name)], [])
        kept = host.store.add_definition("table", name, text, number)
        host.store.set_comment("table", name, comment)
        if journaling is not None:
            journaling.define(kept)
        change.after(lambda: _exchange_table(host, definition, number, rows))


def _exchange_table(host: EngineHost, definition: TableDefinition, number: int | None, rows: TableRows | None) -> None:
    name = definition.name
    running.drop_relation(host, name)
    host.catalog.add(definition)
    intake = host.make_relation(definition)
    if number is not None and host.journaling is not None:
        host.journaling.add(name, number, record=False)
        host.journaling.record(name)
    host.open_relation(intake)
    if rows is not None:
        for block in rows.blocks:
            intake.take_columns(block.columns, block.places)
        intake.refused_total += rows.refused
    host.begin_polling(definition)


def _check_unread(host: EngineHost, noun: str, name: str) -> None:
    readers = [*host.catalog.dependents(name), *(query.name for query in host.queries if query.target == name)]
    if readers:
        raise InUse(
            f"{noun} {name} is read or fed by {', '.join(dict.fromkeys(readers))}, so it cannot be replaced",
            hint=f"drop them first, or make a {noun} of another name",
        )


# --- classes and functions ---


def replace_class(host: EngineHost, definition: ClassDefinition, text: str, *, restoring: bool) -> None:
    """Give a class other properties; its queries have them from the next decision on."""
    name = definition.name
    if name == DEFAULT_CLASS_NAME:
        raise InvalidDefinition("the class default cannot be replaced", hint="create another one, and say WITH (class = '…')")
    found = host.catalog.query_class(name)
    members = [q.name for q in (*host.queries, *host.derived.values()) if q.planned.physical.options.class_name == name]
    if members and (found.may_shed, found.workers) != (definition.may_shed, definition.workers):
        raise InUse(
            f"class {name} is used by {', '.join(members)}: whether rows are shed, and the workers, cannot change under them",
            hint="make another class, and ALTER QUERY … SET (class = '…')",
        )
    with host.store.change() as change:
        if not restoring:
            host.store.set_definition("class", name, text)
        change.after(lambda: _exchange_class(host, definition))


def _exchange_class(host: EngineHost, definition: ClassDefinition) -> None:
    host.catalog.replace_class(definition)
    node = host.class_nodes[definition.name]
    host.register_class(definition, node.id)
    if host.runtime.scheduler is not None:
        host.runtime.scheduler.post(ClassChanged(host.class_nodes[definition.name]))


def replace_function(host: EngineHost, function: UserFunction, process: FunctionProcess, text: str) -> Outcome:
    """Let a function take the place of another one that nothing calls."""
    name = function.name
    found = host.catalog.function(name)
    callers = [q.name for q in (*host.derived.values(), *host.queries) if found in q.planned.functions]
    if callers:
        raise InUse(
            f"function {name} is called by {', '.join(callers)}, which would answer otherwise after a restart than before it",
            hint="drop them first, or make a function of another name",
        )
    with host.store.change() as change:
        host.store.set_definition("function", name, text)
        host.store.set_source(name, process.source)
        change.after(lambda: _exchange_function(host, function, process))
    return said(f"function {name} replaced")


def _exchange_function(host: EngineHost, function: UserFunction, process: FunctionProcess) -> None:
    host.forget_function(function.name)
    host.catalog.add(function)
    host.functions[function.name] = process


# --- sources and sinks ---


def replace_connector(host: EngineHost, found: Connector, definition: ConnectorDefinition, text: str) -> Outcome:
    """Let a source or sink go on as another one. A sink of the same query goes on where it was."""
    noun, name = definition.kind.noun, definition.name
    if found.definition == definition:
        return said(f"{noun} {name} is as it was")
    moves = found.definition.target != definition.target
    with host.store.change() as change:
        host.store.set_definition(noun, name, text)
        if moves:
            host.store.set_note(f"{noun} {name} token", "")
        change.after(lambda: _exchange_connector(found, definition, moves=moves))
    return said(f"{noun} {name} replaced")


def _exchange_connector(found: Connector, definition: ConnectorDefinition, *, moves: bool) -> None:
    found.definition, found.report = definition, {}
    if moves:
        found.token = None
