"""Names of load managers, for settings: quick to import."""

from __future__ import annotations

from typing import Final

NAMES: Final = ("none", "common", "class", "dilos")
DEFAULT: Final = "none"
