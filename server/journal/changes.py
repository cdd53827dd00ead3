"""One change of what the server keeps: on disk and in memory, or neither.

Whatever a statement writes to the catalogue is one transaction (`Store.change`). What it does in memory before the disk has that, it says
how to take back. What cannot be taken back (the state of a query that is dropped), and what nobody may see before (a stream that publishers
would find), is done once the disk has it: such a step cannot fail for a reason that was there to be seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Step = Callable[[], object]


class Change:
    """The steps in memory that belong to one transaction. All on the thread that executes statements."""

    def __init__(self) -> None:
        self._back: list[Step] = []
        self._after: list[Step] = []

    def back(self, step: Step) -> None:
        """Have `step` called should the disk refuse the change, the latest first. It writes nothing."""
        self._back.append(step)

    def after(self, step: Step) -> None:
        """Have `step` called once the disk has the change, the earliest first."""
        self._after.append(step)

    def take_back(self) -> None:
        """Undo what was done in memory."""
        _each(reversed(self._back))

    def finish(self) -> None:
        """Do what waited for the disk."""
        _each(self._after)


def _each(steps: Iterable[Step]) -> None:
    """Take every step, also when one fails: the others belong to the change as well. Raises what went wrong first."""
    failure: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
