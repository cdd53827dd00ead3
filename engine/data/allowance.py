"""What one call of an operator may still make: kernels ask before they build something large, and stop when it would be too much (K8).

The executor opens an allowance around each call. Kernels stand deep below operators and are plain functions of columns, so the allowance
of a thread is found by `claim` and `pause` themselves. Outside of an executor (a copy of a query, a test) only what one Arrow column
can hold is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from millstream.engine.data import limits
from millstream.engine.data.errors import BoundReached

if TYPE_CHECKING:
    from millstream.engine.data.train import Train

BytesLeft = Callable[[], tuple[int, str]]
"""Return the bytes that may still be made, and the name and mend of the bound that says so."""


Bounds = tuple[Callable[[], int] | None, int]
"""What reads a thread's processor time, None where that is not bounded, and how much of it a step may have, in ns."""


class CutAt(Exception):
    """A call is too much at once: it has changed nothing, and wants only what lies below the arrival number `seq` first."""

    def __init__(self, seq: int) -> None:
        super().__init__(f"cut at {seq}")
        self.seq = seq


class TooMuchAtOnce(BoundReached):
    """What one call would make is more than may be made now; with fewer rows it may be possible."""


class Allowance:
    """One thread's. A call begins with `left`, which is asked only when something large is claimed, and with nothing claimed.

    `processor_ns` is the thread's own processor time: a busy machine ends no query.
    """

    __slots__ = ("_clock_ns", "_ns_max", "_started_ns", "active", "bounds", "claimed", "left", "waited_ns")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._clock_ns, self._ns_max = bounds
        self._started_ns = 0
        self.left: BytesLeft = unbounded
        self.claimed = 0
        self.waited_ns = 0  # for another process, beyond what its work took: part of no operator's cost
        self.active = False  # whether an order runs on this thread

    def start(self) -> None:
        """Begin to count processor time."""
        if self._clock_ns is not None:
            self._started_ns = self._clock_ns()

    def claim(self, size_bytes: int, what: str) -> None:
        """Count bytes that are about to be made. TooMuchAtOnce when they are more than is left."""
        self.claimed += size_bytes
        left, bound = self.left()
        if self.claimed > left:
            raise TooMuchAtOnce(
                f"{what} needs {self.claimed} bytes at once, and {max(left, 0)} are left of {bound}",
                hint="make the window shorter or the texts smaller, or raise that bound",
            )

    def pause(self) -> None:
        """Look at the time, and at whether the query still runs. BoundReached when the step has had more than it may have."""
        if self.left()[0] < 0:
            self.claim(0, "what it is at")
        if self._clock_ns is not None:
            spent_ns = self._clock_ns() - self._started_ns
            if spent_ns > self._ns_max:
                raise BoundReached(
                    f"one step took {spent_ns / 1e9:.1f} s of the processor, and step_s_max allows {self._ns_max / 1e9:g} s",
                    hint="take a shorter window or a cheaper aggregate, or raise the server's step_s_max",
                )


def unbounded() -> tuple[int, str]:
    """Return the bytes that are left where nobody set a bound."""
    return limits.COLUMN_BYTES_MAX, "what one column can hold"


_here: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


own = _here.get
"""Returns this thread's allowance, None where it has none yet."""

give = _here.set
"""Gives this thread an allowance of its own, which it keeps; it counts while it is active."""


def claim(size_bytes: int, what: str) -> None:
    """Ask for bytes before they are made, `what` saying for what. Small things need not ask. Raises TooMuchAtOnce where it is too much."""
    if size_bytes < limits.CLAIM_BYTES_MIN:
        return
    if size_bytes > limits.COLUMN_BYTES_MAX:
        raise TooMuchAtOnce(f"{what} needs {size_bytes} bytes in one column, which can hold {limits.COLUMN_BYTES_MAX}")
    allowance = _here.get()
    if allowance is not None and allowance.active:
        allowance.claim(size_bytes, what)


def claim_grown(before: int, size_bytes: int, what: str) -> None:
    """Ask for what one column has grown by while it is made value by value."""
    claim(size_bytes if size_bytes > limits.COLUMN_BYTES_MAX else size_bytes - before, what)


def cut_rows(train: Train, rows: int) -> None:
    """Want only about the first `rows` rows of a train, before anything was done with it. Raises CutAt where it can be cut so."""
    if 0 < rows < train.rows and can_cut():
        seqs = train.seq.array()
        seq = int(seqs[rows - 1]) + 1
        if seq <= int(seqs[-1]):
            raise CutAt(seq)


def can_cut() -> bool:
    """Whether whoever runs the call can cut it."""
    allowance = _here.get()
    return allowance is not None and allowance.active


def pause() -> None:
    """Say that a step is still at work, between two parts of it that take some ms. BoundReached where it has had its time."""
    allowance = _here.get()
    if allowance is not None and allowance.active:
        allowance.pause()
