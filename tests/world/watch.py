"""What must hold at every moment of a world, looked at after every few steps: bounds are kept, and nobody starves.

It reads the server's own objects and changes nothing, not even the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.engine.data import limits

from tests.world.hub import NS_PER_S

if TYPE_CHECKING:
    from tests.world.machines import World

EVERY_STEPS = 64
STARVED_NS = 120 * NS_PER_S  # without a row, while some wait
FRAMES_MARGIN_BYTES = 64 * 1024  # what one read may bring before a peer is judged


class Watch:
    """Looks at the server of a world. `starts` are, by query, the arrival numbers at which its runs began."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.problems: dict[str, None] = {}
        self.starts: dict[str, set[int]] = {}
        self.shed_rows = 0
        self.shed_under: set[str] = set()
        """The load managers under which rows were shed."""
        self._progress: dict[tuple[int, str], tuple[int, int]] = {}
        self._judged_ns = 0

    def look(self) -> None:
        """Note what is wrong now."""
        server, world = self.world.server, self.world
        if not world.is_up or server is None or server.application.stopping:
            return
        application = server.application
        for what, found, bound in _bounded(application):
            if found > bound:
                self.problems[f"{what}: more than {bound} are held"] = None
        queries = [query for query in application.host.queries if query.id is not None]
        for query in queries:
            running = application.host.network.queries.get(query.id)
            if running is not None and running.attached:
                self.starts.setdefault(query.name, set()).add(running.from_seq)
        if world.hub.now_ns > self._judged_ns + NS_PER_S:
            self._judged_ns = world.hub.now_ns
            for query in queries:
                self._judge(application.host, query)

    def _judge(self, host: Any, query: Any) -> None:
        """Whoever has rows waiting takes some, however much the others have to do."""
        counts = host.counts(query)
        if not counts:
            return
        if counts["shed"]:
            self.shed_rows = max(self.shed_rows, counts["shed"])
            self.shed_under.add(self.world.config.load)
        key = (self.world.lives, query.name)
        done, now_ns = counts["accepted"] - counts["queued"], self.world.hub.now_ns
        before, since_ns = self._progress.get(key, (-1, 0))
        if done != before or not counts["queued"] or query.state.value != "running":
            self._progress[key] = (done, now_ns)
        elif now_ns - since_ns > STARVED_NS:
            policy = host.runtime.scheduler._core.policy.name  # what asks for it takes a lock, for which nobody could wait here
            self.problems[f"starved: query {query.name} took none of its rows for {STARVED_NS // NS_PER_S} s ({policy})"] = None


def _bounded(application: Any) -> Iterator[tuple[str, int, int]]:
    """Yield (what, how much there is, the bound) of everything that grows with the load."""
    host, config = application.host, application.config
    network = host.network
    # A log may be exceeded by one order, or by what its publishers have the credit for.
    credit = 4 * config.publish_rows_max
    logs = [log for source in network.sources.values() for log in source.logs]
    logs += [log for operator in network.operators.values() for log in operator.outputs]
    for log in logs:
        yield "rows in a queue", log.rows_held, limits.LOG_ROWS_MAX + max(credit, limits.TRAIN_ROWS_MAX)
    yield "bytes of all queries", network.memory.total_bytes, config.server_memory_bytes_max
    yield (
        "bytes of half frames, requests and answers",
        application.peer_memory.total_bytes,
        config.connections_bytes_max + FRAMES_MARGIN_BYTES,
    )
    yield "connections", len(application.sessions), config.connections_max
    for found in application.feeds.by_query.values():
        feed = found.feed
        for reader in feed.subscriptions:  # one that is to be cut off has a moment to read on
            yield "bytes for a slow reader", reader.waiting_bytes, 2 * feed.bounds.bytes_max
        # What a reader is behind is kept for it, and of a temporary query as much for the first reader.
        yield "bytes of kept results", feed.log.kept_bytes, max(feed.log.kept_bytes_max, 2 * feed.bounds.bytes_max)
