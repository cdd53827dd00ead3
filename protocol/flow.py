"""Credits: how much each side may still send.

Rows travel on channels (client to server) and subscriptions (server to client). For each the receiver grants credit in rows
and in bytes. A frame may be sent while both are above zero, and takes its rows and its length on the wire from them, which may
leave them below zero by one frame; so a frame larger than the whole credit still passes, and no deadlock is possible.
A frame of no rows needs byte credit only.

Answers that carry a table have a credit in bytes too, one for the connection, from version 2 on (docs/protocol.md).

The receiver grants anew with `Refill` once half of what it granted has been used *and dealt with*: not when it was
read, but when its memory is free. That is the back-pressure.
"""

from __future__ import annotations

from millstream.protocol import limits


class Window:
    """What one side may still send. Both ends keep one, and both reach the same figures."""

    __slots__ = ("bytes", "rows")

    def __init__(self, rows: int, bytes_: int) -> None:
        self.rows = rows
        self.bytes = bytes_

    def __repr__(self) -> str:
        return f"Window(rows={self.rows}, bytes={self.bytes})"

    @property
    def is_open(self) -> bool:
        """Whether a frame with rows may be sent now."""
        return self.rows > 0 and self.bytes > 0

    def allows(self, rows: int) -> bool:
        """Whether a frame of `rows` rows may be sent now."""
        return self.bytes > 0 and (self.rows > 0 or rows == 0)

    def spend(self, rows: int, bytes_: int) -> None:
        """Take a frame's rows and length from the credit."""
        self.rows -= rows
        self.bytes -= bytes_

    def grant(self, rows: int, bytes_: int) -> bool:
        """Add credit. Returns False, changing nothing, if the sum would leave 63 bits."""
        if self.rows + rows > limits.NUMBER_MAX or self.bytes + bytes_ > limits.NUMBER_MAX:
            return False
        self.rows += rows
        self.bytes += bytes_
        return True


class Refill:
    """The receiver's side: collects what was dealt with and says when to grant it again.

    Keeps the sum of granted and not yet dealt with at the size of the window (plus one frame's overshoot).
    """

    __slots__ = ("_bytes", "_rows", "bytes_window", "rows_window")

    def __init__(self, rows_window: int = limits.CREDIT_ROWS, bytes_window: int = limits.CREDIT_BYTES) -> None:
        if rows_window < 1 or bytes_window < 1:
            raise ValueError("a window of less than one row and one byte would never open")
        self.rows_window = rows_window
        self.bytes_window = bytes_window
        self._rows = 0
        self._bytes = 0

    def done(self, rows: int, bytes_: int) -> tuple[int, int] | None:
        """Note that rows and bytes have been dealt with; return what to grant now, or None while it is less than half."""
        self._rows += rows
        self._bytes += bytes_
        if 2 * self._rows < self.rows_window and 2 * self._bytes < self.bytes_window:
            return None
        granted = self._rows, self._bytes
        self._rows = self._bytes = 0
        return granted
