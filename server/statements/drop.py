"""DROP STREAM | TABLE | QUERY | CLASS | FUNCTION, with CASCADE (case C38): what reads a stream is named, or goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import InUse, UnknownName
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.language.statements import ConnectorKind, Drop, ObjectKind
from millstream.engine.plan.catalog import noun_of
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
    if statement.is_view and not query.planned.physical.options.materialized:
        raise UnknownName(f"{query.name} is a query, and no materialized view", hint=f"write DROP QUERY {query.name}")
    check_connectors(host, ConnectorKind.SINK, f"query {query.name}", query.name)
    check_unread_view(host, query, f"drop them first, or write DROP MATERIALIZED VIEW {query.name} CASCADE", cascade=statement.cascade)
    with host.store.change():
        dropped = _Dropped(host, f"materialized view {query.name} was dropped")
        dropped.readers(query)
        running.strike(host, query)
    return said(*dropped.notices, f"{'materialized view' if statement.is_view else 'query'} {query.name} dropped")


def check_unread_view(host: EngineHost, query: Query, hint: str, *, cascade: bool = False) -> None:
    """Raise InUse for a view that queries read, also such as do not run."""
    readers = host.catalog.dependents(query.name) if query.is_view and not cascade else ()
    if readers:
        raise InUse(f"materialized view {query.name} is read by {', '.join(readers)}", hint=hint)


def _drop_class(host: EngineHost, statement: Drop) -> Outcome:
    name = statement.name.text
    host.catalog.query_class(name)
    members = [q.name for q in host.queries if q.planned.physical.options.class_name == name]
    if members:
        raise InUse(f"class {name} is used by the queries {', '.join(members)}", hint="drop these queries first")
    with host.store.change() as change:
        host.store.forget([("class", name)], [])
        change.after(lambda: host.forget_class(name))
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
    reason = f"function {name} was dropped"
    with host.store.change() as change:
        dropped = _Dropped(host, reason)
        for query in queries:
            dropped.query(query)
        for stream in streams:
            dropped.relation_and_readers(stream)
        host.store.forget([("function", name)], [])
        change.after(lambda: host.forget_function(name))
    return said(*dropped.notices, f"function {name} dropped")


def _drop_stream(host: EngineHost, statement: Drop) -> Outcome:
    name = statement.name.text
    found = host.catalog.relation(name)
    if isinstance(found, TableDefinition) is not (statement.kind is ObjectKind.TABLE):
        is_a = noun_of(found)
        raise UnknownName(f"{name} is a {is_a}", hint=f"write DROP {is_a.upper()} {name}")
    _check_side_outputs(host, name)
    check_connectors(host, ConnectorKind.SOURCE, f"{noun_of(found)} {name}", name)
    feeders = [q for q in host.queries if q.target == name]
    readers = [*host.catalog.dependents(name), *(q.name for q in feeders)]
    if readers and not statement.cascade:
        raise InUse(
            f"{name} is read or fed by {', '.join(dict.fromkeys(readers))}",
            hint=f"drop them first, or write DROP {statement.kind.value} {name} CASCADE",
        )
    with host.store.change():
        dropped = _Dropped(host, f"{noun_of(found)} {name} was dropped")
        dropped.relation_and_readers(name)
    return said(*dropped.notices)


def check_connectors(host: EngineHost, kind: ConnectorKind, what: str, target: str) -> None:
    """Raise InUse for what a source fills or a sink reads: it is dropped after those, which run elsewhere and may be at work."""
    users = host.connectors.users_of(kind, target) if host.has_connectors else []
    if users:
        verb = "filled by source" if kind is ConnectorKind.SOURCE else "read by sink"
        raise InUse(f"{what} is {verb} {', '.join(users)}", hint=f"write DROP {kind.value} {users[0]} first")


def _check_side_outputs(host: EngineHost, name: str) -> None:
    users = [
        s.name
        for s in host.catalog.streams()
        if isinstance(s, StreamDefinition) and s.name != name and name in (s.late_into, s.errors_into)
    ]
    if users:
        raise InUse(f"{name} takes the late rows or errors of {', '.join(users)}", hint=f"drop {', '.join(users)} first")


class _Dropped:
    """What one statement drops, leaves first, each thing once; `notices` says what. All of it is one change, which is open already."""

    def __init__(self, host: EngineHost, reason: str) -> None:
        self._host = host
        self._reason = reason
        self._queries: set[str] = set()
        self._relations: set[str] = set()
        self.notices: list[str] = []

    def query(self, query: Query) -> None:
        """Drop a query."""
        if query.name not in self._queries:
            self._queries.add(query.name)
            self.readers(query)
            running.strike(self._host, query, self._reason)
            self.notices.append(f"query {query.name} dropped")

    def readers(self, query: Query) -> None:
        """Drop what reads a query, if that is a view."""
        for name in self._host.catalog.dependents(query.name) if query.is_view else ():
            found = self._host.queries.find(name)
            if found is not None:
                self.query(found)

    def relation_and_readers(self, name: str) -> None:
        """Drop a stream, derived stream or table, and before it whatever reads or feeds it."""
        host = self._host
        for query in [q for q in host.queries if q.target == name]:
            self.query(query)
        for reader in host.catalog.dependents(name):
            query_found = host.queries.find(reader)
            relation = host.catalog.find(reader)
            if query_found is not None and (relation is None or name not in getattr(relation, "reads", ())):
                self.query(query_found)
            elif relation is not None:
                self._relation(reader)
        self._relation(name)

    def _relation(self, name: str) -> None:
        """Drop a relation that nothing reads any more."""
        if name in self._relations:
            return
        self._relations.add(name)
        host = self._host
        noun = noun_of(host.catalog.relation(name))
        with host.store.change() as change:
            if name in host.derived and host.derived[name].identity:
                host.store.forget_run(host.derived[name].key)
            host.store.forget([("stream", name), ("table", name)], [])
            change.after(lambda: running.drop_relation(host, name))
        self.notices.append(f"{noun} {name} dropped")


_DROPS = {
    ObjectKind.STREAM: _drop_stream,
    ObjectKind.TABLE: _drop_stream,
    ObjectKind.QUERY: _drop_query,
    ObjectKind.CLASS: _drop_class,
    ObjectKind.FUNCTION: _drop_function,
}
