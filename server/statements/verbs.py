"""START, STOP, PAUSE and RESUME QUERY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.language.statements import ChangeQuery, QueryVerb
from millstream.server.host import running
from millstream.server.host.lifecycle import Verb
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

_VERBS = {QueryVerb.START: Verb.START, QueryVerb.STOP: Verb.STOP, QueryVerb.PAUSE: Verb.PAUSE, QueryVerb.RESUME: Verb.RESUME}


def change_query(host: EngineHost, statement: ChangeQuery, context: Context) -> Outcome:
    """Move a query to another state; a query that is there already stays, and that is said."""
    query = host.queries.get(statement.name.text)
    moved = running.move(host, query, _VERBS[statement.verb])
    word = (moved or query.state).value
    return said(f"query {query.name} is {word}" if moved else f"query {query.name} was {word} already", query=query.name)
