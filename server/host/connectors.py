"""Sources and sinks as the daemon knows them: what is wanted, and what the connect process told of each.

The daemon runs no connector. It keeps definitions, and a process of its own carries them out and reports (client/edges).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from millstream.engine.data.errors import NameTaken, UnknownName
from millstream.engine.data.records import dataclass
from millstream.engine.language.statements import ConnectorDefinition, ConnectorKind, EnvironmentName
from millstream.server.errors import TooMany

CONNECTORS_MAX = 256  # each is two threads and a connection of the connect process
REPORT_BYTES_MAX = 8_192
TEXT_MAX = 500
NUMBERS = ("rows", "refused", "rows_per_s", "lag_messages", "lag_s", "restarts")
TEXTS = ("state", "promise", "last_error")


@dataclass(slots=True)
class Connector:
    """One source or sink. `report` is the last that was told of it; `token` how far a sink is, where its other side keeps nothing."""

    definition: ConnectorDefinition
    is_paused: bool = False
    report: dict[str, Any] = field(default_factory=dict)
    token: str | None = None

    @property
    def state(self) -> str:
        """Return `paused`, or what was told, `waiting` when nothing was."""
        return "paused" if self.is_paused else str(self.report.get("state", "waiting"))

    @property
    def options_json(self) -> str:
        """Return the options for programs: a secret's value is the name of its variable."""
        told = {n: {"env": v.variable} if isinstance(v, EnvironmentName) else v for n, v in self.definition.options}
        return json.dumps(told)

    @property
    def options_text(self) -> str:
        """Return the options for people."""
        return ", ".join(
            f"{n} = ENV('{v.variable}')" if isinstance(v, EnvironmentName) else f"{n} = {v!r}" for n, v in self.definition.options
        )


class Connectors:
    """All sources and sinks, by kind and name."""

    def __init__(self) -> None:
        self._all: dict[tuple[ConnectorKind, str], Connector] = {}

    def __iter__(self) -> Iterator[Connector]:
        return iter(tuple(self._all.values()))

    def of(self, kind: ConnectorKind) -> list[Connector]:
        """Return the sources, or the sinks."""
        return [one for one in self if one.definition.kind is kind]

    def find(self, kind: ConnectorKind, name: str) -> Connector | None:
        """Return one, None when there is none of that name."""
        return self._all.get((kind, name))

    def get(self, kind: ConnectorKind, name: str) -> Connector:
        """Return one. UnknownName when there is none of that name."""
        found = self.find(kind, name)
        if found is None:
            raise UnknownName(f"there is no {kind.noun} {name}", hint=f"SHOW {kind.value}S lists them")
        return found

    def add(self, connector: Connector) -> None:
        """Add one. NameTaken when the name is taken, TooMany when there are as many as may be."""
        definition = connector.definition
        if self.find(definition.kind, definition.name) is not None:
            raise NameTaken(f"{definition.kind.noun} {definition.name} exists", hint="choose another name, or DROP it first")
        if len(self._all) >= CONNECTORS_MAX:
            raise TooMany(f"a server has at most {CONNECTORS_MAX} sources and sinks", hint="drop those that are no longer needed")
        self._all[definition.kind, definition.name] = connector

    def remove(self, kind: ConnectorKind, name: str) -> None:
        """Forget one."""
        del self._all[kind, name]

    def users_of(self, kind: ConnectorKind, target: str) -> list[str]:
        """Return the names of the sources into a stream, or of the sinks from a query."""
        return [one.definition.name for one in self.of(kind) if one.definition.target == target]


def checked_report(text: str) -> dict[str, Any]:
    """Return what a connect process tells of a connector: known keys alone, bounded. ValueError when it is none."""
    if len(text) > REPORT_BYTES_MAX:
        raise ValueError(f"a report has at most {REPORT_BYTES_MAX} characters")
    told = json.loads(text)
    if not isinstance(told, dict):
        raise ValueError("a report is a JSON object")  # noqa: TRY004
    found: dict[str, Any] = {}
    for name, value in told.items():
        if name in NUMBERS and (value is None or (isinstance(value, int | float) and not isinstance(value, bool))):
            found[name] = value
        elif name in (*TEXTS, "token") and (value is None or isinstance(value, str)):
            found[name] = value if value is None or name == "token" else value[:TEXT_MAX]
        else:
            raise ValueError(f"a report has no {name} that is {value!r:.40}")
    return found
