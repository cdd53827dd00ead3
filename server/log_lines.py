"""Log lines on their way out of the process, at a pace that is not the server's.

Whoever reads them may stop reading (a stalled pipe, a terminal that was halted) or go away. A thread of its own writes them, so that
only it waits; what waits is bounded, and what is lost is counted and told as soon as lines can be written again.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from typing import Protocol, TextIO

LOG_BYTES_MAX = 1 << 20


class LogLines:
    """Takes lines without ever waiting or failing. What waits longer than the stream's reader lets it is lost from LOG_BYTES_MAX on."""

    def __init__(self, stream: TextIO) -> None:
        self._output = _output_of(stream)
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, int]] = deque()  # text, and how many lines are lost with it; the first is being written
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._ended = False
        self.lost = 0

    def write(self, text: str) -> int:
        """Take a line, or count it as lost; return its length."""
        line = text.encode(self._encoding, "backslashreplace")
        with self._changed:
            if self._ended or self._bytes + len(line) > LOG_BYTES_MAX:
                self.lost += 1
                return len(text)
            self._tell_loss()
            self._add(line, 1)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_out, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Lines leave as soon as they can."""

    def settle(self, within_s: float) -> bool:
        """Wait until all lines have left or are lost, but no longer than that; return whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, within_s)

    def finish(self, within_s: float) -> None:
        """Give what waits that long to leave. Lines that come later are lost."""
        self.settle(within_s)
        with self._changed:
            if self._thread is None and not self._ended:
                self._output.close()
            self._ended = True
            self._changed.notify_all()

    def _add(self, line: bytes, stands_for: int) -> None:
        self._waiting.append((line, stands_for))
        self._bytes += len(line)

    def _tell_loss(self) -> None:
        if self.lost:
            self._add(f"{json.dumps({'event': 'log_lines_lost', 'level': 'error', 'lines': self.lost})}\n".encode(), self.lost)
            self.lost = 0

    def _write_out(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    self._output.close()
                    return
                line, stands_for = self._waiting[0]
            written = self._output.write(line)
            with self._changed:
                self._waiting.popleft()
                self._bytes -= len(line)
                if not written:
                    self.lost += stands_for
                elif not self._waiting:
                    self._tell_loss()
                self._changed.notify_all()


class _Output(Protocol):
    def write(self, data: bytes) -> bool:
        """Write it, waiting if need be; return whether that was possible."""

    def close(self) -> None:
        """Let go of what was taken for writing."""


def _output_of(stream: TextIO) -> _Output:
    try:
        return _Descriptor(os.dup(stream.fileno()))
    except (OSError, ValueError, AttributeError):  # no file stands behind it
        return _Text(stream)


class _Descriptor:
    """A file, pipe or terminal, by a descriptor of its own.

    The stream's buffer would stay locked while a write of it waits, and the interpreter could not end; and the stream's own number, once
    closed, may become that of a peer's socket.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, data: bytes) -> bool:
        try:
            while data:
                data = data[os.write(self._number, data) :]
        except OSError:  # nobody reads the pipe any more, the disk is full
            return False
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._number)


class _Text:
    """A stream without a file, which is left open."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> bool:
        try:
            self._stream.write(data.decode(getattr(self._stream, "encoding", None) or "utf-8", "replace"))
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: it was closed
            return False
        return True

    def close(self) -> None:
        pass
