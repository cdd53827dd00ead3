"""SET POLICY name [WITH (…)]: another scheduling policy from the next decision on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.engine.language.statements import SetPolicy
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.spec import OptionValue, PolicySpec
from millstream.server.journal.store import POLICY_NOTE
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


def set_policy(host: EngineHost, statement: SetPolicy, context: Context) -> Outcome:
    """Check the policy, use it, remember it."""
    options = tuple((option.name.replace("-", "_"), option.value) for option in statement.options)
    spec = PolicySpec(statement.name.text, options if statement.name.text != "user" else _own(host, options))
    with host.store.change() as change:
        before = host.policy
        _use(host, spec)
        change.back(partial(_use, host, before))
        if not context.restoring:
            host.store.set_note(POLICY_NOTE, str(spec))
    return said(f"policy is {spec}")


def _use(host: EngineHost, spec: PolicySpec) -> None:
    host.runtime.set_policy(spec)
    host.policy = spec


def _own(host: EngineHost, options: tuple[tuple[str, OptionValue], ...]) -> tuple[tuple[str, OptionValue], ...]:
    """Return the options with the file's whole path: code comes only from the directory that whoever runs the server named."""
    if host.policy_dir is None:
        raise PolicyError("this server takes no policy files", hint="start it with --policy-dir and put them there")
    folder = host.policy_dir.resolve()
    found = []
    for name, value in options:
        path = (folder / str(value)).resolve()
        if name == "file" and not path.is_relative_to(folder):
            raise PolicyError(f"policy file '{value}' is not in the server's policy directory", hint="give its name alone")
        found.append((name, str(path) if name == "file" else value))
    return tuple(found)
