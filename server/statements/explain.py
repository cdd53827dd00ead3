"""EXPLAIN [SEMANTICS | ANALYZE | QOS]: how a query is planned, what its answers mean, what its operators cost, what it was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.flow.running import RunningOperator
from millstream.engine.language.statements import Explain, ExplainMode
from millstream.engine.plan.explain import explain as plan_text
from millstream.engine.plan.explain import explain_semantics
from millstream.engine.plan.plan_writer import to_plan_object
from millstream.server.host import running
from millstream.server.host.queries import Query
from millstream.server.results.outcome import Outcome, table
from millstream.server.statements.promises import promises
from millstream.server.statements.surroundings import sharing_lines, source_lines

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

NS_PER_US = 1_000


def explain(host: EngineHost, statement: Explain, context: Context) -> Outcome:
    """Explain a query by name, a derived stream, or a SELECT that is not started for it."""
    query = _named(host, statement.name.text) if statement.name is not None else None
    planned = query.planned if query is not None else running.plan(host, statement.query, {}, statement.text)
    if statement.mode is ExplainMode.ANALYZE:
        if query is None:
            raise InvalidDefinition("EXPLAIN ANALYZE shows what running operators cost", hint="start the SELECT and name its query")
        return _analyzed(host, query)
    if statement.mode is ExplainMode.QOS:
        return promises(host, planned, query)
    text = explain_semantics(planned) if statement.mode is ExplainMode.SEMANTICS else plan_text(planned)
    sharing = [] if statement.mode is ExplainMode.SEMANTICS else sharing_lines(host, planned, query)
    text = "\n".join([text, *source_lines(host, planned), *sharing])
    name = None if query is None else query.name
    info: dict[str, Any] = {} if statement.mode is ExplainMode.SEMANTICS else {"plan": to_plan_object(planned.bound, name)}
    return Outcome([["explanation", "TEXT", False]], [[line] for line in text.splitlines()], info=info)


def _named(host: EngineHost, name: str) -> Query:
    return host.derived[name] if name in host.derived and host.queries.find(name) is None else host.queries.get(name)


def _analyzed(host: EngineHost, query: Query) -> Outcome:
    """A row an operator, in the order in which rows pass them: what it did since it began."""
    if query.id is None:
        raise InvalidDefinition(f"query {query.name} is {query.state.value}, so nothing of it runs", hint=f"START QUERY {query.name}")
    rows = [_operator_row(operator) for operator in host.network.queries[query.id].blueprint.operators]
    columns = [("operator", "BIGINT"), ("kind", "TEXT"), ("queries", "BIGINT"), ("calls", "BIGINT"), ("rows_in", "BIGINT")]
    columns += [("rows_out", "BIGINT"), ("selectivity", "DOUBLE"), ("cost_us_per_row", "DOUBLE"), ("waiting", "BIGINT")]
    return table([*columns, ("state_rows", "BIGINT"), ("state_bytes", "BIGINT"), ("watermark", "TIMESTAMP")], rows)


def _operator_row(operator: RunningOperator) -> tuple[Any, ...]:
    did = operator.statistics
    kind = type(operator.recipe).__name__.removesuffix("Recipe").lower()
    selectivity = did.rows_out / did.rows_in if did.rows_in else None
    cost_us = did.cost_ns / did.rows_in / NS_PER_US if did.rows_in else None
    waiting = sum(cursor.pending_rows() for cursor in operator.inputs)
    done = (did.calls, did.rows_in, did.rows_out, selectivity, cost_us, waiting)
    logs = operator.outputs or [cursor.log for cursor in operator.inputs]
    watermark_us = min(log.watermark_us for log in logs)
    mark = None if watermark_us in (TIME_MIN, TIME_MAX) else watermark_us
    return (int(operator.id), kind, operator.queries, *done, operator.logic.state_rows(), operator.logic.state_bytes(), mark)
