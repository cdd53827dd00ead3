"""The program's name and version, as it tells its peers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("millstream")
    except PackageNotFoundError:
        return "unpackaged"


PROGRAM = f"millstream {_version()}"
