"""Processing time that passes: streams by ARRIVAL move W where an operator waits for it, silent inputs go idle (K14).

Operators say when they want to be woken (`Operator.wake_at_us`). What they say is asked for some times a second and stays as it is while
no query comes or goes and no order is run, so it is remembered until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.flow.running import RunningOperator
from millstream.engine.flow.sources import Ingested, Source

if TYPE_CHECKING:
    from millstream.engine.runtime.network import Network


@dataclass(slots=True)
class Waking:
    """Who downstream of a stream by ARRIVAL may want to be woken, as of a version of the network, and when, as of an order."""

    version: int
    operators: tuple[RunningOperator, ...]
    last_run: object | None = None
    first_us: int | None = None


class Ticks:
    """What the clock brings to the sources of a network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._waking: dict[str, Waking] = {}
        self.last_run: object = object()
        """Another one after each order that was run."""

    def tick(self, now_us: int, *, arrival_ns: int) -> tuple[Ingested, ...]:
        """Let processing time pass for all sources, and return what it brings."""
        sources = list(self._network.sources.values())
        return tuple(item for source in sources for item in self.tick_source(source, now_us, arrival_ns=arrival_ns))

    def tick_source(self, source: Source, now_us: int, *, arrival_ns: int) -> Iterator[Ingested]:
        """Do the same for one source, and yield what it brings as soon as it stands in the log: a recorder may refuse the next."""
        rule = source.definition.time
        if source.ended or source.open_reservations:  # what waits for the disk came before whatever the clock would say
            return
        if rule.column is None and now_us > source.watermark_us:
            wake_us = self._first_wake_us(source)
            if wake_us is not None and wake_us <= now_us:
                yield self._network.ingress.control(source, arrival_ns=arrival_ns, watermark_us=now_us - rule.delay_us)
        silent_since = source.last_arrival_us
        if rule.idle_us is not None and not source.idle:
            if silent_since is None:
                source.last_arrival_us = now_us
            elif now_us - silent_since >= rule.idle_us:
                yield self._network.ingress.control(source, arrival_ns=arrival_ns, idle=True, flush=rule.idle_flush)

    def next_us(self) -> int | None:
        """Return the processing time at which `tick` will next have something to do, None when only rows can bring that."""
        return min((due for source in self._network.sources.values() for due in self._due_us(source)), default=None)

    def forget(self, stream: str) -> None:
        """Remember nothing of a stream that is dropped."""
        self._waking.pop(stream, None)

    def _due_us(self, source: Source) -> Iterator[int]:
        rule = source.definition.time
        if source.ended:
            return
        if rule.column is None and (wake_us := self._first_wake_us(source)) is not None:
            yield wake_us + rule.delay_us
        if rule.idle_us is not None and not source.idle and source.last_arrival_us is not None:
            yield source.last_arrival_us + rule.idle_us

    def _first_wake_us(self, source: Source) -> int | None:
        """Return the first processing time for which an operator downstream of a stream by ARRIVAL waits."""
        name, version, last_run = source.definition.name, self._network.version, self.last_run
        known = self._waking.get(name)
        if known is None or known.version != version:
            known = self._waking[name] = Waking(version, self._those_that_wake(name))
        if known.last_run is not last_run:
            known.last_run = last_run
            known.first_us = min([w for op in known.operators if (w := op.wake_at_us()) is not None], default=None)
        return known.first_us

    def _those_that_wake(self, stream: str) -> tuple[RunningOperator, ...]:
        found: dict[OperatorId, RunningOperator] = {}
        for query in list(self._network.queries.values()):
            if query.attached and query.past is None and stream in query.blueprint.base_streams:
                found.update((op.id, op) for op in query.blueprint.operators if op.may_wake)
        return tuple(found.values())
