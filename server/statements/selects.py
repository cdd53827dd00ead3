"""Statements that bring rows or answers: SELECT, CREATE QUERY, INSERT INTO … SELECT, INSERT VALUES; and queries that a program submits."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.expressions.values import format_timestamp
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateQuery, InsertSelect, InsertValues, SelectStatement
from millstream.engine.plan.insert import bind_rows
from millstream.engine.plan.logical import change_position
from millstream.engine.plan.plan import PlannedQuery
from millstream.server.host import running
from millstream.server.host.lifecycle import Verb
from millstream.server.host.queries import Query, QueryKind
from millstream.server.host.side_streams import ColumnAssignment
from millstream.server.journal.store import StoredQuery
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


@dataclass(frozen=True, slots=True)
class Submission:
    """A query submitted by a program: `sql` or `plan`, a name if it is to be durable, when, how long. Times in microseconds."""

    sql: str | None = None
    plan: dict[str, Any] | None = None
    name: str | None = None
    start_at_us: int | None = None
    lifetime_us: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


def select(host: EngineHost, statement: SelectStatement, context: Context) -> Outcome:
    """Start a temporary query, owned by whoever sent it."""
    host.queries.check_owner(context.owner)
    planned = running.plan(host, statement, {}, statement.text)
    name = host.queries.next_name(host.catalog.find) if context.name is None else host.queries.check_free(context.name)
    return _entered(host, Query(name, planned, text=statement.text, owner=context.owner), planned)


def create_query(host: EngineHost, statement: CreateQuery, context: Context) -> Outcome:
    """Start a durable query."""
    if statement.if_not_exists and host.queries.find(statement.name) is not None:
        return said(f"query {statement.name} already exists", query=statement.name)
    old = host.queries.find(statement.name) if statement.or_replace else None
    if old is not None and not (old.is_durable and old.kind is QueryKind.SELECT):
        old = None  # the name is taken
    name = host.check_query_name(statement.name) if old is None else old.name
    options = {option.name: option.value for option in statement.options}
    if old is not None and (old.text, old.options, old.widths, old.failure) == (statement.text, options, {}, None):
        return said(f"query {name} is as it was", query=name, continuous=True, durable=True)
    planned = running.plan(host, statement.query, options, statement.text)
    query = Query(name, planned, text=statement.text, options=options)
    _take_times(query, planned)
    with host.store.change():
        if old is not None:
            from millstream.server.statements.replacing import replace_query  # loaded by the first that is replaced

            replace_query(host, old, query)
        host.store.add_query(
            StoredQuery(name, text=statement.text, options=options, start_at_us=query.start_at_us, lifetime_us=query.lifetime_us)
        )
        if old is None:
            return _entered(host, query, planned)
    begins = "it begins anew with the rows from now on"
    return said(f"query {name} replaced: {begins}", *planned.notes, *planned.physical.notes, query=name, continuous=True, durable=True)


def insert_select(
    host: EngineHost, statement: InsertSelect, context: Context, options: dict[str, Any] | None = None, widths: dict[str, int] | None = None
) -> Outcome:
    """Start a durable query whose results enter a stream."""
    target = host.intake(statement.name.text)
    planned = running.plan(host, statement.query, options or {}, statement.text, widths)
    _refuse_ring(host, target.name, (*planned.streams, *planned.tables))
    into, names = target.table or target.definition, [c.text for c in statement.columns]
    if target.table is not None and change_position(planned.bound.root.attributes) is not None:
        hint = "CREATE MATERIALIZED VIEW name AS SELECT … holds them as a table does; EMIT FINAL or a window gives rows that only come"
        raise Unsupported(f"INSERT INTO table {target.name} of rows that change is not supported", hint=hint)
    if context.restoring and not names:  # it took the columns that the stream had then
        names = list(into.schema.names[: len(planned.physical.schema)])
    assignment = ColumnAssignment(into, names, planned.physical.schema)
    name = context.name or host.queries.next_name(host.catalog.find, "insert")
    query = Query(name, planned, QueryKind.INSERT, text=statement.text, target=target.name, assignment=assignment)
    query.options, query.widths = options or {}, widths or {}
    if not context.restoring:
        host.store.add_query(StoredQuery(name, text=context.text.strip()))
        query.unfed = []
    outcome = _entered(host, query, planned)
    with host.store.change() as change:
        change.after(lambda: running.let_feed(host, query))
    return outcome


def _refuse_ring(host: EngineHost, target: str, reads: tuple[str, ...]) -> None:
    """Refuse a statement that would feed a stream with its own rows, over whatever derived streams, views and other INSERTs."""
    seen: set[str] = set()
    ahead = list(reads)
    while ahead:
        name = ahead.pop()
        if name == target:
            raise InvalidDefinition(f"INSERT INTO {target} would read its own rows and never end", hint="write to another stream")
        if name in seen:
            continue
        seen.add(name)
        made = host.maker(name)
        ahead += made.reads if made is not None else [r for q in host.queries if q.target == name for r in q.reads]


def submit(host: EngineHost, submission: Submission, owner: object | None) -> Outcome:
    """Start a query for a program, durable when it has a name, else owned by `owner`. Returns what to tell it."""
    source, text = _source_of(submission)
    name = submission.name
    if name is None and submission.plan is not None and submission.plan.get("name"):
        name = str(submission.plan["name"])
    if name is not None:
        host.check_query_name(name)
    else:
        host.queries.check_owner(owner)
    planned = running.plan(host, source, submission.options, text)
    query = Query(
        name if name is not None else host.queries.next_name(host.catalog.find),
        planned,
        text=text,
        plan=submission.plan,
        options=dict(submission.options),
        owner=owner if name is None else None,
        start_at_us=submission.start_at_us,
        lifetime_us=submission.lifetime_us,
    )
    _take_times(query, planned)
    with host.store.change():
        if query.is_durable:
            start_at_us, lifetime_us = query.start_at_us, query.lifetime_us
            host.store.add_query(
                StoredQuery(query.name, text, submission.plan, query.options, start_at_us=start_at_us, lifetime_us=lifetime_us)
            )
        return _entered(host, query, planned)


def restore(host: EngineHost, stored: StoredQuery, context: Context) -> None:
    """Bring a stored query back in the state its user wants."""
    statement = parse_statement(stored.text) if stored.text is not None else None
    if isinstance(statement, InsertSelect):
        insert_select(host, statement, context, stored.options, stored.widths)
        return
    source: Any = statement if statement is not None else stored.plan
    planned = running.plan(host, source, stored.options, stored.text, stored.widths)
    query = Query(
        stored.name, planned, text=stored.text, plan=stored.plan, options=stored.options,
        start_at_us=stored.start_at_us, lifetime_us=planned.physical.options.lifetime_us or stored.lifetime_us, widths=stored.widths,
    )  # fmt: skip
    running.enter(host, query, start=stored.desired != "stopped")
    if stored.desired == "paused" and host.recovery is not None:
        host.recovery.pause(query)
    elif stored.desired == "paused":
        running.move(host, query, Verb.PAUSE)


def _source_of(submission: Submission) -> tuple[Any, str | None]:
    if submission.plan is not None:
        return submission.plan, None
    statement = parse_statement(submission.sql or "")
    if not isinstance(statement, SelectStatement):
        raise InvalidDefinition("only a SELECT can be submitted", hint="send other statements with execute, or with millstream sql")
    return statement, statement.text


def _take_times(query: Query, planned: PlannedQuery) -> None:
    """Start time and lifetime may also stand in WITH (…) or in a plan object."""
    options = planned.physical.options
    query.start_at_us = query.start_at_us if query.start_at_us is not None else options.start_at_us
    query.lifetime_us = query.lifetime_us if query.lifetime_us is not None else options.lifetime_us
    if query.lifetime_us is not None and query.lifetime_us <= 0:
        raise InvalidDefinition(
            f"a lifetime must be positive, not {query.lifetime_us / 1e6:g} s", hint="leave it out for a query without end"
        )


def _not_rebuilt(host: EngineHost, query: Query) -> list[str]:
    """Say when some of what a durable query reads is journaled and some is not: then a restart cannot rebuild it."""
    kept = {} if host.journaling is None or not query.is_durable else host.journaling.numbers
    names = host.base_streams(query.reads)
    lost = [name for name in names if name not in kept]
    if not kept or not 0 < len(lost) < len(names):
        return []
    return [
        f"after a restart, the query starts again with empty state: {', '.join(lost)} {'is' if len(lost) == 1 else 'are'} not journaled"
    ]


def _completeness(query: Query) -> list[str]:
    """Say from which window on the answers miss nothing, when rows came before the query."""
    if query.complete_from_us is None:
        return []
    at = format_timestamp(query.complete_from_us)
    if query.planned.physical.options.history:
        return [f"the first window begins at {at}: the server does not hold all rows of earlier windows"]
    return [f"windows that begin before {at} lack the rows from before the query"]


def _entered(host: EngineHost, query: Query, planned: PlannedQuery) -> Outcome:
    running.enter(host, query)
    notices = [
        f"query {query.name} {query.state.value}",
        *_completeness(query),
        *planned.notes,
        *planned.physical.notes,
        *_not_rebuilt(host, query),
        *query.warnings,
    ]
    return said(*notices, query=query.name, continuous=query.kind is QueryKind.SELECT, durable=query.is_durable)


def insert_values(host: EngineHost, statement: InsertValues, context: Context) -> Outcome:
    """Let the rows in; a row that does not fit refuses the statement with its number."""
    intake = host.intake(statement.name.text)
    columns = bind_rows(statement, intake.table or intake.definition)
    position = intake.insert(columns)
    rows = len(statement.rows)
    return said(f"{rows} row{'' if rows == 1 else 's'} inserted", accepted=rows, position=position)
