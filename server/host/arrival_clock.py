"""Arrival time: what stands on rows that arrive, moves the watermarks of streams BY ARRIVAL, and says when queries are due.

A machine has two clocks. The monotonic one says how much time has passed; the system's says what time it is, and somebody may set it, by
a day and back again. Arrival time is the monotonic clock plus an offset that follows the system's clock:

- it never runs back;
- it runs at most 10% faster or slower than time passes, so small corrections are caught up with little by little;
- a jump of the system's clock by more than a second is believed once it has stood for ten seconds. A forward one is then taken at once;
  after a backward one arrival time runs 10% slow until the clocks meet. What was set right again within that time has no effect;
- after a restart it begins no earlier than the last time that the journal has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

ClockNs = Callable[[], int]
Report = Callable[[str, str], None]

NS_PER_US = 1_000
NS_PER_S = 1_000_000_000
SLEW = 10  # arrival time gains or loses at most the tenth part of what passes
JUMP_NS = NS_PER_S  # a greater change of the system's clock is a jump: clocks are corrected by less
BELIEVED_AFTER_NS = 10 * NS_PER_S  # longer than it takes to see a wrong time and to put it right


class ArrivalClock:
    """The clock of arrival time. Any thread may ask. `report(kind, message)` is told of jumps, by whoever asks first after one."""

    def __init__(
        self, report: Report = lambda kind, message: None, monotonic_ns: ClockNs = time.monotonic_ns, system_ns: ClockNs = time.time_ns
    ) -> None:
        self._report = report
        self._monotonic_ns = monotonic_ns
        self._system_ns = system_ns
        self._lock = threading.Lock()
        self._at_ns = monotonic_ns()
        self._now_ns = system_ns()
        self._offset_ns = self._now_ns - self._at_ns  # of the system's clock to the monotonic one, as far as it is believed
        self._jump: tuple[int, int] | None = None  # the offset that is not believed yet, and since when it has been seen
        self._is_ahead = False  # of the believed clock, by more than a jump

    def now_us(self) -> int:
        """Return the arrival time in microseconds since 1970; never less than before."""
        news = None
        with self._lock:
            at_ns = self._monotonic_ns()
            offset_ns = self._system_ns() - at_ns
            if self._jump is None and -JUMP_NS <= offset_ns - self._offset_ns <= JUMP_NS and not self._is_ahead:
                self._offset_ns = offset_ns
                self._go_on(at_ns)
            else:
                news = self._look_closer(at_ns, offset_ns)
            now_us = self._now_ns // NS_PER_US
        if news is not None:
            self._report(*news)
        return now_us

    def _go_on(self, at_ns: int) -> None:
        """Let time pass, and come nearer to the believed clock by a tenth of what passed."""
        passed_ns = at_ns - self._at_ns
        now_ns, slew_ns = self._now_ns + passed_ns, passed_ns // SLEW
        behind_ns = at_ns + self._offset_ns - now_ns
        self._at_ns = at_ns
        self._now_ns = now_ns + (slew_ns if behind_ns > slew_ns else -slew_ns if behind_ns < -slew_ns else behind_ns)

    def begin_no_earlier(self, now_us: int) -> None:
        """Go on from a time that was given before, should the system's clock say less."""
        with self._lock:
            ahead_ns = now_us * NS_PER_US - self._now_ns
            self._now_ns += max(0, ahead_ns)
            self._is_ahead = self._is_ahead or ahead_ns > JUMP_NS
        if ahead_ns > JUMP_NS:
            self._report(
                "clock_behind",
                f"the journal has rows that came {_seconds(ahead_ns)} later than the system's clock says; "
                "arrival time goes on from there, 10% slow until the clocks meet",
            )

    def _look_closer(self, at_ns: int, offset_ns: int) -> tuple[str, str] | None:
        """Let time pass while something is odd about the system's clock; returns what is to be reported."""
        news = self._look_at(at_ns, offset_ns)
        self._go_on(at_ns)
        target_ns = at_ns + self._offset_ns
        if news is not None and news[0] == "clock_followed":
            self._now_ns = max(self._now_ns, target_ns)
        if self._is_ahead and self._now_ns <= target_ns:
            self._is_ahead = False
            news = news or ("clocks_met", "arrival time is the system's time again")
        return news

    def _look_at(self, at_ns: int, offset_ns: int) -> tuple[str, str] | None:
        """Follow a small change of the system's clock; hold a jump to be wrong until it has stood for long enough."""
        by_ns = offset_ns - self._offset_ns
        if abs(by_ns) <= JUMP_NS:
            was, self._jump, self._offset_ns = self._jump, None, offset_ns
            return None if was is None else ("clock_right_again", "the system's clock was set right; arrival time did not follow the jump")
        if self._jump is None or abs(offset_ns - self._jump[0]) > JUMP_NS:
            self._jump = offset_ns, at_ns
            way = "forward" if by_ns > 0 else "back"
            wait = f"arrival time follows if that stands for {BELIEVED_AFTER_NS // NS_PER_S} s"
            return "clock_jumped", f"the system's clock jumped {way} by {_seconds(abs(by_ns))}; {wait}"
        if at_ns - self._jump[1] < BELIEVED_AFTER_NS:
            return None
        self._jump, self._offset_ns = None, offset_ns
        if by_ns > 0:
            return "clock_followed", f"arrival time took the system's jump forward by {_seconds(by_ns)}"
        self._is_ahead = True
        return "clock_slowed", f"arrival time runs 10% slow until the system's clock, which went back by {_seconds(-by_ns)}, has caught up"


def _seconds(ns: int) -> str:
    return f"{ns / NS_PER_S:,.1f} s"
