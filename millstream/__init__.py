"""Millstream in a program of one's own: queries over data frames and files, and the client of a server.

    import millstream
    millstream.run("SELECT window_end, COUNT(*) AS n FROM packets [RANGE 10 SECONDS SLIDE 10 SECONDS]", packets=frame)

Nothing is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.client import MillstreamError, connect, connect_async
    from millstream.server.run.frames import Result, RunError, run, run_script

__all__ = ["MillstreamError", "Result", "RunError", "connect", "connect_async", "run", "run_script"]

_HOMES = {
    "MillstreamError": "millstream.client",
    "Result": "millstream.server.run.frames",
    "RunError": "millstream.server.run.frames",
    "connect": "millstream.client",
    "connect_async": "millstream.client",
    "run": "millstream.server.run.frames",
    "run_script": "millstream.server.run.frames",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """Return what a person may look for."""
    return sorted({*globals(), *__all__})
