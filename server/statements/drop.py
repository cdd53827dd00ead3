"""DROP STREAM | TABLE | QUERY | CLASS | FUNCTION, with CASCADE (case C38): what reads a stream is named, or goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import InUse, UnknownName
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.language.statements import Drop, ObjectKind
from millstream.engine.plan.catalog import DerivedStream
from millstream.server.host import running
from millstream.server.host.queries import Query
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


def drop(host: EngineHost, statement: Drop, context: Context) -> Outcome:
    """Drop what is named; with IF EXISTS a name that is not there is no error."""
    try:
        return _DROPS[statement.kind](host, statement)
    except UnknownName:
        if statement.if_exists:
            return said(f"there is no {statement.kind.value.lower()} {statement.name.text}")
        raise


def _drop_query(host: EngineHost, statement: Drop) -> Outcome:
    query = host.queries.get(statement.name.text)
    running.strike(host, query)
    if query.is_durable:
        host.store.forget([], [query.name])
    return said(f"query {query.name} dropped")


def _drop_class(host: EngineHost, statement: Drop) -> Outcome:
    name = statement.name.text
    host.catalog.query_class(name)
    members = [q.name for q in host.queries if q.planned.physical.options.class_name == name]
    if members:
        raise InUse(f"class {name} has the queries {', '.join(members)}", hint="drop them first")
    host.catalog.drop_class(name)
    del host.class_nodes[name]
    host.store.forget([("class", name)], [])
    return said(f"class {name} dropped")


def _drop_function(host: EngineHost, statement: Drop) -> Outcome:
    """Drop a function; with CASCADE the queries and derived streams that call it too."""
    name = statement.name.text
    function = host.catalog.function(name)
    streams = [q.name for q in host.derived.values() if function in q.planned.functions]
    queries = [q for q in host.queries if function in q.planned.functions]
    callers = [*streams, *(q.name for q in queries)]
    if callers and not statement.cascade:
        raise InUse(f"{name} is called by {', '.join(callers)}", hint=f"drop them first, or write DROP FUNCTION {name} CASCADE")
    notices = _drop_callers(host, streams, queries, f"function {name} was dropped")
    host.catalog.drop_function(name)
    host.functions.pop(name).close()
    host.store.forget([("function", name)], [])
    return said(*notices, f"function {name} dropped")


def _drop_stream(host: EngineHost, statement: Drop) -> Outcome:
    name = statement.name.text
    found = host.catalog.relation(name)
    if isinstance(found, TableDefinition) is not (statement.kind is ObjectKind.TABLE):
        is_a = "table" if isinstance(found, TableDefinition) else "stream"
        raise UnknownName(f"{name} is a {is_a}", hint=f"write DROP {is_a.upper()} {name}")
    _check_side_outputs(host, name)
    feeders = [q for q in host.queries if q.target == name]
    readers = [*host.catalog.dependents(name), *(q.name for q in feeders)]
    if readers and not statement.cascade:
        raise InUse(
            f"{name} is read or fed by {', '.join(dict.fromkeys(readers))}",
            hint=f"drop them first, or write DROP {statement.kind.value} {name} CASCADE",
        )
    dropped = _cascade(host, name, feeders)
    return said(*dropped)


def _check_side_outputs(host: EngineHost, name: str) -> None:
    users = [
        s.name
        for s in host.catalog.streams()
        if isinstance(s, StreamDefinition) and s.name != name and name in (s.late_into, s.errors_into)
    ]
    if users:
        raise InUse(f"{name} takes the late rows or errors of {', '.join(users)}", hint="drop that stream first")


def _cascade(host: EngineHost, name: str, feeders: list[Query]) -> list[str]:
    """Drop all that depends on a stream, leaves first, then the stream; the store forgets all of it in one change."""
    reason = f"stream {name} was dropped"
    notices: list[str] = []
    queries: list[str] = []
    streams: list[str] = []
    for query in feeders:
        _strike(host, query, reason, queries, notices)
    for reader in host.catalog.dependents(name):
        query_found = host.queries.find(reader)
        relation = host.catalog.find(reader)
        if query_found is not None and (relation is None or name not in getattr(relation, "reads", ())):
            _strike(host, query_found, reason, queries, notices)
        elif relation is not None:
            _drop_relation(host, reader, reason)
            streams.append(reader)
            notices.append(f"stream {reader} dropped")
    _drop_relation(host, name, reason)
    streams.append(name)
    notices.append(f"stream {name} dropped")
    host.store.forget([("stream", s) for s in streams] + [("table", s) for s in streams], queries)
    return notices


def _drop_callers(host: EngineHost, streams: list[str], queries: list[Query], reason: str) -> list[str]:
    """Drop queries, and derived streams with all that reads them; returns what is to be said of it."""
    notices: list[str] = []
    struck: list[str] = []
    for query in queries:
        _strike(host, query, reason, struck, notices)
    host.store.forget([], struck)
    for name in streams:
        if host.catalog.find(name) is not None:  # not gone with another one
            notices += _cascade(host, name, [q for q in host.queries if q.target == name])
    return notices


def _strike(host: EngineHost, query: Query, reason: str, queries: list[str], notices: list[str]) -> None:
    if host.queries.find(query.name) is not query:
        return
    running.strike(host, query, reason)
    queries.append(query.name)
    notices.append(f"query {query.name} dropped")


def _drop_relation(host: EngineHost, name: str, reason: str) -> None:
    """Drop a stream, derived stream or table that nothing reads any more."""
    relation = host.catalog.relation(name)
    host.catalog.drop_relation(name)
    if isinstance(relation, DerivedStream):
        query = host.derived.pop(name)
        running.end_derived(host, query, reason)
    else:
        host.network.drop_stream(name)
        host.intakes.pop(name, None)
        if host.journaling is not None:
            host.journaling.forget(name)
    host.observer.stream_dropped(name)


_DROPS = {
    ObjectKind.STREAM: _drop_stream,
    ObjectKind.TABLE: _drop_stream,
    ObjectKind.QUERY: _drop_query,
    ObjectKind.CLASS: _drop_class,
    ObjectKind.FUNCTION: _drop_function,
}
