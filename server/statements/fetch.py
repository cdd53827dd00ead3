"""FETCH SELECT … and FETCH QUERY name: one answer now, from what tables, kept results, journals and running queries hold.

`prepare` and `Asked.take` run with the other statements, one after the other: the one plans, the other takes what is held at one point in
arrival order. The answer is computed from that alone (`once/question.py`), in a process of its own where others wait (`once/fetches.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import EngineError, InvalidDefinition, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.language.statements import Fetch
from millstream.engine.plan.demands import Demand, demands_of
from millstream.engine.plan.join_binder import check_times, table_of_rows
from millstream.engine.plan.logical import Aggregate, walk_plan
from millstream.engine.plan.plan import PlannedQuery, PlanOptions, plan_select
from millstream.engine.runtime import fork
from millstream.server.host.contract import HeldBlock, HeldPast, HeldRows
from millstream.server.host.queries import Query
from millstream.server.once.held import (
    as_relation,
    fetchable_queries,
    results_held,
    table_rows_held,
    time_of,
    view_held,
    without_sides,
)
from millstream.server.once.question import Question, answer_of
from millstream.server.results.outcome import Outcome

if TYPE_CHECKING:
    from millstream.server.archive.archiver import StreamArchive
    from millstream.server.archive.history import TimeBounds
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


@dataclass(frozen=True, slots=True)
class Asked:
    """A FETCH that was planned. Once the queries that it `waits_for` have seen what arrived, `take` copies what is held now.

    The archives that it then `reads` keep their files until `release`.
    """

    waits_for: list[Query]
    take: Callable[[], Question]
    reads: list[StreamArchive] = field(default_factory=list)

    def release(self) -> None:
        """Let files go that were kept for this answer."""
        while self.reads:
            self.reads.pop().readers -= 1


def fetch(host: EngineHost, statement: Fetch, context: Context) -> Outcome:
    """Return the answer at once, computed here."""
    asked = prepare(host, statement)
    for query in asked.waits_for:
        host.let_see(query)
    try:
        return answer_of(asked.take())
    finally:
        asked.release()


def prepare(host: EngineHost, statement: Fetch) -> Asked:
    """Plan. Unsupported when an input holds no rows, with what would."""
    if statement.name is not None:
        return _of_query(host, host.queries.get(statement.name.text))
    assert statement.query is not None
    queries = fetchable_queries(host)
    catalog = host.catalog.with_relations([as_relation(q) for q in queries.values()])
    planned = plan_select(statement.query, catalog, options=PlanOptions(host.rules_off, finite=True), text=statement.text)
    check_times(planned.bound.root, frozenset(name for name, q in queries.items() if time_of(q).column is None))
    history = _histories(host, statement, planned, queries)
    missing = _not_held(host, planned, queries)
    if missing:
        twin = _running_twin(host, statement)
        if twin is None:
            raise _nothing_held(missing[0], statement.text)
        return _of_query(host, twin, _over_nothing(host, planned))
    if host.refresh is not None:
        host.refresh.asked([table_of_rows(name) or name for name in _inputs(planned)])
    named = {name: queries[name] for name in _inputs(planned) if name in queries}
    reads: list[StreamArchive] = []
    return Asked(list(named.values()), lambda: _over_held(host, planned, named, history, reads), reads)


# -- over held rows -----------------------------------------------------------------------------------------------------------


def _histories(host: EngineHost, statement: Fetch, planned: PlannedQuery, queries: Mapping[str, Query]) -> dict[str, TimeBounds]:
    """Return the bounds of the archived streams whose history is asked for, those behind derived streams too."""
    if not statement.history:
        return {}
    from millstream.server.archive.history import NO_BOUNDS, TimeBounds  # loaded by the first that needs it

    found: dict[str, TimeBounds] = {}
    for asked in statement.history:
        name, bounds = asked.stream.text, TimeBounds(asked.from_us, asked.to_us)
        refuse = partial(Unsupported, line=asked.stream.place.line, column=asked.stream.place.column, token=name)
        if name in host.derived and bounds != NO_BOUNDS:
            message = f"{name} is a derived stream, whose rows follow from all of the history"
            raise refuse(message, hint="leave FROM and TO out, and use WHERE")
        for base in host.base_streams((name,)):
            if host.journaling is None or host.journaling.archives is None or host.journaling.archives.find(base) is None:
                raise refuse(f"{base} has no archive", hint="CREATE STREAM … DURABILITY journal ARCHIVE keeps its history")
            if found.setdefault(base, bounds) != bounds:
                raise refuse(f"{base} is named with two histories", hint="give both the same FROM and TO")
    kept = [name for name in _inputs(planned) if name in queries]
    if found and kept:
        message = f"results of query {kept[0]} have no history beside that of a stream"
        raise Unsupported(message, hint=f"put the SELECT of {kept[0]} in FROM")
    return found


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


def _over_held(
    host: EngineHost, planned: PlannedQuery, queries: dict[str, Query], history: Mapping[str, TimeBounds], reads: list[StreamArchive]
) -> Question:
    held: dict[str, HeldRows | HeldPast] = {}
    derived: dict[str, Query] = {}
    views = {name for name, query in queries.items() if query.planned.physical.options.materialized}
    kept = {name: host.observer.kept(query) for name, query in queries.items() if name not in views}
    with host.runtime.still() if views else nullcontext(), host.network.ingress.lock:
        position = host.network.ingress.next_seq - 1

        def visit(names: Sequence[str]) -> None:
            for name in names:
                if name in held or name in derived:
                    continue
                if name in host.derived:
                    visit(_inputs(host.derived[name].planned))
                    derived[name] = host.derived[name]
                elif name in views:
                    held[name] = view_held(host, queries[name])
                elif name in kept:
                    held[name] = results_held(queries[name], kept[name])
                elif history and isinstance(relation := host.catalog.relation(table_of_rows(name) or name), StreamDefinition):
                    demands = demands_of(planned.logical) if planned.streams == (name,) else ()
                    held[name] = _past_held(host, relation, history.get(name), reads, demands)
                else:
                    held[name] = _relation_held(host, name)

        visit(_inputs(planned))

    info: dict[str, Any] = {"position": position}
    if kept:
        info["positions"] = {name: held[name].position for name in kept}
    return Question(
        planned.physical,
        held,
        tables={name: r for name in held if isinstance(r := host.catalog.find(name), TableDefinition)},
        derived={name: query.planned.physical for name, query in derived.items()},
        info=info,
    )


def _past_held(
    host: EngineHost, stream: StreamDefinition, bounds: TimeBounds | None, reads: list[StreamArchive], demands: tuple[Demand, ...]
) -> HeldPast:
    assert host.journaling is not None
    archive = None if host.journaling.archives is None else host.journaling.archives.find(stream.name)
    if archive is not None:
        archive.readers += 1
        reads.append(archive)
    return replace(host.journaling.past(stream, bounds, demands), definition=without_sides(stream))


def _relation_held(host: EngineHost, name: str) -> HeldRows:
    table = table_of_rows(name)
    if table is not None:
        return table_rows_held(host, table, name)
    relation = host.catalog.relation(name)
    if isinstance(relation, TableDefinition):
        return table_rows_held(host, name, name)
    assert isinstance(relation, StreamDefinition)
    return host.held(without_sides(relation))


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


def _over_nothing(host: EngineHost, planned: PlannedQuery) -> Question | None:
    """Ask what an aggregate without groups gives where no row has come: a row. None for another SELECT."""
    if not any(isinstance(node, Aggregate) and node.emit.always for node in walk_plan(planned.bound.root)):
        return None
    held: dict[str, HeldRows] = {}
    tables: dict[str, TableDefinition] = {}
    for name in _inputs(planned):
        found = host.catalog.relation(table_of_rows(name) or name)
        if isinstance(found, TableDefinition) and found.name == name:
            tables[name] = found
        held[name] = HeldRows(StreamDefinition(name, found.schema), -1, _no_blocks)
    return Question(planned.physical, held, tables)


def _no_blocks() -> Iterator[HeldBlock]:
    return iter(())


def _of_query(host: EngineHost, query: Query, instead: Question | None = None) -> Asked:
    """Ask what a running query would still answer if its inputs ended now; of a change log, the rows that stand."""
    return Asked([query], lambda: _copied(host, query, instead))


def _copied(host: EngineHost, query: Query, instead: Question | None) -> Question:
    if query.id is None:
        raise InvalidDefinition(f"query {query.name} is {query.state.value}, so its windows hold nothing", hint=f"START QUERY {query.name}")
    with host.runtime.still(), host.network.ingress.lock:
        at = host.network.ingress.next_seq
        running = [host.network.queries[q.id].blueprint for q in _feeders(host, query) if q.id is not None]
        copied = fork.take([*running, host.network.queries[query.id].blueprint], at)
    return Question(query.planned.physical, copied=copied, instead=instead, info={"position": at - 1})


def _feeders(host: EngineHost, query: Query) -> list[Query]:
    """Return the queries behind the derived streams and views that a query reads, those that others read first."""
    found: dict[str, Query] = {}

    def visit(names: Sequence[str]) -> None:
        for name in names:
            made = host.maker(name)
            if made is not None and name not in found:
                visit(made.reads)
                found[name] = made

    visit(query.reads)
    return list(found.values())


def _nothing_held(stream: str, text: str) -> Unsupported:
    return Unsupported(
        f"no rows of stream {stream} are held, so FETCH has nothing to read",
        hint=f"start CREATE QUERY name AS SELECT * FROM {stream}, then FETCH SELECT … FROM name; or start this SELECT as a query and FETCH "
        "it; or create the stream with DURABILITY journal",
    )
