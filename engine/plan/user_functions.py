"""Which users' functions may be called while something is bound, and which were.

Binders are made in many places, each for its scope of columns; what functions there are is the same for all of them, from the door of
the planner inwards. So it is said once, there, and holds for the thread's binding until the door closes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from millstream.engine.expressions.user_functions import UserFunction
from millstream.engine.plan.catalog import Catalog


class FunctionsInForce:
    """The functions of a catalogue. `called` are those that a binder asked for, by name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.called: dict[str, UserFunction] = {}

    def find(self, name: str) -> UserFunction | None:
        """Return the function of that name, and note that it is called."""
        found = self._catalog.find_function(name)
        if found is not None:
            self.called[name] = found
        return found


_IN_FORCE: ContextVar[FunctionsInForce | None] = ContextVar("users' functions in force", default=None)


@contextmanager
def functions_of(catalog: Catalog) -> Iterator[FunctionsInForce]:
    """Let binders call the functions of a catalogue until the block ends."""
    in_force = FunctionsInForce(catalog)
    token = _IN_FORCE.set(in_force)
    try:
        yield in_force
    finally:
        _IN_FORCE.reset(token)


def called_function(name: str) -> UserFunction | None:
    """Return the user's function of that name, None where there is none or none may be called."""
    in_force = _IN_FORCE.get()
    return None if in_force is None else in_force.find(name)
