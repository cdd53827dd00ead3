"""Files of the server's machine that a statement names: regular files alone, from the folder that is allowed, and no more than a bound.

A FIFO may never end, a device never does, and a link may lead anywhere; so it is the opened file that is looked at, not its name. What a
statement reads is counted after it was unpacked, and asks before each piece whether anybody still waits for it.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from millstream.engine.data.records import dataclass
from millstream.protocol.values.packed import split_name, unpacked
from millstream.server.errors import BadInput, GivenUp

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
}
Asks = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class FileRules:
    """Where files may lie (`folder`; empty: anywhere that the server reads) and how many bytes one may hold, unpacked."""

    folder: str = ""
    bytes_max: int = 2**30


def nobody_gave_up() -> bool:
    """Return False: the answer for those whom nobody can tell to stop."""
    return False


def open_regular(path: Path, folder: str = "") -> BinaryIO:
    """Return a regular file opened for reading. BadInput when it is none or lies outside `folder`; OSError as the system gives it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would wait for its writer
    try:
        _check_opened(path, descriptor, folder)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_opened(path: Path, descriptor: int, folder: str) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise BadInput(f"{path} is {kind}, not a regular file", hint="copy its contents into a file")
    if not folder:
        return
    opened = f"/proc/self/fd/{descriptor}"
    real, allowed = os.path.realpath(opened if os.path.exists(opened) else path), os.path.realpath(folder)
    if os.path.commonpath([real, allowed]) != allowed:
        raise BadInput(f"{path} does not lie in {folder}", hint="the setting files_dir says where files may lie")


class BoundedFile(io.RawIOBase):
    """A file of at most `bytes_max`. BadInput when it holds more, GivenUp when nobody waits for it any more."""

    def __init__(self, file: BinaryIO, name: str, bytes_max: int, given_up: Asks) -> None:
        self._file = file
        self._name = name
        self._bytes_max = bytes_max
        self._given_up = given_up

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say whether one can go to a place."""
        return self._file.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        """Read into memory; returns how much. BadInput, GivenUp."""
        if self._given_up():
            raise GivenUp("the statement was cancelled while its file was read")
        if self._file.tell() > self._bytes_max:
            raise BadInput(f"{self._name} holds more than {self._bytes_max} bytes", hint="publish its rows, or raise file_bytes_max")
        view = memoryview(buffer).cast("B")
        data = self._file.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            self._file.close()


def open_bounded(path: Path, rules: FileRules, given_up: Asks) -> BinaryIO:
    """Return a file of rows, opened and unpacked, within the rules. BadInput; OSError as the system gives it."""
    file = open_regular(path, rules.folder)
    whole = unpacked(file, split_name(path)[1])
    return cast(BinaryIO, io.BufferedReader(BoundedFile(whole, path.name, rules.bytes_max, given_up), 256 * 1024))
