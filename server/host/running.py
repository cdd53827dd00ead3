"""Bringing queries into force, taking them out, and moving them between the states of lifecycle.py.

Every change of the network for a query's sake happens here, on the thread that executes statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from millstream.engine.data.errors import EngineError, InUse, InvalidDefinition, SharingLost, Unsupported
from millstream.engine.data.graph import ClassNode, OperatorId, QueryId
from millstream.engine.data.train import Train
from millstream.engine.ingest.checks import Reasons
from millstream.engine.plan.catalog import DerivedStream, NamedQuery
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.runtime.bill import complete_from_us
from millstream.engine.runtime.network import Deliver
from millstream.scheduler.errors import SchedulerError
from millstream.server.errors import ServerError
from millstream.server.host.lifecycle import QueryState, Verb, next_state
from millstream.server.host.queries import Query, QueryKind
from millstream.server.journal.store import StoredRun
from millstream.server.results.trains import ResultShape

if TYPE_CHECKING:
    from millstream.engine.flow.replay import PastSources
    from millstream.engine.plan.plan import PlannedQuery
    from millstream.server.host.engine_host import EngineHost

NOT_KEPT = "the disk did not take the statement"
END_REASONS = {Verb.STOP: "stopped", Verb.DROP: "dropped", Verb.EXPIRE: "lifetime", Verb.FINISH: "finished"}


def plan(
    host: EngineHost, source: Any, options: Mapping[str, Any], text: str | None = None, widths: Mapping[str, int] | None = None
) -> PlannedQuery:
    """Plan a query against the catalogue, with options from outside its text. Raises the engine's errors, with their place in the text.

    `widths`: streams of which it is to see the first columns alone.
    """
    # The planner comes with the language, which the server loads when it listens already.
    from millstream.engine.language.statements import Option
    from millstream.engine.plan.plan import PlanOptions, plan_select

    overrides = tuple(Option(name, value) for name, value in options.items())
    catalog = host.catalog.narrowed(widths) if widths else host.catalog
    return plan_select(source, catalog, options=PlanOptions(host.rules_off, overrides), text=text)


def enter(host: EngineHost, query: Query, *, start: bool = True) -> None:
    """Enter a new query in catalogue and book, and start it if its time has come. Nothing stays behind when that fails.

    Raises UnknownName for its class, and what `begin` raises.
    """
    host.class_node(query.planned.physical.options)
    query.created_us = host.runtime.now_us()
    host.catalog.add(_named(query))
    host.queries.add(query)
    try:
        with host.store.change() as change:
            if start and (query.start_at_us is None or query.start_at_us <= query.created_us):
                begin_or_defer(host, query)
            elif not start:
                query.state = QueryState.STOPPED
            change.back(lambda: withdraw(host, query))
    except BaseException:
        if host.queries.find(query.name) is query:
            host.queries.remove(query)
            host.catalog.drop_query(query.name)
        raise


def _named(query: Query) -> NamedQuery:
    """Return a query as the catalogue has it; a materialized view with what others see of it."""
    view = None
    if query.is_view:
        from millstream.engine.plan.plan import derived_stream

        view = replace(derived_stream(query.name, query.planned), view=True)
    return NamedQuery(query.name, query.planned.physical.schema, query.shown_text, query.reads, view)


def begin_or_defer(host: EngineHost, query: Query) -> None:
    """Start a run, while the journal is being replayed at its place in that."""
    if host.recovery is not None:
        host.recovery.defer(query)
    else:
        begin(host, query)


def begin(host: EngineHost, query: Query, *, recovering: bool = False) -> None:
    """Start a run: plan anew when it has run before (the catalogue may have changed), splice in, return once in force.

    `recovering`: it goes on with a run from before the server's restart, if there was one that can be rebuilt. Raises Refused where a class
    would miss its target, Unsupported for what cannot be run here, and the errors of engine and scheduler; nothing runs then.
    """
    if query.run:
        query.planned = plan(host, source_of(query), query.options)
        host.catalog.renew_query(_named(query))
        forgets, query.widths = bool(query.widths), {}
    else:
        forgets = False
    _check_views(host, query)
    if not recovering:
        host.admit(query)
    host.note_order(query)
    query.run += 1
    query.failure = None
    query.last_counts = {}
    host.identify(query, recovering=recovering)
    if query.identity and query.planned.physical.options.history:
        raise Unsupported(
            f"query {query.name} is rebuilt from the journal after a restart, so it has operators of its own and nothing is held for it",
            hint="leave history = 'held' out, or do without the name",
        )
    past, query.stands, query.catching_up = None if query.stands else _past(host, query), False, None
    query.shape = ResultShape(query.planned.physical.schema)
    host.observer.query_began(query)
    physical, deliver = query.planned.physical, deliverer(host, query)
    node = host.class_node(physical.options)
    try:
        _splice(host, query, physical, deliver, node, past=past)
    except (SchedulerError, SharingLost):
        # Rows reached what it was to share while it was on its way: then it keeps a state of its own.
        if not host.network.lost_sharing:
            raise
        _splice(host, query, physical, deliver, node, share_state=False)
    assert query.id is not None
    query.complete_from_us = complete_from_us(host.network.queries[query.id])
    before = query.state
    query.state, query.started_us = QueryState.RUNNING, host.runtime.now_us()
    if host.recovery is None:
        show_tables(host, query)
    with host.store.change() as change:
        change.back(lambda: _take_out(host, query, before))
        if forgets:
            host.store.forget_widths(query.name)
        if query.identity and past is not None:
            host.store.set_run(query.key, StoredRun(past.start, query.identity, query.earlier))
        elif query.identity and not recovering:
            host.remember_run(query)
        if past is not None and host.journaling is not None:
            feeding = host.journaling.catching_up
            change.after(lambda: feeding.begin(query, past))
        elif query.planned.physical.options.archive:
            assert host.journaling is not None
            host.journaling.catching_up.went_live(query)


def _check_views(host: EngineHost, query: Query) -> None:
    """Raise InvalidDefinition when a view that a query reads does not run, or begins in the past and so has rows of its own."""
    for view in filter(None, map(host.view, query.planned.streams)):
        if view.id is None:
            message = f"materialized view {view.name} is {view.state.value}, so its rows are not known"
            raise InvalidDefinition(message, hint=f"START QUERY {view.name}")
        if view.planned.physical.options.archive:
            message = f"materialized view {view.name} begins in the past, and a continuous query reads views that begin now"
            raise Unsupported(message, hint=f"put the SELECT of {view.name} in FROM")


def show_tables(host: EngineHost, query: Query) -> None:
    """Let a query that reads what changes of tables and views see now what stands in them, rather than with the next change (K28)."""
    from millstream.engine.plan.logical import Scan, TableChanges, TableScan, walk_plan

    changes = [node.input for node in walk_plan(query.planned.logical.root) if isinstance(node, TableChanges)]
    tables = [scan.table for scan in changes if isinstance(scan, TableScan)]
    views = [host.base_streams((scan.stream,)) for scan in changes if isinstance(scan, Scan)]
    for name in dict.fromkeys((*tables, *(base for bases in views for base in bases))):
        source, arrival_ns = host.network.sources[name], host.runtime.arrival_ns()
        if not source.ended:
            host.runtime.arrived(host.network.ingress.control(source, arrival_ns=arrival_ns, idle=source.idle))


def source_of(query: Query) -> Any:
    """Return what a query is planned from."""
    return query.plan if query.plan is not None else query.planned.text


def _past(host: EngineHost, query: Query) -> PastSources | None:
    """Return sources for a query that begins in the past, None for any other. Unsupported, naming what is in the way."""
    if not query.planned.physical.options.archive:
        return None
    if host.journaling is None or host.runtime.scheduler is None or query.kind is not QueryKind.SELECT:
        raise Unsupported("history = 'archive' is for queries of a server with a data directory", hint="leave it out")
    return host.journaling.catching_up.past_of(query)


def deliverer(host: EngineHost, query: Query) -> Deliver:
    """Return what takes the results of a query's present run: a function of a result train, called by whoever runs its sink."""
    run = query.run
    if query.kind is QueryKind.INSERT:
        return partial(_forward, host, query, run)
    return partial(host.deliver, query, run)


