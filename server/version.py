"""The program's name and version, as it tells its peers."""

from __future__ import annotations

import functools
import os
import sys

_NAME, _INFORMATION = "millstream", ".dist-info"


@functools.cache
def program() -> str:
    """Return `millstream 1.2.3`, with `unpackaged` for the version where the program is not installed."""
    return f"{_NAME} {_of_folder() or _of_metadata()}"


def _of_folder() -> str | None:
    """Return the version from the name of the folder that describes the installation; None where it is not described by a folder."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # not a folder, or not there
            continue
        for name in names:
            if name.startswith(f"{_NAME}-") and name.endswith(_INFORMATION):
                return name[len(_NAME) + 1 : -len(_INFORMATION)]
    return None


def _of_metadata() -> str:
    """Ask `importlib.metadata`, which loads a mail parser first: a twentieth of the server's start."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(_NAME)
    except PackageNotFoundError:
        return "unpackaged"
