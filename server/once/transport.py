"""How a question goes to the process that answers it: records of this program, pickled, from a server to a child that it has just started.

Users' functions stay behind: they are named, and the child starts its own. The way back carries no pickles, only JSON and Arrow's stream
format, so that a child whose memory a hostile row had got hold of could not do more than give wrong rows.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from millstream.engine.data.train import Train
from millstream.server.functions.process import FunctionProcess


class _Pickler(pickle.Pickler):
    """Names users' functions."""

    def __init__(self, file: io.BytesIO, called: dict[str, FunctionProcess]) -> None:
        super().__init__(file, protocol=5)
        self._called = called

    def persistent_id(self, given: Any) -> str | None:
        """Return the name of a function in place of its process."""
        if isinstance(given, FunctionProcess):
            self._called[given.definition.name] = given
            return given.definition.name
        return None

    def reducer_override(self, given: Any) -> Any:
        """Gather the columns of a train first: what it was picked from stays behind."""
        if isinstance(given, Train):
            given.columns()
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, function: Callable[[str], Any]) -> None:
        super().__init__(file)
        self._function = function

    def persistent_load(self, name: str) -> Any:
        """Return the function of a name."""
        return self._function(name)


def packed(given: Any, called: dict[str, FunctionProcess]) -> bytes:
    """Return a record as bytes; the users' functions in it are added to `called`."""
    file = io.BytesIO()
    _Pickler(file, called).dump(given)
    return file.getvalue()


def unpacked(payload: bytes, function: Callable[[str], Any]) -> Any:
    """Return the record; `function` gives what stands for a user's function of a name."""
    return _Unpickler(io.BytesIO(payload), function).load()
