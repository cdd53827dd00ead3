"""Late rows and evaluation errors on their way from an operator to the accounts and the owner's hooks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.train import Int64Array, Train, original_rows
from millstream.engine.flow.running import RunningOperator
from millstream.engine.operators.contract import Emitter, EvaluationErrors
from millstream.engine.runtime.blueprint import RunningQuery
from millstream.engine.runtime.network import Network


def pass_side_rows(network: Network, running: RunningOperator, out: Emitter) -> None:
    """Count and hand on, for each query that the operator serves."""
    for output, late, partly in out.late_of_output:
        for query in network.queries_of_output(running.id, output):
            if not _judged(running, query, 0):
                if late is not None:
                    _pass_late(network, running.port_streams[0], query, late)
                _count_partly_late(running, query, 0, partly)
    for query in network.queries_served(running.id):
        for errors in out.errors:
            _pass_errors(network, running, query, errors)
        for port, rows in out.late:
            if not _judged(running, query, port):
                _pass_late(network, running.port_streams[port], query, rows)
        for port, seqs in out.partly_late:
            if not _judged(running, query, port):
                _count_partly_late(running, query, port, seqs)


def tell_watchers(network: Network, running: RunningOperator, inputs: Sequence[Train], out: Emitter) -> None:
    """Tell the queries that judge late rows across their branches what a call did, after `pass_side_rows`."""
    for query in network.watchers_of(running.id):
        assert query.branches is not None
        query.branches.observe(running, inputs, out)
    running.watch(0, 1)
    settle_watchers(network, running)


def settle_watchers(network: Network, running: RunningOperator) -> None:
    """Count and hand on the late rows that all branches have passed; the rows behind an operator may have moved on."""
    for query in network.watchers_of(running.id):
        assert query.branches is not None
        late, partly = query.branches.settle()
        for streams, row in late:
            _pass_late(network, streams, query, row)
        for seq, streams in partly:
            if seq >= query.from_seq:
                owner = min(streams) if len(streams) == 1 else network.ingress.stream_of(np.array([seq], dtype=np.int64))[0]
                query.ledgers[owner if owner in streams else min(streams)].partly_late += 1


def _judged(running: RunningOperator, query: RunningQuery, port: int) -> bool:
    return query.branches is not None and query.branches.judges(running, port)


def _count_partly_late(running: RunningOperator, query: RunningQuery, port: int, seqs: Int64Array) -> None:
    query.ledgers[min(running.port_streams[port])].partly_late += int(np.count_nonzero(seqs >= query.from_seq))


def _own(query: RunningQuery, rows: Train) -> Train:
    """Return the rows that came after the query did, and before another plan took it over."""
    until = query.until_seq
    if rows.rows == 0 or (query.from_seq <= rows.lo and (until is None or rows.hi <= until)):
        return rows
    seqs = rows.seq.array()
    own = seqs >= query.from_seq
    return rows.select(own if until is None else own & (seqs < until))


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


def _pass_late(network: Network, streams: frozenset[str], query: RunningQuery, rows: Train) -> None:
    rows = _own(query, rows)
    if rows.rows == 0:
        return
    for stream, part in _by_stream(network, streams, rows):
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
