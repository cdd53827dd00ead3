"""Ports and wires: outputs that can be read, and the inputs that will read them."""

from __future__ import annotations

from millstream.engine.data.graph import EdgeId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import RunningOperator
from millstream.engine.flow.sources import Source
from millstream.engine.language.recipes import AggregateRecipe
from millstream.engine.synopses.answers import Shown


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
class Subscription:
    """An output of a shared aggregate that one query asked for. `port` is its number, None until it is in force.

    With `history` it begins with the windows that it sees whole, panes that are held included.
    """

    running: RunningOperator
    recipe: AggregateRecipe
    shown: Shown
    log: OutputLog
    port: int | None = None
    history: bool = False
