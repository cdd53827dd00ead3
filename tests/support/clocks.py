"""Clocks that a test moves, in place of the machine's."""

from __future__ import annotations

from millstream.server.host.arrival_clock import ArrivalClock, Report

S = 1_000_000_000
BEGAN = 1_715_000_000 * S


class Clocks:
    """Two clocks that a test moves, and the arrival clock made of them. Times in ns; `now` is seconds after the beginning."""

    def __init__(self, began: int = BEGAN) -> None:
        self.monotonic = 7 * S
        self.system = began
        self.told: list[str] = []
        self.clock = self.arrival_clock(lambda kind, message: None)

    def arrival_clock(self, report: Report) -> ArrivalClock:
        """Return the clock of a server, which tells the test too."""

        def told(kind: str, message: str) -> None:
            self.told.append(kind)
            report(kind, message)

        self.clock = ArrivalClock(told, lambda: self.monotonic, lambda: self.system)
        return self.clock

    def passes(self, seconds: float, steps: int = 1) -> None:
        """Let time pass; somebody looks at the clock after each step."""
        for _ in range(steps):
            self.monotonic += round(seconds * S / steps)
            self.system += round(seconds * S / steps)
            self.clock.now_us()

    def is_set(self, by_s: float) -> None:
        """Set the system's clock."""
        self.system += round(by_s * S)

    @property
    def now(self) -> float:
        return (self.clock.now_us() * 1_000 - BEGAN) / S

    @property
    def right(self) -> float:
        return (self.system // 1_000 * 1_000 - BEGAN) / S
