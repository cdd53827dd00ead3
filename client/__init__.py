"""The Python client and the command line. Start with `connect` (blocking) or `connect_async` (asyncio).

Knows: the wire protocol, sockets, people's terminals. Must not know: engine, scheduler, server. Start reading in `wire` (the
socket), then `connection` (what a program holds), `publisher`, `subscriber`, `queries`; `blocking` wraps them; `cli` is the command.

Nothing is imported before it is used, so that `millstream --help` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.client.blocking import connect
    from millstream.client.connection import connect_async
    from millstream.client.errors import MillstreamError
    from millstream.client.receipts import receipt_of
    from millstream.protocol.values.rows import rows_of

__all__ = ["MillstreamError", "connect", "connect_async", "receipt_of", "rows_of"]

_HOMES = {
    "connect": "millstream.client.blocking",
    "connect_async": "millstream.client.connection",
    "MillstreamError": "millstream.client.errors",
    "receipt_of": "millstream.client.receipts",
    "rows_of": "millstream.protocol.values.rows",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
