"""How much has been looked at for one statement, so that none keeps the others waiting.

The count is the same for the same statement and catalogue, so what is refused is refused always, on any machine. Code that is also used
while rows flow asks whether anybody counts; nobody does then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from millstream.engine.data.errors import Unsupported


class Effort:
    """The steps that are left of `steps_max`."""

    __slots__ = ("left", "steps_max")

    def __init__(self, steps_max: int) -> None:
        self.steps_max = self.left = steps_max

    def spend(self, steps: int = 1) -> None:
        """Count; Unsupported when more is asked for than there is."""
        self.left -= steps
        if self.left < 0:
            raise Unsupported(
                f"planning this statement takes more than {self.steps_max} steps",
                hint="split it: CREATE STREAM name AS SELECT … for a part",
            )


_IN_FORCE: ContextVar[Effort | None] = ContextVar("effort in force", default=None)


@contextmanager
def bounded_effort(steps_max: int) -> Iterator[Effort]:
    """Return a context that counts until the block ends; a count that is in force already goes on instead."""
    found = _IN_FORCE.get()
    if found is not None:
        yield found
        return
    effort = Effort(steps_max)
    token = _IN_FORCE.set(effort)
    try:
        yield effort
    finally:
        _IN_FORCE.reset(token)


def effort_in_force() -> Effort | None:
    """Return the count in force, None when nobody counts."""
    return _IN_FORCE.get()


def spend(steps: int = 1) -> None:
    """Count, if somebody counts."""
    effort = _IN_FORCE.get()
    if effort is not None:
        effort.spend(steps)