def _forward(host: EngineHost, query: Query, run: int, train: Train) -> None:
    """Let the results of INSERT INTO … SELECT into their target; columns that it does not name are NULL."""
    if query.unfed is not None:
        with host.network.ingress.lock:
            if query.unfed is not None:
                query.unfed.append(train)
                return
    intake = None if query.target is None else host.intakes.get(query.target)
    if train.rows and intake is not None and query.assignment is not None:
        reasons = Reasons(train.rows)
        checked = intake.checked(query.assignment.columns(train, reasons), reasons)
        seqs = train.seq.array()
        if checked.rejected:
            intake.note_refused(checked.rejected, intake.accepted_total + intake.refused_total)
            seqs = np.delete(seqs, [r.index for r in checked.rejected])
        if checked.rows:
            host.feeder.feed(intake.name, query.order, seqs, checked.columns)
    host.deliver(query, run, train)


def let_feed(host: EngineHost, query: Query) -> None:
    """Let the results of a new INSERT into their target, from the first one on: the statement is on disk."""
    with host.network.ingress.lock:
        unfed, query.unfed = query.unfed or [], None
        for train in unfed:
            _forward(host, query, query.run, train)


def _splice(
    host: EngineHost,
    query: Query,
    physical: PhysicalQuery,
    deliver: Deliver,
    node: ClassNode,
    *,
    share_state: bool = True,
    past: PastSources | None = None,
) -> None:
    # What a restart rebuilds has operators of its own, with their state.
    how: dict[str, Any] = {"share": not query.identity, "share_state": share_state}
    if query.kind is QueryKind.DERIVED:
        delta = host.network.create_derived(query.name, physical, class_node=node, deliver=deliver, **how)
    else:
        delta = host.network.add_query(query.name, physical, deliver, class_node=node, past=past, **how)
    query.id = query.last_id = delta.query.id
    host.network.queries[query.id].results_bytes = query.waiting.held
    try:
        host.runtime.add(delta)
    except BaseException:
        query.id = None
        host.network.remove_query(delta.query.id)
        if query.kind is QueryKind.DERIVED:
            host.network.forget_derived(query.name)
        raise


