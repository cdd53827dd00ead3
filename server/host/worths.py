"""How the expressions of `shed_by` fared: they are computed where rows enter, before any operator could report an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.server.host.queries import Query

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost


def failures_of_shed_by(host: EngineHost, query: Query) -> tuple[int, str]:
    """Return at how many rows since the query's log was opened its `shed_by` failed, and why at the last; (0, "") where it did not."""
    running = None if query.id is None else host.network.queries.get(query.id)
    for stream in () if running is None else running.blueprint.base_streams:
        log = host.network.sources[stream].shed_logs.get(running.shed_key) if running is not None else None
        if log is not None and log.utility is not None:
            return log.utility.failures
    return 0, ""
