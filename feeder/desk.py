"""Where a feed's publishers report when they run in Spark's tasks: the driver gives the start, the order and the stop, and gets counts.

A publisher says who it is and is told how far it came; it says when its first row is due, and once all have, each is told how late it is:
time is counted from there, so no two machines need clocks that agree. Then it reports what was settled. In order, a publisher may send rows
that are due up to the next row of all others; so rows reach the server as from one publisher, and only one of them sends at a time.
A publisher that dies is started again by Spark and takes its own place. Messages are JSON, over sockets that know a key of the feed.
"""

from __future__ import annotations

import heapq
import json
import os
import secrets
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.feeder.errors import FeederError
from millstream.feeder.pace import NS_PER_S, REASONS_KEPT_MAX, Clock, Tally, WallClock

NEVER_NS = 2**63 - 1
MESSAGE_BYTES_MAX = 1 << 20
SLOTS_WAIT_S = 60.0  # for all publishers to run at once, from the first one on
GREETING_S = 60.0  # in which who calls must show that it knows the key
STRANGERS_MAX = 100  # lines beside those of the publishers
LOOK_S = 0.25  # between two looks at whether the desk is closed
if TYPE_CHECKING:
    Line: TypeAlias = Connection[Any, Any]


def dial(address: tuple[str, int], key: bytes) -> Line:
    """Return a line to a desk that knows the key. FeederError when nobody answers there; AuthenticationError."""
    try:
        line = _line_over(socket.create_connection(address))
        answer_challenge(line, key)
        deliver_challenge(line, key)
    except (OSError, EOFError) as error:
        place = f"{address[0]}:{address[1]}"
        reason = f" ({error})" if str(error) else ""
        raise FeederError(f"the executor does not reach the driver of this feed at {place}{reason}; see spark.driver.host") from error
    return line