def _take_out(host: EngineHost, query: Query, before: QueryState) -> None:
    """Take back that a run began."""
    if query.kind is QueryKind.DERIVED:
        end_derived(host, query)
    else:
        end(host, query, Verb.STOP, before, NOT_KEPT)


def withdraw(host: EngineHost, query: Query) -> None:
    """Take back that a query was entered."""
    end(host, query, Verb.DROP, QueryState.DROPPED, NOT_KEPT)
    host.queries.remove(query)
    host.catalog.drop_query(query.name)


def end(host: EngineHost, query: Query, verb: Verb, target: QueryState, message: str = "") -> None:
    """End a run: take it out of the network, enter its new state, and only then tell its readers, who may look at once."""
    reason, was_running = END_REASONS[verb], query.id is not None
    counts: dict[str, Any] = {}
    if verb is Verb.EXPIRE:
        _end_readers(host, query, message)
    if query.id is not None:
        counts = host.counts(query)
        _leave(host, query)
    query.state = target
    if was_running or verb is Verb.DROP:
        host.observer.query_ended(query, reason, message, counts)


def _remember_desired(host: EngineHost, query: Query, verb: Verb, target: QueryState) -> None:
    """Keep what a durable query is to be after a restart: one that finished begins anew, save when its lifetime is over."""
    if not query.is_durable or verb is Verb.DROP:
        return
    desired = QueryState.STOPPED if verb is Verb.EXPIRE else target
    if desired is not QueryState.FINISHED:
        host.store.set_desired(query.name, desired.value)


def move(host: EngineHost, query: Query, verb: Verb, message: str = "") -> QueryState | None:
    """Apply a verb to a query, within the present change; returns its new state, None when it was there already.

    IllegalMove when its state does not allow it, StorageError when that cannot be kept.
    """
    target = next_state(query.name, query.state, verb)
    if target is None:
        return None
    readers = host.readers_of_view(query) if verb in (Verb.START, Verb.STOP) else []
    if readers:
        names = ", ".join(reader.name for reader in readers)
        raise InUse(f"materialized view {query.name} is read by {names}", hint=f"STOP QUERY {readers[0].name} first")
    with host.store.change() as change:
        _remember_desired(host, query, verb, target)
        if verb is Verb.START:
            begin(host, query)
        elif verb in END_REASONS:
            change.after(lambda: end(host, query, verb, target, message))
        else:
            change.after(lambda: _hold(host, query, verb, target))
    return target


def _hold(host: EngineHost, query: Query, verb: Verb, target: QueryState) -> None:
    if verb is Verb.PAUSE and query.id is not None:
        host.network.hold(query.id, True)
        host.runtime.pause(query.id)
    elif verb is Verb.RESUME and query.id is not None:
        host.runtime.resume(query.id)
        host.network.hold(query.id, False)
    query.state = target


def strike(host: EngineHost, query: Query, message: str = "") -> None:
    """Drop a query, within the present change: end it, free its name, forget what was kept of it."""

    def gone() -> None:
        host.queries.remove(query)
        host.catalog.drop_query(query.name)

    with host.store.change() as change:
        move(host, query, Verb.DROP, message)
        change.after(gone)
        if query.identity:
            host.store.forget_run(query.key)
        if query.is_durable:
            host.store.forget([], [query.name])


def release(host: EngineHost, owner: object) -> int:
    """Drop the temporary queries of a connection that is gone; returns how many there were."""
    owned = host.queries.owned_by(owner)
    for query in owned:
        strike(host, query, "its connection has closed")
    return len(owned)


def desert(host: EngineHost, name: str) -> None:
    """Drop a temporary query that nobody reads any more."""
    query = host.queries.find(name)
    if query is not None and not query.is_durable:
        strike(host, query, "its readers were too slow, and nobody reads it any more")


