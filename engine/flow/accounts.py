"""The conservation law per query and input stream (K10): accepted = processed + late + shed + failed + still queued.

Accepted rows are counted where they enter, consumed ones by the query's own cursor, queued ones by walking the log, late and failed
ones where operators meet them; so the sum can fail, and the server can watch that it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Protocol

from millstream.engine.data import limits
from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Train
from millstream.engine.flow.cursors import Cursor
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


@dataclass(frozen=True, slots=True)
class StreamAccount:
    """The sums for one query and one of its input streams.

    `failed_results` takes no part in the law: rows behind a window, an aggregate or a join at which an expression failed are no rows
    of the stream, such as the groups at which HAVING did.
    """

    stream: str
    accepted: int
    processed: int
    late: int
    partly_late: int
    shed: int
    failed: int
    queued: int
    failed_results: int = 0

    @property
    def balances(self) -> bool:
        """The law holds: exact once the query is quiescent."""
        return self.accepted == self.processed + self.late + self.shed + self.failed + self.queued


class ShedCount(Protocol):
    """Whoever counts what was shed at a source."""

    shed: int


@dataclass(slots=True)
class StreamLedger:
    """Running counts for one input stream of one query. `shed_log` counts the rows that the source shed for its class.

    `rows_before`: rows on the log when the query came; `older` of them are, or were, the cursor's to take, for queries that it also serves.
    `done_before`: rows that an earlier plan of the query took (handover.py); `older` then counts from where this one's began.
    """

    stream: str
    cursor: Cursor
    shed_log: ShedCount | None
    shed_before: int = 0
    rows_before: int = 0
    older: int = 0
    done_before: int = 0
    late: int = 0
    partly_late: int = 0
    failed_seqs: set[int] = field(default_factory=set)
    failed_forgotten: int = 0
    late_seqs: set[int] = field(default_factory=set)
    failed_results: int = 0

    def count_failed(self, seqs: Iterable[int]) -> None:
        """Count rows at which an expression failed, each row once however many expressions did."""
        self.failed_seqs.update(seqs)
        if len(self.failed_seqs) > limits.FAILED_ROWS_REMEMBERED_MAX:
            self.failed_forgotten += len(self.failed_seqs)
            self.failed_seqs.clear()

    def count_late(self, seqs: list[int]) -> list[bool]:
        """Count late rows, each once: a self-join or a union meets a row more than once. One that has failed before stays failed.

        Returns which of them were not known to be late.
        """
        if len(self.late_seqs) > limits.LATE_ROWS_REMEMBERED_MAX:
            self.late_seqs.clear()
        new, fresh = [], []
        for seq in seqs:
            new.append(seq not in self.late_seqs)
            if new[-1]:
                self.late_seqs.add(seq)
                fresh.append(seq)
        self.late += sum(1 for s in fresh if s not in self.failed_seqs) if self.failed_seqs else len(fresh)
        return new

    def account(self) -> StreamAccount:
        """Return the sums now."""
        cursor = self.cursor
        shed = 0 if self.shed_log is None else self.shed_log.shed - self.shed_before
        failed = self.failed_forgotten + len(self.failed_seqs)
        taken = cursor.rows_taken
        return StreamAccount(
            self.stream,
            accepted=cursor.log.rows_total - self.rows_before + shed,
            processed=self.done_before + max(0, taken - self.older) - self.late - failed,
            late=self.late,
            partly_late=self.partly_late,
            shed=shed,
            failed=failed,
            queued=cursor.pending_rows() - max(0, self.older - taken),
            failed_results=self.failed_results,
        )
