"""ALTER STREAM, ALTER QUERY and COMMENT ON: what changes of a thing that stays what it is.

ALTER STREAM … ADD COLUMN is a definition of its own behind CREATE STREAM, one a column. Queries that run go on with the columns that they
were planned with, over restarts too (`Query.widths`), until they are started anew. ALTER QUERY … SET has a running query go on under other
options: where they say how it is run, another plan of the same operators takes its state over, as when the optimiser replans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import InvalidDefinition, NameTaken, UnknownName, Unsupported
from millstream.engine.data.nearest import SHOWN_RELATIONS, did_you_mean
from millstream.engine.data.schema import ARCHIVE_COLUMNS, Field, Schema, StreamDefinition, TableDefinition
from millstream.engine.language.names import quote_name
from millstream.engine.language.statements import AlterQuery, AlterStream, CommentOn, ConnectorKind
from millstream.engine.plan.query_options import OPTION_NAMES
from millstream.scheduler.events import QueryReweighed
from millstream.server.host import running
from millstream.server.host.handing_over import hand_over
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.engine.plan.plan import PlannedQuery
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

MAY_CHANGE = ("class", "qos", "weight", "deadline", "latency_target", "memory_bytes_max", "tolerance_percent", "lifetime")
"""What says how a query is run, and for how long; the other options say what it answers or where it begins."""
_HOW_IT_RUNS = ("class_name", "qos", "deadline_ns")
"""What the scheduler knows of a run from its start; where no time passes, nothing comes of it."""


# --- ALTER STREAM ---


def alter_stream(host: EngineHost, statement: AlterStream, context: Context) -> Outcome:
    """Add columns to a stream, behind those that it has."""
    name = statement.name.text
    found = _stream(host, name)
    fields: list[Field] = []
    notices: list[str] = []
    for field in statement.columns:
        if found.schema.position(field.name) is None:
            _check_column(found, field.name)
            fields.append(field)
        elif field.name in statement.skips:
            notices.append(f"stream {name} has a column {field.name} already")
        else:
            raise NameTaken(f"stream {name} has a column {field.name} already", hint="take another name", token=field.name)
    if fields:
        add_columns(host, found, fields, restoring=context.restoring)
    return said(*notices, *(f"column {field.name} added to stream {name}" for field in fields))


def add_columns(host: EngineHost, stream: StreamDefinition, fields: list[Field], *, restoring: bool = False) -> None:
    """Give a stream columns that it does not have."""
    name = stream.name
    schema = Schema((*stream.schema.fields, *fields))
    wider = replace(stream, schema=schema, added=stream.added + len(fields))
    if restoring:
        _widen(host, stream, wider)
        return
    kept = host.journaling is not None and name in host.journaling.numbers
    numbers = [host.store.reserve_number() if kept else None for _ in fields]
    with host.store.change() as change:
        for field, reserved in zip(fields, numbers, strict=True):
            text = f"ALTER STREAM {quote_name(name)} ADD COLUMN {quote_name(field.name)} {field.type}"
            number = host.store.add_definition("column", f"{name}/{field.name}", text, reserved)
            if kept and host.journaling is not None:
                host.journaling.define(number)
        for query in _planned_with(host, name):
            if query.is_durable:
                host.store.set_width(query.name, name, len(stream.schema))
        change.after(lambda: _widen(host, stream, wider))


def _widen(host: EngineHost, before: StreamDefinition, wider: StreamDefinition) -> None:
    for query in (*_planned_with(host, before.name), *host.derived.values()):
        if before.name in query.reads:
            query.widths.setdefault(before.name, len(before.schema))
    host.widen_stream(wider)


def _planned_with(host: EngineHost, stream: str) -> list[Query]:
    """Return the queries that go on with the columns that a stream has now; one that is stopped is planned anew when it starts."""
    return [query for query in host.queries if stream in query.reads and query.state is not QueryState.STOPPED]


def _stream(host: EngineHost, name: str) -> StreamDefinition:
    found = host.catalog.relation(name)
    if isinstance(found, TableDefinition):
        raise Unsupported(f"{name} is a table, and keeps its columns", hint=f"CREATE OR REPLACE TABLE {name} (…) makes it anew")
    if not isinstance(found, StreamDefinition):
        raise Unsupported(f"{name} is a derived stream: its columns are those of its SELECT", hint="CREATE OR REPLACE STREAM … AS SELECT …")
    return found


def _check_column(stream: StreamDefinition, column: str) -> None:
    if stream.archive is not None and column in ARCHIVE_COLUMNS:
        raise InvalidDefinition(f"the archive of stream {stream.name} adds a column {column}", hint="choose another name", token=column)
    if stream.late_into is not None and column == "query":
        raise InvalidDefinition(f"the late output {stream.late_into} adds a column query", hint="choose another name", token=column)


# --- ALTER QUERY ---


def alter_query(host: EngineHost, statement: AlterQuery, context: Context) -> Outcome:
    """Let a query go on under other options, which it keeps over restarts; its answers are what they would have been."""
    query = host.queries.get(statement.name.text)
    for option in statement.options:
        if option.name not in MAY_CHANGE:
            _refuse_option(query, option.name)
    options = {**query.options, **{option.name: option.value for option in statement.options}}
    planned = running.plan(host, running.source_of(query), options, query.planned.text, query.widths)
    before = query.options, query.planned, query.lifetime_us
    with host.store.change() as change:
        if query.is_durable:
            host.store.set_options(query.name, options)
        change.back(lambda: _use(host, query, *before))
        _use(host, query, options, planned, planned.physical.options.lifetime_us or query.lifetime_us)
    names = ", ".join(f"{option.name} = {option.value}" for option in statement.options)
    return said(f"query {query.name}: {names}", query=query.name)


def _refuse_option(query: Query, name: str) -> None:
    if name not in OPTION_NAMES:
        hint = did_you_mean(name, MAY_CHANGE) or f"what may change is {', '.join(MAY_CHANGE)}"
        raise UnknownName(f"there is no option {name}", hint=hint, token=name)
    raise Unsupported(
        f"option {name} of query {query.name} cannot change while it runs",
        hint=f"what may change is {', '.join(MAY_CHANGE)}; CREATE OR REPLACE QUERY {query.name} WITH ({name} = …) AS … begins anew",
        token=name,
    )


def _use(host: EngineHost, query: Query, options: dict[str, Any], planned: PlannedQuery, lifetime_us: int | None) -> None:
    """Have a query run as its options say. Unsupported, and nothing has changed, where its state cannot change hands."""
    host.class_node(planned.physical.options)
    before, after = query.planned.physical.options, planned.physical.options
    if query.id is not None:
        if host.runtime.scheduler is not None and any(getattr(before, name) != getattr(after, name) for name in _HOW_IT_RUNS):
            _run_by(host, query, planned)
        else:
            _tell(host, query, planned)
    query.options, query.planned, query.lifetime_us = options, planned, lifetime_us
    host.queries.take_up(query)


def _run_by(host: EngineHost, query: Query, planned: PlannedQuery) -> None:
    assert query.id is not None
    if query.state is QueryState.PAUSED:
        message = f"query {query.name} is paused, and what it holds changes hands as it runs"
        raise Unsupported(message, hint=f"RESUME QUERY {query.name} first")
    if query.catching_up is not None:
        raise Unsupported(f"query {query.name} is being given its history", hint="wait until SHOW QUERIES shows no progress any more")
    try:
        hand_over(host, query, planned, query.id)
    except Unsupported as problem:
        hint = f"STOP QUERY {query.name}, ALTER it and START it: its windows begin anew"
        raise Unsupported(f"query {query.name} cannot change that while it runs: {problem.message}", hint=hint) from None


def _tell(host: EngineHost, query: Query, planned: PlannedQuery) -> None:
    """Let a run know of options that others look up as it goes."""
    assert query.id is not None
    options, run = planned.physical.options, host.network.queries[query.id]
    run.bytes_max = options.memory_bytes_max
    if run.node.weight != options.weight:
        run.node = replace(run.node, weight=options.weight)
        if host.runtime.scheduler is not None:
            host.runtime.scheduler.post(QueryReweighed(query.id, options.weight))


# --- COMMENT ON ---


def comment_on(host: EngineHost, statement: CommentOn, context: Context) -> Outcome:
    """Keep a comment, which SHOW shows."""
    kind, name = statement.kind, statement.name.text
    _check_there(host, kind, name)
    with host.store.change():
        host.store.set_comment(kind, name, statement.text)
    return said(f"{kind} {name}: comment {'kept' if statement.text is not None else 'taken away'}")


def _check_there(host: EngineHost, kind: str, name: str) -> None:
    if kind in ("stream", "table"):
        found = host.catalog.find(name)
        if found is None or isinstance(found, TableDefinition) is not (kind == "table"):
            hint = did_you_mean(name, [r.name for r in (*host.catalog.streams(), *host.catalog.tables())]) or SHOWN_RELATIONS
            raise UnknownName(f"there is no {kind} {name}", hint=hint, token=name)
    elif kind == "query":
        if not host.queries.get(name).is_durable:
            message = f"query {name} ends with its connection, so nothing is kept of it"
            raise InvalidDefinition(message, hint="CREATE QUERY name AS SELECT …")
    elif kind == "class":
        host.catalog.query_class(name)
    elif kind == "function":
        host.catalog.function(name)
    else:
        host.connectors.get(ConnectorKind(kind.upper()), name)


EXECUTORS: dict[type[Any], Callable[[Any, Any, Any], Outcome]] = {
    AlterStream: alter_stream,
    AlterQuery: alter_query,
    CommentOn: comment_on,
}
