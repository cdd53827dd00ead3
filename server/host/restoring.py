"""Bringing the stored catalogue back at start (case C37): definitions in their order, then queries in the state their user wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import EngineError
from millstream.scheduler.errors import SchedulerError
from millstream.scheduler.spec import PolicySpec
from millstream.server.config import Config
from millstream.server.errors import ServerError
from millstream.server.host.engine_host import Context
from millstream.server.journal.recovery import Recovery
from millstream.server.journal.store import POLICY_NOTE

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost


def restore(host: EngineHost) -> list[str]:
    """Bring back what is stored; returns a sentence for each thing that could not be, which stays stored."""
    problems: list[str] = []
    if host.journaling is not None:
        host.recovery = Recovery(host, host.journaling)
    for definition in host.store.definitions():
        try:
            host.execute(definition.statement, Context(text=definition.statement, restoring=True, number=definition.position))
        except (EngineError, ServerError, SchedulerError) as error:
            problems.append(f"{definition.kind} {definition.name}: {error}")
    for query in host.store.queries():
        from millstream.server.statements import language

        try:
            language.restore_query(host, query, Context(name=query.name, text=query.text or "", restoring=True))
        except (EngineError, ServerError, SchedulerError) as error:
            problems.append(f"query {query.name}: {error}")
    if host.recovery is not None:
        problems += host.recovery.run()
    _restore_policy(host, problems)
    return problems


def _restore_policy(host: EngineHost, problems: list[str]) -> None:
    remembered = host.store.note(POLICY_NOTE)
    if remembered is None or str(host.policy) != Config().policy:
        return  # whoever starts the server with a policy means that one
    try:
        spec = PolicySpec.parse(remembered)
        host.runtime.set_policy(spec)
        host.policy = spec
    except SchedulerError as error:
        problems.append(f"policy {remembered}: {error}")
