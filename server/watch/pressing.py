"""Readers of results who are behind, of queries whose class may be shed: their class sheds, instead of making publishers wait.

A query of such a class that nobody reads fast enough would otherwise hold up every publisher of its streams, and so every other class.
Looked at while there are any; on the event loop's thread alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.engine.data.graph import ClassId
    from millstream.server.app import Application, QueryFeed

LOOK_S = 0.01


class Pressing:
    """`feeds` are those that a reader held up when last looked at."""

    def __init__(self, application: Application) -> None:
        self.feeds: dict[str, QueryFeed] = {}
        self._application = application
        self._asked: dict[tuple[str, ClassId], float] = {}
        self._is_due = False

    def look_again(self) -> None:
        """Look soon, if there is anything to look at."""
        if not self._is_due and (self.feeds or self._asked):
            self._is_due = True
            self._application.loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_due = False
        now_ns = self._application.now_ns()
        self.feeds = {name: found for name, found in self.feeds.items() if found.feed.is_pressed(now_ns)}
        wanted: dict[tuple[str, ClassId], float] = {}
        for found in self.feeds.values():
            assert found.shed_class is not None
            ratio = min(1.0, max(0.0, 2.0 * found.feed.fullness - 1.0))
            for stream in found.streams:
                key = stream, found.shed_class
                wanted[key] = max(wanted.get(key, 0.0), ratio)
        for key in {**self._asked, **wanted}:
            ratio = wanted.get(key, 0.0)
            if ratio != self._asked.get(key, 0.0):
                self._press(*key, ratio)
        self._asked = wanted
        self.look_again()

    def _press(self, stream: str, class_id: ClassId, ratio: float) -> None:
        network = self._application.host.network
        source = network.sources.get(stream)
        if source is not None:
            network.shed_logs.press(source, class_id, ratio)
