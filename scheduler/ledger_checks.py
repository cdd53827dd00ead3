"""Checks that every sum of a ledger is what its parts say: for tests, and for whoever doubts."""

from __future__ import annotations

from millstream.engine.data.graph import OperatorId
from millstream.scheduler.errors import LedgerError
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.limits import NEVER_NS


def validate(ledger: Ledger, *, settled: bool = True) -> None:
    """Check every sum; raises `LedgerError` naming the place.

    `settled` False allows an edge to be ahead of the arrivals told so far, as happens while a live driver runs.
    """
    ledger.settle()
    network = ledger.network
    for edge_id, edge in network.edges.slot_of.items():
        produced = int(ledger.log_rows[network.edge_log[edge]])
        waiting, consumed = int(ledger.edge_rows[edge]), int(ledger.edge_consumed[edge])
        if produced != consumed + waiting:
            raise LedgerError(f"edge {edge_id}: {produced} rows appended, {consumed} consumed, {waiting} waiting")
        if settled and (waiting < 0 or int(ledger.edge_controls[edge]) < 0):
            raise LedgerError(f"edge {edge_id}: {waiting} rows and {int(ledger.edge_controls[edge])} controls waiting")
        if (waiting <= 0) != (int(ledger.edge_head_ns[edge]) == NEVER_NS):
            raise LedgerError(f"edge {edge_id}: {waiting} rows waiting, head {int(ledger.edge_head_ns[edge])}")
        if bool(ledger.edge_full[edge]) != (waiting >= ledger.edge_rows_max):
            raise LedgerError(f"edge {edge_id}: full mark {int(ledger.edge_full[edge])} at {waiting} rows")
    for operator_id, slot in network.operators.slot_of.items():
        _validate_operator(ledger, operator_id, slot)
    if ledger.bytes_total != int(ledger.edge_bytes.sum()):
        raise LedgerError(f"{ledger.bytes_total} bytes counted in all, {int(ledger.edge_bytes.sum())} by edges")
    if ledger.stalled_count != int(ledger.stalled.sum()):
        raise LedgerError(f"{ledger.stalled_count} operators counted as stalled, {int(ledger.stalled.sum())} marked")


def _validate_operator(ledger: Ledger, operator_id: OperatorId, slot: int) -> None:
    network = ledger.network
    edges = network.inputs[slot]
    rows = sum(int(ledger.edge_rows[edge]) for edge in edges)
    controls = sum(int(ledger.edge_controls[edge]) for edge in edges) + int(ledger.timers[slot])
    head = min((int(ledger.edge_head_ns[edge]) for edge in edges), default=NEVER_NS)
    full = sum(int(ledger.edge_full[edge]) for log in network.outputs[slot] for edge in network.log_readers[log].edges)
    expected = {"rows": rows, "controls": controls, "head_ns": head, "full_outputs": full}
    for name, value in expected.items():
        if int(getattr(ledger, name)[slot]) != value:
            raise LedgerError(f"operator {operator_id}: {name} is {int(getattr(ledger, name)[slot])}, its edges say {value}")
    if int(ledger.busy[slot]) not in (0, 1):
        raise LedgerError(f"operator {operator_id}: locked {int(ledger.busy[slot])} times")
