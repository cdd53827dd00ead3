"""What our own distribution says of itself, read from its files.

`importlib.metadata` knows more, but loads a mail parser for it and reads the files of all packages: a twentieth of the start of a command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

ENTRY_POINTS = "entry_points.txt"


def own_entry(group: str, name: str, distribution: str = "millstream") -> str | None:
    """Return the `module:object` of an entry point that a distribution declares; None where its files do not say."""
    for folder in _information(distribution):
        try:
            with open(os.path.join(folder, ENTRY_POINTS), encoding="utf-8") as file:
                text = file.read()
        except OSError:  # an installation of another kind: `importlib.metadata` may know more
            continue
        found = _entries(text, group).get(name)
        if found is not None:
            return found
    return None


def _information(distribution: str) -> Iterator[str]:
    """Yield the folders with a distribution's description, in the order in which modules are looked for."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # not a folder, or not there
            continue
        yield from (os.path.join(folder, name) for name in names if name.startswith(f"{distribution}-") and name.endswith(".dist-info"))


def _entries(text: str, group: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == group and "=" in line:
            name, _, value = line.partition("=")
            entries[name.strip()] = value.strip()
    return entries
