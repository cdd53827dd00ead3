"""What the network tells its owner while operators run."""

from __future__ import annotations

from typing import Protocol

from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.data.train import Train
from millstream.engine.operators.contract import EvaluationErrors


class Hooks(Protocol):
    """What the network tells its owner while operators run; called from worker threads, must return soon and never raise."""

    def late(self, query: str, stream: str, rows: Train) -> None:
        """Rows that reached none of the query's windows. They have the stream's own columns where it has LATE INTO or ERRORS INTO."""

    def evaluation_errors(self, query: str, stream: str | None, errors: EvaluationErrors) -> None:
        """Rows at which an expression failed (K8)."""

    def query_failed(self, query: QueryId, operator: OperatorId, error: Exception) -> None:
        """An operator raised: a fault of ours or of user code. The query no longer runs."""


class NoHooks:
    """Hooks of an owner who does not want to know; evaluation errors and late rows are still counted."""

    def late(self, query: str, stream: str, rows: Train) -> None:
        """Ignore."""

    def evaluation_errors(self, query: str, stream: str | None, errors: EvaluationErrors) -> None:
        """Ignore."""

    def query_failed(self, query: QueryId, operator: OperatorId, error: Exception) -> None:
        """Raise: an owner without hooks is a test, which must see it."""
        raise error
