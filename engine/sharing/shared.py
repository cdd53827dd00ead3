"""Operators that run, or are about to, as queries to come may use them: what they do to what they read, and the ports they are read at."""

from __future__ import annotations

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


@dataclass(slots=True, eq=False)
class Shared:
    """A running operator with its ports. `history` are the counts of its base streams' logs when it came into force."""

    key: Key
    running: RunningOperator
    ports: list[Port]
    base_logs: tuple[OutputLog, ...] = ()
    history: tuple[tuple[int, int], ...] = ()

    def is_untouched(self) -> bool:
        """Nothing has come on its streams since it came into force, so its state is that of a new operator."""
        return counts_of(self.base_logs) == self.history


def counts_of(logs: tuple[OutputLog, ...]) -> tuple[tuple[int, int], ...]:
    """Return rows and control items ever appended to each log."""
    return tuple((log.rows_total, log.controls_total) for log in logs)
