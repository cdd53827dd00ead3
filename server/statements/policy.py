"""SET POLICY name [WITH (…)]: another scheduling policy from the next decision on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.language.statements import SetPolicy
from millstream.scheduler.spec import PolicySpec
from millstream.server.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.engine_host import Context, EngineHost

POLICY_NOTE = "policy"  # under which the store remembers it


def set_policy(host: EngineHost, statement: SetPolicy, context: Context) -> Outcome:
    """Check the policy, use it, remember it."""
    options = tuple((option.name.replace("-", "_"), option.value) for option in statement.options)
    spec = PolicySpec(statement.name.text, options)
    host.runtime.set_policy(spec)
    host.policy = spec
    if not context.restoring:
        host.store.set_note(POLICY_NOTE, str(spec))
    return said(f"policy is {spec}")