def abandon(host: EngineHost, owner: object) -> None:
    """Do no more work for the temporary queries of a connection that is gone, until `release` takes them out; from any thread."""
    for query in host.queries.owned_by(owner):
        running = None if query.id is None else host.network.queries.get(query.id)
        if running is not None:
            running.abandon()


def due(host: EngineHost, now_us: int) -> None:
    """Start queries whose time has come and end those whose lifetime is over. Raises what kept one of them from it."""
    problem: Exception | None = None
    for query in host.queries.timed:
        try:
            _due(host, query, now_us)
        except (EngineError, SchedulerError, ServerError) as error:  # the others have their time too
            problem = error
    if problem is not None:
        raise problem


def _due(host: EngineHost, query: Query, now_us: int) -> None:
    if query.state is QueryState.SUBMITTED and query.start_at_us is not None and query.start_at_us <= now_us:
        move(host, query, Verb.START)
    lifetime_us, started_us = query.lifetime_us, query.started_us
    alive = query.state in (QueryState.RUNNING, QueryState.PAUSED)
    if alive and lifetime_us is not None and started_us is not None and started_us + lifetime_us <= now_us:
        move(host, query, Verb.EXPIRE, "its lifetime is over")


def next_due_us(host: EngineHost) -> int | None:
    """Return when `due` will next have something to do, in µs since 1970; None when nothing is due."""
    times = [q.start_at_us for q in host.queries.timed if q.state is QueryState.SUBMITTED and q.start_at_us is not None]
    times += [
        q.started_us + q.lifetime_us
        for q in host.queries.timed
        if q.state in (QueryState.RUNNING, QueryState.PAUSED) and q.lifetime_us is not None and q.started_us is not None
    ]
    return min(times, default=None)


def _leave(host: EngineHost, query: Query) -> None:
    """Take a run out of the network, and with it views that have ended and that nobody else reads."""
    identity, query.id = query.id, None
    assert identity is not None
    host.runtime.remove(identity, operators_alone(host, identity))
    for view in filter(None, map(host.view, query.planned.streams)):
        if view.state is QueryState.FINISHED and view.id is not None and not host.readers_of_view(view):
            _leave(host, view)


def _end_readers(host: EngineHost, query: Query, why: str) -> None:
    """End all that reads a view that ends before its streams: it would wait for ever."""
    for reader in host.readers_of_view(query):
        reader.failure = f"materialized view {query.name}, which it reads, has ended: {why}"
        host.observer.query_ended(reader, "failed", reader.failure, host.counts(reader))
        finished(host, reader, reader.run)


def end_derived(host: EngineHost, query: Query) -> None:
    """Take the query behind a derived stream out."""
    if query.id is not None:
        identity, query.id = query.id, None
        host.runtime.remove(identity, operators_alone(host, identity))
        host.network.forget_derived(query.name)
    query.state = QueryState.DROPPED


def derived_failed(host: EngineHost, query: Query) -> None:
    """Take a derived stream's query out that failed, after all that reads the stream: it would wait for ever. The definition stays."""
    if query.id is None or host.derived.get(query.name) is not query:
        return
    for reader in host.queries.readers_of(query.name):
        if reader.id is not None:
            reader.failure = f"stream {query.name}, which it reads, has ended: {query.failure}"
            host.observer.query_ended(reader, "failed", reader.failure, host.counts(reader))
            finished(host, reader, reader.run)
    for other in tuple(host.derived.values()):
        if other.id is not None and query.name in other.reads:
            other.failure = f"stream {query.name}, which it reads, has ended: {query.failure}"
            derived_failed(host, other)
    end_derived(host, query)
    query.state = QueryState.FINISHED


def drop_relation(host: EngineHost, name: str) -> None:
    """Take a stream, derived stream or table that nothing reads any more out of memory."""
    relation = host.catalog.relation(name)
    host.catalog.drop_relation(name)
    if isinstance(relation, DerivedStream):
        end_derived(host, host.derived.pop(name))
    else:
        host.close_relation(name)
    host.observer.stream_dropped(name)


def operators_alone(host: EngineHost, identity: QueryId) -> tuple[OperatorId, ...]:
    """Return the operators, sources too, that serve this run and nobody else: they leave with it."""
    alone = tuple(o.id for o in host.network.queries[identity].blueprint.operators if o.queries == 1)
    return (*host.network.sources_alone(identity), *alone)


def finished(host: EngineHost, query: Query, run: int) -> None:
    """Take a run whose inputs have ended, or that failed, out of the network; its state is kept no longer."""
    if query.run == run and query.state in (QueryState.RUNNING, QueryState.PAUSED) and host.queries.find(query.name) is query:
        host.counts(query)
        if query.failure is not None:
            _end_readers(host, query, query.failure)
        if query.id is not None and not host.readers_of_view(query):  # who reads a view sees its last rows still
            _leave(host, query)
        query.state = QueryState.FINISHED