def hang_up(line: Line) -> None:
    """End a line at both sides: whoever reads from it wakes up, and then closes it."""
    with suppress(OSError), socket.socket(fileno=os.dup(line.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def _bound_reads(line: Line, seconds: float) -> None:
    """Have a read from a line fail after so many seconds of silence; 0: wait as long as it takes."""
    with socket.socket(fileno=os.dup(line.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", *divmod(int(seconds * 1e6), 1_000_000)))


def _line_over(opened: socket.socket) -> Line:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(opened.detach())


@dataclass(slots=True)
class Seat:
    """What is known of one publisher: rows of each stream that are settled, the instant its next row is due, and up to where it may send.

    `next_ns` is None before it is known; `line` is its connection, None while there is none.
    """

    acked: list[int]
    line: Line | None = None
    next_ns: int | None = None
    upto_ns: int = -1
    told: dict[str, Any] = field(default_factory=dict)
    rejected_before: int = 0  # by earlier ones in this place
    came: bool = False
    runs: bool = False  # between its begin and its end
    done: bool = False


class Desk:
    """Answers publishers, on threads of its own. `acked` has of each publisher the rows of each stream that were fed before."""

    def __init__(self, host: str, acked: Sequence[Sequence[int]], *, in_order: bool, bind: str = "", clock: Clock | None = None) -> None:
        self._seats = [Seat(list(rows)) for rows in acked]
        self._acked_before = sum(map(sum, acked))
        self._in_order = in_order
        self._clock = clock or WallClock()
        self._lock = threading.Lock()
        self._came_ns: int | None = None
        self._origin_ns: int | None = None
        self._began_ns: int | None = None
        self._ended_ns: int | None = None
        self._is_stopping = False
        self._lines: dict[Line, threading.Thread] = {}
        self.key = secrets.token_bytes(32)
        self._socket = socket.create_server((bind or host, 0), backlog=len(acked) + 1)
        self._socket.settimeout(LOOK_S)
        self.address = (host, int(self._socket.getsockname()[1]))
        self._thread = threading.Thread(target=self._accept, name="feeder-desk", daemon=True)

    def __enter__(self) -> Desk:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up on all publishers, and wait for the threads that answered them."""
        with self._lock:
            self._ended_ns = self._clock.now_ns()
            self._is_stopping = True
        self._thread.join()
        self._socket.close()
        with self._lock:
            lines = dict(self._lines)
            for line in lines:
                hang_up(line)
        for thread in lines.values():
            thread.join()

    # -- what the driver asks ---------------------------------------------------------------------------------------------------

    def acked(self) -> list[list[int]]:
        """Return of each publisher the rows settled of each stream."""
        with self._lock:
            return [list(seat.acked) for seat in self._seats]

    def tally(self) -> Tally:
        """Return the numbers of all publishers together; the lag is that of the latest of them."""
        with self._lock:
            told = [seat.told for seat in self._seats]
            sent = sum(sum(seat.acked) for seat in self._seats) - self._acked_before
            rejected = sum(seat.rejected_before + seat.told.get("rejected", 0) for seat in self._seats)
            lag_ns = max((one.get("lag_ns", 0) for one in told), default=0)
            lag_ns_max = max((one.get("lag_ns_max", 0) for one in told), default=0)
            reasons = list(dict.fromkeys(reason for one in told for reason in one.get("reasons", ())))[:REASONS_KEPT_MAX]
            return Tally(sent, sent - rejected, rejected, lag_ns, lag_ns_max, self._began_ns, self._ended_ns, reasons)

    def stop(self) -> None:
        """Have all publishers stop after the send that is under way. Who comes later is told as well."""
        with self._lock:
            if not self._is_stopping:
                self._is_stopping = True
                for seat in self._seats:
                    self._say(seat, {"stop": True})

    def check(self) -> None:
        """Raise FeederError when not all publishers have come in time."""
        with self._lock:
            came = sum(seat.came for seat in self._seats)
            late = self._came_ns is not None and self._clock.now_ns() - self._came_ns > SLOTS_WAIT_S * NS_PER_S
            if late and came < len(self._seats):
                raise FeederError(
                    f"only {came} of {len(self._seats)} publishers have come: Spark has no free slots for the others, or they do not reach"
                    " the driver",
                    hint=f"ask for less (--publishers {came}), or see spark.driver.host",
                )

    # -- publishers -------------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while self._ended_ns is None:
            try:
                line = _line_over(self._socket.accept()[0])
            except OSError:  # nobody came meanwhile
                continue
            thread = threading.Thread(target=self._hear, args=(line,), name="feeder-desk-line", daemon=True)
            with self._lock:
                if len(self._lines) >= len(self._seats) + STRANGERS_MAX:
                    line.close()
                    continue
                self._lines[line] = thread
            thread.start()

    def _hear(self, line: Line) -> None:
        seat: Seat | None = None
        try:
            _bound_reads(line, GREETING_S)
            deliver_challenge(line, self.key)
            answer_challenge(line, self.key)
            _bound_reads(line, 0)
            while True:
                said = json.loads(line.recv_bytes(MESSAGE_BYTES_MAX))
                with self._lock:
                    if seat is None:
                        seat = self._sit(line, int(said["publisher"]))
                    elif seat.line is line:
                        self._take(seat, said)
        except (OSError, EOFError, AuthenticationError):
            pass  # a publisher that is gone, for which Spark starts another or says why not, or a stranger
        finally:
            with self._lock:
                del self._lines[line]
                if seat is not None and seat.line is line:
                    seat.line = None
                line.close()

    def _sit(self, line: Line, publisher: int) -> Seat:
        seat = self._seats[publisher]
        if self._came_ns is None:
            self._came_ns = self._clock.now_ns()
        if seat.line is not None:  # of one that Spark has given up
            hang_up(seat.line)
        seat.line, seat.came, seat.upto_ns, seat.runs, seat.done = line, True, -1, False, False
        seat.rejected_before, seat.told = seat.rejected_before + seat.told.get("rejected", 0), {}
        self._say(seat, {"acked": seat.acked})
        return seat

    def _take(self, seat: Seat, said: Mapping[str, Any]) -> None:
        begins = "sent" not in said
        seat.acked = [max(before, now) for before, now in zip(seat.acked, said["acked"], strict=True)]
        if not begins:
            seat.told = dict(said)
            if said["next_ns"] is None:
                self._say(seat, {"booked": True})
        seat.next_ns = NEVER_NS if said["next_ns"] is None else int(said["next_ns"])
        seat.done = seat.next_ns == NEVER_NS
        seat.runs = seat.runs and not seat.done
        if begins and self._origin_ns is not None:
            self._begin(seat)
        elif begins and all(other.next_ns is not None for other in self._seats):
            due = [other.next_ns for other in self._seats if other.next_ns is not None and other.next_ns != NEVER_NS]
            ahead_ns = min(due, default=0) if any(any(other.acked) for other in self._seats) else 0
            self._began_ns = self._clock.now_ns()
            self._origin_ns = self._began_ns - ahead_ns
            for other in self._seats:
                self._begin(other)
        self._give_turns()

    def _begin(self, seat: Seat) -> None:
        assert self._origin_ns is not None
        seat.runs = not seat.done
        self._say(seat, {"elapsed_ns": self._clock.now_ns() - self._origin_ns})

    def _give_turns(self) -> None:
        """Tell each publisher up to where it may send, where that has changed and is of use to it."""
        if self._origin_ns is None:
            return
        earliest_ns, second_ns = heapq.nsmallest(2, [*(seat.next_ns or 0 for seat in self._seats), NEVER_NS])
        for seat in self._seats:
            upto_ns = NEVER_NS
            if self._in_order:
                upto_ns = second_ns if seat.next_ns == earliest_ns else earliest_ns
            if seat.runs and upto_ns > seat.upto_ns and upto_ns >= (seat.next_ns or 0):
                seat.upto_ns = upto_ns
                self._say(seat, {"upto_ns": upto_ns})

    def _say(self, seat: Seat, said: Mapping[str, Any]) -> None:
        if seat.line is None:
            return
        try:
            seat.line.send_bytes(json.dumps(said).encode())
            if self._is_stopping and "stop" not in said:
                seat.line.send_bytes(json.dumps({"stop": True}).encode())
        except OSError:  # it is gone, which its own thread finds as well
            seat.line = None
