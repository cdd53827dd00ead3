"""What runs and can be used by a new query of the same class: operators by what they do to what they read, and the ports they are read at.

Changed only where the network changes (attach, remove).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TypeVar

from millstream.engine.data.graph import ClassId, EdgeId, LogId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import RunningOperator
from millstream.engine.flow.sources import Source
from millstream.engine.language.recipes import AggregateRecipe, Recipe
from millstream.engine.synopses.answers import OutputColumns


@dataclass(frozen=True, slots=True)
class Port:
    """An output that can be read: its log, who fills it, the source if it is a stream's, the streams and base streams behind it.

    `flushes`: silence on one of the base streams closes what is open (IDLE … FLUSH). `lineages`: how many parts the tallies of its trains
    have, 0 where nothing is shed.
    """

    log: OutputLog
    producer: OperatorId
    source: Source | None
    base_streams: frozenset[str]
    derived: str | None = None
    streams: frozenset[str] = frozenset()
    raw: bool = True
    flushes: bool = False
    lineages: int = 0


@dataclass(slots=True)
class Wire:
    """An input to be: which port of the consumer reads which log through which edge. `stream` names an external log's stream."""

    consumer: RunningOperator
    edge: EdgeId
    port: Port
    stream: str | None


@dataclass(slots=True, eq=False)
class SharedOutput:
    """An output of a shared aggregate that one query asked for. `port` is its number, None until it is in force.

    With `history` it begins with the windows that it sees whole, panes that are held included.
    """

    running: RunningOperator
    recipe: AggregateRecipe
    shown: OutputColumns
    log: OutputLog
    port: int | None = None
    history: bool = False


Key = tuple[ClassId, Recipe, tuple[LogId, ...]]
AnyKey = TypeVar("AnyKey")


@dataclass(slots=True, eq=False)
class Shared:
    """A running operator with its ports. `history` are the counts of its base streams' logs when it came into force.

    `facts` keeps what containment.py has found out of its recipe: every query that comes is compared with all that run.
    """

    key: Key
    running: RunningOperator
    ports: list[Port]
    base_logs: tuple[OutputLog, ...] = ()
    history: tuple[tuple[int, int], ...] = ()
    facts: object = None

    def is_untouched(self) -> bool:
        """Nothing has come on its streams since it came into force, so its state is that of a new operator."""
        return counts_of(self.base_logs) == self.history


def counts_of(logs: tuple[OutputLog, ...]) -> tuple[tuple[int, int], ...]:
    """Return rows and control items ever appended to each log."""
    return tuple((log.rows_total, log.controls_total) for log in logs)


@dataclass(slots=True)
class Registry:
    """Shared operators by key, by the first log they read, and by id."""

    _by_key: dict[Key, list[Shared]] = field(default_factory=dict)
    _over: dict[tuple[ClassId, LogId], list[Shared]] = field(default_factory=dict)
    _by_operator: dict[OperatorId, Shared] = field(default_factory=dict)

    def add(self, shared: Shared) -> None:
        """Offer an operator."""
        class_id, _, logs = shared.key
        self._by_key.setdefault(shared.key, []).append(shared)
        self._over.setdefault((class_id, logs[0]), []).append(shared)
        self._by_operator[shared.running.id] = shared

    def remove(self, operator: OperatorId) -> None:
        """Offer an operator no longer."""
        shared = self._by_operator.pop(operator, None)
        if shared is None:
            return
        class_id, _, logs = shared.key
        _leave(self._by_key, shared.key, shared)
        _leave(self._over, (class_id, logs[0]), shared)

    def find(self, key: Key, *, with_state: bool = True) -> Shared | None:
        """Return an operator that does the same; one with state only while nothing has reached it."""
        for shared in self._by_key.get(key, ()):
            if not shared.running.failed and (not shared.running.logic.stateful or (with_state and shared.is_untouched())):
                return shared
        return None

    def over(self, class_id: ClassId, log: LogId) -> Iterator[Shared]:
        """Yield the operators of a class that read a log, oldest first."""
        yield from (s for s in self._over.get((class_id, log), ()) if not s.running.failed)


def _leave(table: dict[AnyKey, list[Shared]], key: AnyKey, shared: Shared) -> None:
    left = [s for s in table[key] if s is not shared]
    if left:
        table[key] = left
    else:
        del table[key]
