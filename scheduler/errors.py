"""Errors of the scheduler, one family. Each is one sentence; `hint` says the mend where there is one."""

from __future__ import annotations

from millstream.engine.data.graph import OperatorId
from millstream.engine.data.work import WorkReceipt


class SchedulerError(Exception):
    """Base of the family; raise one of the others. `code` is one of the closed list in docs/errors.md."""

    code = "scheduler"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return message and hint in one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class PolicyError(SchedulerError):
    """An unknown policy, an unknown option, or parts that do not go together; raised when the policy is set."""

    code = "policy"


class GraphError(SchedulerError):
    """A delta that does not fit the running network: an id used twice, an edge of an unknown log."""

    code = "graph"


class LedgerError(SchedulerError):
    """The ledger's sums do not hold; a fault of ours, never of the input."""

    code = "internal"


class StoryError(SchedulerError):
    """A recorded story that cannot be read or replayed."""

    code = "story"


class OrderFailed(SchedulerError):
    """Raised by an executor when a step fails: what was done before it, and the operator that failed.

    An executor that raises anything else loses the receipt of the steps before; the scheduler then counts nothing as done.
    """

    code = "execution"

    def __init__(self, message: str, *, operator: OperatorId, receipt: WorkReceipt) -> None:
        super().__init__(message)
        self.operator = operator
        self.receipt = receipt


class SimulationError(SchedulerError):
    """A workload or trace that cannot be simulated."""

    code = "simulation"
