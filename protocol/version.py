"""Agreement on a protocol version: the highest both speak."""

from __future__ import annotations

from collections.abc import Iterable

VERSION = 1
VERSIONS = (1,)


def agree(offered: Iterable[int], spoken: Iterable[int] = VERSIONS) -> int | None:
    """Return the highest version in both lists, or None if there is none."""
    common = set(offered) & set(spoken)
    return max(common) if common else None
