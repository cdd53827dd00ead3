"""Golden files in sections: `-- name` lines, each followed by its text. With MILLSTREAM_UPDATE_GOLDEN=1 a run writes what it found."""

from __future__ import annotations

import os
import re
from pathlib import Path

_HEADING = re.compile(r"^-- (\w[\w ]*)$", re.MULTILINE)
UPDATE = os.environ.get("MILLSTREAM_UPDATE_GOLDEN") == "1"


def sections(path: Path) -> dict[str, str]:
    """Return the sections of a golden file by name, in order."""
    parts = _HEADING.split(path.read_text(encoding="utf-8"))
    return {name: text.strip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def check(path: Path, found: dict[str, str]) -> None:
    """Compare what was found with the file's sections of the same names, or write them there."""
    expected = sections(path)
    if UPDATE:
        merged = {**expected, **found}
        path.write_text("\n".join(f"-- {name}\n{text}\n" for name, text in merged.items()), encoding="utf-8")
        return
    for name, text in found.items():
        assert text == expected.get(name), f"{path.name}, section {name}"
