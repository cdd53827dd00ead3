"""One server a data directory: two would write each other's journal and catalogue over."""

from __future__ import annotations

import os
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
