"""EXPLAIN: how a query is planned, what its answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.errors import Unsupported
from millstream.engine.language.statements import Explain
from millstream.server.outcome import Outcome

if TYPE_CHECKING:
    from millstream.server.engine_host import Context, EngineHost


def explain(host: EngineHost, statement: Explain, context: Context) -> Outcome:
    """Refuse."""
    raise Unsupported(f"EXPLAIN {statement.mode.value} is not supported yet")
