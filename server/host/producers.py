"""Which sends of named publishers a stream has taken: each sequence number of a name counts once, also over connections and restarts.

What is known of a name stands in the journal's record of the rows and in checkpoints, so rows and number are there together or not at all.
Of a stream without durability it is in memory, as the rows are. A send of which no row was accepted leaves no record: after a crash its
number is unknown again, and it would be refused again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from millstream.engine.data.records import dataclass
from millstream.server.errors import TooMany

PRODUCERS_MAX = 1_024
"""Names that a stream remembers at once; each may keep 1 KiB."""
US_PER_S = 1_000_000


class Seat(Protocol):
    """The channel by which a producer sends."""

    def revoke(self, message: str) -> None:
        """End: the name is used by another one."""
        ...


@dataclass(frozen=True, slots=True)
class Produced:
    """Where a send stands among those of its producer: the name, the sequence number, and the producer's own position."""

    name: str
    number: int
    position: bytes | None = None


@dataclass(slots=True)
class Producer:
    """What is known of a name: the `last` number taken, the position that came with it, when it was last seen (processing time).

    `place` is up to where the disk must have the journal for that to stand, None where it does; `seat` the channel that has the name.
    """

    last: int = 0
    position: bytes | None = None
    seen_us: int = 0
    place: int | None = None
    seat: Seat | None = None


class Producers:
    """The named publishers of one stream. Numbers change under the ingress lock alone."""

    def __init__(self) -> None:
        self.by_name: dict[str, Producer] = {}

    def sit(self, name: str, seat: Seat, now_us: int, kept_s: float) -> Producer:
        """Give a name to a channel; the one that has it ends. Names unseen for `kept_s` are forgotten. TooMany if there is no room."""
        oldest_us = now_us - int(kept_s * US_PER_S)
        self.by_name = {n: p for n, p in self.by_name.items() if p.seat is not None or p.seen_us >= oldest_us}
        producer = self.by_name.get(name)
        if producer is None:
            if len(self.by_name) >= PRODUCERS_MAX:
                raise TooMany(
                    f"{PRODUCERS_MAX} publishers' names are in use on this stream",
                    hint="use a name again; the server forgets those not seen for producer_kept_s",
                )
            producer = self.by_name[name] = Producer()
        earlier, producer.seat, producer.seen_us = producer.seat, seat, now_us
        if earlier is not None:
            earlier.revoke(f"another connection publishes under the name {name}")
        return producer

    def leave(self, producer: Producer, seat: Seat, now_us: int) -> None:
        """Note that a channel has ended."""
        if producer.seat is seat:
            producer.seat, producer.seen_us = None, now_us

    def note(self, produced: Produced, now_us: int, place: int | None = None) -> Callable[[], None]:
        """Note a send that was taken; returns what takes that back, newest first, should the disk not keep it."""
        producer = self.by_name.setdefault(produced.name, Producer())
        before = producer.last, producer.position, producer.place

        def take_back() -> None:
            producer.last, producer.position, producer.place = before

        if produced.number > producer.last:
            producer.last, producer.position, producer.seen_us = produced.number, produced.position, max(producer.seen_us, now_us)
            producer.place = place
        return take_back

    def state(self) -> dict[str, list[Any]]:
        """Return what a checkpoint keeps: of each name number, position and when it was last seen."""
        return {name: [p.last, p.position, p.seen_us] for name, p in self.by_name.items()}

    def load(self, state: Mapping[str, list[Any]]) -> None:
        """Stand as a checkpoint says."""
        self.by_name = {name: Producer(last, position, seen_us) for name, (last, position, seen_us) in state.items()}
