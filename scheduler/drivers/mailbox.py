"""The bounded inbox of the scheduler thread. Arrivals of one log merge into one event while they wait."""

from __future__ import annotations

import threading

from millstream.engine.data.graph import LogId
from millstream.scheduler.errors import SchedulerError
from millstream.scheduler.events import Arrived, Event, WorkDone
from millstream.scheduler.limits import MAILBOX_EVENTS_MAX


class Mailbox:
    """Any thread posts, one thread takes. A post is one lock and, only when the taker sleeps, one wake-up."""

    def __init__(self, events_max: int = MAILBOX_EVENTS_MAX) -> None:
        self._events_max = events_max
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._events: list[Event] = []
        self._arrivals: dict[LogId, Arrived] = {}
        self._sleeping = False
        self._closed = False
        self.merged = 0

    def post(self, event: Event) -> None:
        """Leave an event; raises `SchedulerError` when the box is full or closed."""
        with self._lock:
            # Orders that are out when the box closes still come back.
            if self._closed and type(event) is not WorkDone:
                raise SchedulerError("the scheduler has stopped")
            if type(event) is Arrived:
                self._post_arrival(event)
            else:
                self._check_room()
                self._events.append(event)
            if self._sleeping:
                self._sleeping = False
                self._ready.notify()

    def _check_room(self) -> None:
        if len(self._events) + len(self._arrivals) >= self._events_max:
            raise SchedulerError(f"{self._events_max} events wait for the scheduler", hint="it does not keep up or has stopped")

    def _post_arrival(self, event: Arrived) -> None:
        waiting = self._arrivals.get(event.log)
        if waiting is None:
            self._check_room()
            self._arrivals[event.log] = event
            return
        self.merged += 1
        oldest_ns = waiting.arrival_ns
        if event.rows:
            oldest_ns = min(oldest_ns, event.arrival_ns) if waiting.rows else event.arrival_ns
        rows, controls, shed = waiting.rows + event.rows, waiting.controls + event.controls, waiting.shed + event.shed
        total, controls_total = _greatest(waiting.total, event.total), _greatest(waiting.controls_total, event.controls_total)
        size = waiting.bytes + event.bytes
        self._arrivals[event.log] = Arrived(event.log, rows, size, oldest_ns, controls, total, shed, controls_total)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits and the box is open."""
        return not (self._events or self._arrivals or self._closed)

    def wait(self, timeout_s: float | None) -> None:
        """Sleep until something waits, up to `timeout_s` (None: for ever)."""
        with self._lock:
            if not self._events and not self._arrivals and not self._closed:
                self._sleeping = True
                self._ready.wait(timeout_s)
                self._sleeping = False

    def take(self, timeout_s: float | None) -> list[Event]:
        """Return all events, waiting for the first up to `timeout_s` (None: for ever, 0: not at all)."""
        if timeout_s != 0:
            self.wait(timeout_s)
        with self._lock:
            events = self._events
            if self._arrivals:
                arrivals: list[Event] = list(self._arrivals.values())
                self._arrivals = {}
                # Arrivals first: a receipt in the same batch may speak of rows that one of them brings.
                arrivals.extend(events)
                events = arrivals
            self._events = []
            return events

    def close(self, *, last: Event | None = None) -> None:
        """Refuse further events, leave a last one, and wake the taker."""
        with self._lock:
            if last is not None and not self._closed:
                self._events.append(last)
            self._closed = True
            self._ready.notify_all()


def _greatest(first: int | None, second: int | None) -> int | None:
    """Return the greater of two totals, either of which may not be known."""
    return first if second is None else second if first is None else max(first, second)
