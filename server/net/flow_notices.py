"""What a publisher is told of its flow: that rows were shed before some class, and why its credit is held back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

SHED_EVERY_NS = 1_000_000_000  # at most so often, the first time at once
SLOWED_AFTER_NS = 1_000_000_000  # a shorter wait is how flow control works, and no news
SLOWED_EVERY_NS = 10_000_000_000


class FlowNotices:
    """The news of one channel. Time is an argument."""

    def __init__(self, stream: str) -> None:
        self.has_news = False
        self._stream = stream
        self._shed: dict[str, int] = {}
        self._shed_total: dict[str, int] = {}
        self._shed_told_ns: int | None = None
        self._held_since_ns: int | None = None
        self._slowed_told_ns: int | None = None

    def shed(self, rows: Mapping[str, int]) -> None:
        """Note rows of the channel that were dropped, by class."""
        self.has_news = True
        for name, count in rows.items():
            self._shed[name] = self._shed.get(name, 0) + count

    def due(self, now_ns: int, held_by: Callable[[], str] | None, *, last: bool = False) -> list[tuple[str, str]]:
        """Return the notices to send now, (code, message); `held_by` says what credit waits for, None when it does not wait."""
        found = []
        if self._shed and (last or self._shed_told_ns is None or now_ns - self._shed_told_ns >= SHED_EVERY_NS):
            self._shed_told_ns = now_ns
            found.append(("shed", self._shed_message()))
        if held_by is None:
            self._held_since_ns = None
        elif self._is_slow(now_ns):
            self._slowed_told_ns = now_ns
            found.append(("slowed", f"publishing to {self._stream} waits: {held_by()}"))
        self.has_news = bool(self._shed) or self._held_since_ns is not None
        return found

    def _is_slow(self, now_ns: int) -> bool:
        if self._held_since_ns is None:
            self._held_since_ns = now_ns
        told = self._slowed_told_ns
        return now_ns - self._held_since_ns >= SLOWED_AFTER_NS and (told is None or now_ns - told >= SLOWED_EVERY_NS)

    def _shed_message(self) -> str:
        parts = []
        for name, rows in self._shed.items():
            self._shed_total[name] = total = self._shed_total.get(name, 0) + rows
            parts.append(f"{rows} before class {name}" if total == rows else f"{rows} before class {name} ({total} so far)")
        self._shed.clear()
        return f"{self._stream}: rows shed: {', '.join(parts)}"
