"""The running operators as rows: what each did, what waits before it, and for SHOW OPERATORS what it reads and whom it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.flow.running import RunningOperator
from millstream.server.results.outcome import Outcome, table

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost

NS_PER_US = 1_000
OPERATOR_COLUMNS = (
    ("operator", "BIGINT"),
    ("kind", "TEXT"),
    ("queries", "BIGINT"),
    ("calls", "BIGINT"),
    ("rows_in", "BIGINT"),
    ("rows_out", "BIGINT"),
    ("selectivity", "DOUBLE"),
    ("cost_us_per_row", "DOUBLE"),
    ("waiting", "BIGINT"),
    ("state_rows", "BIGINT"),
    ("state_bytes", "BIGINT"),
    ("watermark", "TIMESTAMP"),
)


def operator_row(operator: RunningOperator) -> tuple[Any, ...]:
    """Return the values of `OPERATOR_COLUMNS`; rates are NULL where nothing came."""
    did = operator.statistics
    kind = type(operator.recipe).__name__.removesuffix("Recipe").lower()
    selectivity = did.rows_out / did.rows_in if did.rows_in else None
    cost_us = did.cost_ns / did.rows_in / NS_PER_US if did.rows_in else None
    waiting = sum(cursor.pending_rows() for cursor in operator.inputs)
    done = (did.calls, did.rows_in, did.rows_out, selectivity, cost_us, waiting)
    logs = operator.outputs or [cursor.log for cursor in operator.inputs]
    watermark_us = min(log.watermark_us for log in logs)
    mark = None if watermark_us in (TIME_MIN, TIME_MAX) else watermark_us
    return (int(operator.id), kind, operator.queries, *done, operator.held_rows(), operator.held_bytes(), mark)


def show_operators(host: EngineHost) -> Outcome:
    """Return a row an operator of the whole network; an operator that several queries share stands once."""
    network = host.network
    operators = list(network.operators.values())
    producers = {id(log): int(operator.id) for operator in operators for log in operator.outputs}
    streams: dict[int, str] = {}
    for name, source in list(network.sources.items()):
        streams |= {id(log): name for log in (*source.whole_logs, *(shed.log for shed in list(source.shed_logs.values())))}
    scheduler = host.runtime.scheduler
    standings = {} if scheduler is None else scheduler.ask(lambda core: core.standings())
    rows = []
    for operator in operators:
        logs = [id(cursor.log) for cursor in operator.inputs]
        read = list(dict.fromkeys(streams[log] for log in logs if log in streams))
        behind = list(dict.fromkeys(producers[log] for log in logs if log in producers))
        served = [query.node.name for query in network.queries_served(operator.id)]
        unit, rank = standings.get(operator.id, (None, None))
        rows.append((*operator_row(operator), unit, rank, read, behind, served))
    columns = [
        *OPERATOR_COLUMNS,
        ("unit", "BIGINT"),
        ("rank", "DOUBLE"),
        ("reads_streams", "TEXT[]"),
        ("reads_operators", "BIGINT[]"),
        ("serves", "TEXT[]"),
    ]
    return table(columns, rows, "operator kind queries rows_in rows_out cost_us_per_row waiting state_bytes serves")
