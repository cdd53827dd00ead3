"""FETCH SELECT … and FETCH QUERY name: one answer now, from what tables, kept results, journals and running queries hold.

`prepare` runs with the other statements, one after the other: it plans, and takes what is held at one point in arrival order. What it
returns computes the answer, on any thread, from that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import EngineError, InvalidDefinition, Unsupported
from millstream.engine.data.schema import Schema, StreamDefinition, TableDefinition
from millstream.engine.data.train import Train
from millstream.engine.language.statements import Fetch
from millstream.engine.plan.join_binder import check_times, table_of_rows
from millstream.engine.plan.plan import PlannedQuery, PlanOptions, plan_select
from millstream.engine.runtime import fork
from millstream.server.host.contract import HeldRows
from millstream.server.host.queries import Query
from millstream.server.once.answering import PrivateEngine
from millstream.server.once.held import (
    as_relation,
    fetchable_queries,
    results_held,
    table_rows_held,
    time_of,
    without_sides,
)
from millstream.server.results.net_rows import net_rows
from millstream.server.results.outcome import NamedResult, Outcome
from millstream.server.results.trains import ResultShape

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

Answer = Callable[[], Outcome]


def fetch(host: EngineHost, statement: Fetch, context: Context) -> Outcome:
    """Return the answer at once."""
    return prepare(host, statement)()


def prepare(host: EngineHost, statement: Fetch) -> Answer:
    """Plan, take what is held, and return what computes the answer. Unsupported when an input holds no rows, with what would."""
    if statement.name is not None:
        return _of_query(host, host.queries.get(statement.name.text))
    assert statement.query is not None
    queries = fetchable_queries(host)
    catalog = host.catalog.with_relations([as_relation(q) for q in queries.values()])
    planned = plan_select(statement.query, catalog, options=PlanOptions(host.rules_off, finite=True), text=statement.text)
    check_times(planned.bound.root, frozenset(name for name, q in queries.items() if time_of(q).column is None))
    missing = _not_held(host, planned, queries)
    if missing:
        twin = _running_twin(host, statement)
        if twin is None:
            raise _nothing_held(missing[0], statement.text)
        return _of_query(host, twin)
    return _over_held(host, planned, queries)


# -- over held rows -----------------------------------------------------------------------------------------------------------


def _inputs(planned: PlannedQuery) -> list[str]:
    return [*planned.streams, *planned.tables]


def _not_held(host: EngineHost, planned: PlannedQuery, queries: dict[str, Query]) -> list[str]:
    """Return the streams that a query reads, itself or through derived streams, of which no rows are held."""
    missing: list[str] = []
    for name in _inputs(planned):
        table = table_of_rows(name)
        if table is not None or name in queries or isinstance(host.catalog.find(name), TableDefinition):
            continue
        derived = host.derived.get(name)
        if derived is not None:
            missing += _not_held(host, derived.planned, {})
        elif not host.holds(name):
            missing.append(name)
    return missing


def _over_held(host: EngineHost, planned: PlannedQuery, queries: dict[str, Query]) -> Answer:
    engine = PrivateEngine()
    held: dict[str, HeldRows] = {}
    derived: dict[str, Query] = {}
    kept = {name: host.kept(queries[name]) for name in _inputs(planned) if name in queries}
    with host.network.ingress.lock:
        position = host.network.ingress.next_seq - 1

        def visit(names: Sequence[str]) -> None:
            for name in names:
                if name in held or name in derived:
                    continue
                if name in host.derived:
                    visit(_inputs(host.derived[name].planned))
                    derived[name] = host.derived[name]
                elif name in kept:
                    held[name] = results_held(queries[name], kept[name])
                else:
                    held[name] = _relation_held(host, name)

        visit(_inputs(planned))

    tables = {name: r for name in held if isinstance(r := host.catalog.find(name), TableDefinition)}
    plans = {name: query.planned.physical for name, query in derived.items()}

    def answer() -> Outcome:
        for name, table in tables.items():
            engine.add_table(table, held[name])
        streams = [rows for name, rows in held.items() if name not in tables]
        for rows in streams:
            engine.add_stream(rows)
        for name, physical in plans.items():
            engine.add_derived(name, physical)
        trains = engine.run(planned.physical, streams)
        return _outcome(planned, trains, position, _notices(held, engine), {n: held[n].position for n in kept})

    return answer


def _relation_held(host: EngineHost, name: str) -> HeldRows:
    table = table_of_rows(name)
    if table is not None:
        return table_rows_held(host, table, name)
    relation = host.catalog.relation(name)
    if isinstance(relation, TableDefinition):
        return table_rows_held(host, name, name)
    assert isinstance(relation, StreamDefinition)
    return host.held(without_sides(relation))


def _notices(held: dict[str, HeldRows], engine: PrivateEngine) -> list[str]:
    told = [f"{h.missing} older rows of {name} are held no longer" for name, h in held.items() if h.missing]
    if engine.late_rows:
        told.append(f"{engine.late_rows} rows came too late")
    if engine.failed_rows:
        told.append(f"{engine.failed_rows} rows had an expression that could not be computed; it is NULL")
    return told


# -- what a running query holds -----------------------------------------------------------------------------------------------


def _running_twin(host: EngineHost, statement: Fetch) -> Query | None:
    """Return a running query whose plan is that of the SELECT, so that it holds what the answer is made of."""
    try:
        planned = plan_select(statement.query, host.catalog, options=PlanOptions(host.rules_off))  # type: ignore[arg-type]
    except EngineError:
        return None  # it is no continuous query, so none runs
    running: list[Query] = [*host.queries, *host.derived.values()]
    for query in running:
        same = query.planned.logical.root == planned.logical.root and query.planned.logical.emit == planned.logical.emit
        if same and query.id is not None:
            return query
    return None


def _of_query(host: EngineHost, query: Query) -> Answer:
    """Return what a running query would still answer if its inputs ended now; of a change log, the rows that stand."""
    if query.id is None:
        raise InvalidDefinition(f"query {query.name} is {query.state.value}, so its windows hold nothing", hint=f"START QUERY {query.name}")
    host.let_see(query)
    with host.runtime.still(), host.network.ingress.lock:
        at = host.network.ingress.next_seq
        running = [host.network.queries[q.id].blueprint for q in _feeders(host, query) if q.id is not None]
        copied = fork.take([*running, host.network.queries[query.id].blueprint], at)
    planned = query.planned
    return lambda: _outcome(planned, copied.finish(changes=planned.physical.change_kind is not None), at - 1, [], {})


def _feeders(host: EngineHost, query: Query) -> list[Query]:
    """Return the queries behind the derived streams that a query reads, those that others read first."""
    found: dict[str, Query] = {}

    def visit(names: Sequence[str]) -> None:
        for name in names:
            derived = host.derived.get(name)
            if derived is not None and name not in found:
                visit(derived.reads)
                found[name] = derived

    visit(query.reads)
    return list(found.values())


def _nothing_held(stream: str, text: str) -> Unsupported:
    return Unsupported(
        f"no rows of stream {stream} are held, so there is nothing to answer from at once",
        hint=f"CREATE QUERY name AS SELECT * FROM {stream} and FETCH SELECT … FROM name; or run this SELECT as a query and FETCH it; or "
        "give the stream DURABILITY journal",
    )


# -- the answer ---------------------------------------------------------------------------------------------------------------


def _outcome(planned: PlannedQuery, trains: list[Train], position: int, notices: list[str], positions: dict[str, int]) -> Outcome:
    schema = planned.physical.schema
    batches = [ResultShape(schema).batch(train) for train in trains]
    if planned.physical.change_kind is not None:
        schema = Schema(schema.fields[:-1])
        batches = net_rows(schema, batches)
    info: dict[str, Any] = {"position": position}
    if positions:
        info["positions"] = positions
    return Outcome(notices=tuple(notices), info=info, answer=NamedResult("answer", schema, batches))
