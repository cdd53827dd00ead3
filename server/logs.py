"""Logging of the server: structlog to standard error; readable on a terminal, one JSON object a line elsewhere.

Only this rim logs: inner folders return facts. Lines about a connection or a query carry `connection` and `query`.
"""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Any, TextIO

from millstream.server.log_lines import LogLines


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


FINISH_S_MAX = 2.0  # for a reader that has stalled, at the end

structlog: Any = _without_rich()

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_lines: LogLines | None = None


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
