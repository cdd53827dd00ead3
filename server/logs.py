"""Logging of the server: structlog to standard error; readable on a terminal, one JSON object a line elsewhere.

Only this rim logs: inner folders return facts. Lines about a connection or a query carry `connection` and `query`. They leave the process
at a pace that is not the server's: whoever reads them may stop reading (a stalled pipe, a terminal that was halted) or go away. A thread
of its own writes them, so that only it waits; what waits is bounded, and what is lost is counted and told as soon as lines can be
written again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections import deque
from types import ModuleType
from typing import Any, Protocol, TextIO

FINISH_S_MAX = 2.0  # for a reader that has stalled, at the end
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_lines: LogLines | None = None
LOG_BYTES_MAX = 1 << 20


def _without_rich() -> ModuleType:
    """Load structlog without rich, which it would use for the colours of tracebacks alone: a twelfth of the server's start."""
    absent = object()
    before = sys.modules.get("rich", absent)
    sys.modules["rich"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        import structlog
    finally:
        if before is absent:
            del sys.modules["rich"]
        else:
            sys.modules["rich"] = before  # type: ignore[assignment]
    return structlog


structlog: Any = _without_rich()


def configure_logs(level: str, format_: str, stream: TextIO | None = None) -> None:
    """Set up structlog for the process; `format_` is human, json or auto."""
    global _lines
    finish_logs()
    output = stream if stream is not None else sys.stderr
    human = format_ == "human" or (format_ == "auto" and output.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=output.isatty()) if human else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    _lines = LogLines(output)
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),  # the system's time, as in every other log of the machine
    ]
    if not human:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=_lines),
        cache_logger_on_first_use=False,
    )


def finish_logs() -> None:
    """Let the lines out that still wait, as far as somebody reads them. What is logged after that is lost."""
    if _lines is not None:
        _lines.finish(FINISH_S_MAX)


def logger(**context: Any) -> Any:
    """Return a logger that puts `context` on every line."""
    return structlog.get_logger(**context)


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
