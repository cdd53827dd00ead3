"""How values look outside: as text, as CSV, as JSON lines, and the functions of Arrow that make them so.

All folders may use it, the engine's ingest included. It knows nothing of messages or of the engine.
"""

from __future__ import annotations

FIELD_METADATA: dict[bytes | str, bytes | str] = {b"millstream.type": b"JSON"}
"""What marks an Arrow string field whose texts are JSON."""

DEPTH_MAX = 64
"""Levels of a JSON value or of a nested one."""
TYPE_DEPTH_MAX = 8
"""Types that may stand in one another: INT[] has two."""


class Number(str):
    """The digits of a JSON number with a point or an exponent, kept as text so that nothing is lost before its type is known."""

    __slots__ = ()
