"""Late rows and evaluation errors on their way from an operator to the accounts and the owner's hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from millstream.engine.operators.contract import Emitter, EvaluationErrors
from millstream.engine.running import RunningOperator
from millstream.engine.train import Int64Array, Train, original_rows

if TYPE_CHECKING:
    from millstream.engine.network import Network, RunningQuery


def pass_side_rows(network: Network, running: RunningOperator, out: Emitter) -> None:
    """Count and hand on, for each query that the operator serves."""
    for port, rows, partly in out.late_of_output:
        stream = min(running.port_streams[0])
        for query in network.queries_of_output(running.id, port):
            if rows is not None:
                _pass_late(network, running, query, 0, rows)
            query.ledgers[stream].partly_late += partly
    for query in network.queries_served(running.id):
        for errors in out.errors:
            _pass_errors(network, running, query, errors)
        for port, rows in out.late:
            _pass_late(network, running, query, port, rows)
        for port, count in out.partly_late:
            stream = min(running.port_streams[port])
            query.ledgers[stream].partly_late += count


def _own(query: RunningQuery, rows: Train) -> Train:
    """Return the rows that came after the query did."""
    if rows.rows == 0 or query.from_seq <= rows.lo:
        return rows
    return rows.select(rows.seq.array() >= query.from_seq)


def _pass_errors(network: Network, running: RunningOperator, query: RunningQuery, errors: EvaluationErrors) -> None:
    errors = EvaluationErrors(errors.reason, _own(query, errors.rows))
    if errors.rows.rows == 0:
        return
    by_stream = _by_stream(network, frozenset().union(*running.port_streams), errors.rows)
    for stream, rows in by_stream:
        # Behind a window or a join a row is no longer one row of the stream, so only raw rows count as failed (K10).
        if running.raw:
            query.ledgers[stream].count_failed(rows.seq.array().tolist())
        else:
            query.ledgers[stream].failed_results += rows.rows
        network.hooks.evaluation_errors(query.node.name, stream, EvaluationErrors(errors.reason, rows))


def _pass_late(network: Network, running: RunningOperator, query: RunningQuery, port: int, rows: Train) -> None:
    rows = _own(query, rows)
    if rows.rows == 0:
        return
    for stream, part in _by_stream(network, running.port_streams[port], rows):
        new = query.ledgers[stream].count_late(part.seq.array().tolist())
        if any(new):
            told = part if all(new) else part.select(np.array(new, dtype=np.bool_))
            network.hooks.late(query.node.name, stream, original_rows(told))


def _by_stream(network: Network, streams: frozenset[str], rows: Train) -> list[tuple[str, Train]]:
    """Part rows by the stream that they came from; it takes the arrival numbers only behind a union."""
    if len(streams) == 1:
        return [(next(iter(streams)), rows)]
    owners = network.ingress.stream_of(rows.seq.array())
    fallback = min(streams)
    named = [owner if owner in streams else fallback for owner in owners]
    parts: list[tuple[str, Train]] = []
    for stream in sorted(set(named)):
        positions = [i for i, owner in enumerate(named) if owner == stream]
        parts.append((stream, rows.take(_index(positions))))
    return parts


def _index(positions: list[int]) -> Int64Array:
    return np.array(positions, dtype=np.int64)
