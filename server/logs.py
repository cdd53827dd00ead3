"""Logging of the server: structlog to standard error; readable on a terminal, one JSON object a line elsewhere.

Only this rim logs: inner folders return facts. Lines about a connection or a query carry `connection` and `query`.
"""

from __future__ import annotations

import json
import logging
import sys
from types import ModuleType
from typing import Any, TextIO


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

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class UnfailingOutput:
    """Where log lines go. One that cannot be written (nobody reads the pipe any more, the disk is full) must not stop what it tells of:
    it is lost, and how many were is told as soon as lines can be written again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = 0

    def write(self, text: str) -> int:
        """Write a line, or count it as lost."""
        try:
            if self.lost:
                self._stream.write(f"{json.dumps({'event': 'log_lines_lost', 'level': 'error', 'lines': self.lost})}\n")
                self._stream.flush()
                self.lost = 0
            return self._stream.write(text)
        except (OSError, ValueError):  # ValueError: the stream was closed
            self.lost += 1
            return 0

    def flush(self) -> None:
        """Let it leave, or count it as lost."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self.lost += 1


def configure_logs(level: str, format_: str, stream: TextIO | None = None) -> None:
    """Set up structlog once for the process; `format_` is human, json or auto."""
    output = stream if stream is not None else sys.stderr
    human = format_ == "human" or (format_ == "auto" and output.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=output.isatty()) if human else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not human:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=UnfailingOutput(output)),
        cache_logger_on_first_use=False,
    )


def logger(**context: Any) -> Any:
    """Return a logger that puts `context` on every line."""
    return structlog.get_logger(**context)
