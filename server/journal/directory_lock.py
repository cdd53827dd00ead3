"""One server a data directory: two would write each other's journal and catalogue over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from millstream.server.errors import StoreError

FILE_NAME = "lock"


def lock(directory: Path) -> IO[str]:
    """Lock a directory for this process until the file that is returned is closed, or the process ends, however it does.

    StoreError when another process has it. The file tells its number, for whoever looks for it.
    """
    file = (directory / FILE_NAME).open("a+", encoding="ascii")
    try:
        import fcntl
    except ImportError:  # not on every platform
        return file
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise StoreError(
            f"the data directory {directory} is in use by another server{f' (process {holder})' if holder else ''}",
            hint="stop it first, or choose another with --data-dir",
        ) from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


@contextmanager
def held_for_reading(directory: Path) -> Iterator[None]:
    """Keep servers out of a directory while the block reads it; several may read. Yields once. StoreError when a server has it."""
    path = directory / FILE_NAME
    if not path.exists():  # no server has ever been there
        yield
        return
    with path.open(encoding="ascii") as file:
        try:
            import fcntl
        except ImportError:  # not on every platform
            yield
            return
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            holder = file.read().strip()
            raise StoreError(
                f"a server holds the data directory {directory}{f' (process {holder})' if holder else ''}", hint="stop it first"
            ) from error
        yield
