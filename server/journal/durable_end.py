"""The journal's own note of how far it is on disk: a small file that the journal's thread writes over each time the disk has said so.

Two slots are written in turn, each with a check, so one of them is always whole. The note itself is not forced to disk: after a failure
of the machine it may be some seconds old, which makes it say less and never anything wrong.
"""

from __future__ import annotations

import struct
import threading
import zlib
from pathlib import Path

from millstream.server.journal.disk import Disk, write_whole
from millstream.server.journal.disk import read as read_file
from millstream.server.journal.segments import Ending

FILE_NAME = "durable-end"
FORMAT_VERSION = 1
_MAGIC = b"MSTE"
_HEAD = struct.Struct("<4sI16s")
_SLOT = struct.Struct("<qqI")
_CHECK = struct.Struct("<I")
SLOT_PLACES = (64, 128)
FILE_BYTES = 192


class DurableEnd:
    """The open note. Calls may come from any thread."""

    def __init__(self, disk: Disk, directory: Path, identity: bytes, ending: Ending) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._last = ending
        self._turn = 0
        path = directory / FILE_NAME
        content = bytearray(FILE_BYTES)
        head = _HEAD.pack(_MAGIC, FORMAT_VERSION, identity)
        content[: len(head) + 4] = head + _CHECK.pack(zlib.crc32(head))
        slot = _slot(ending)
        for place in SLOT_PLACES:
            content[place : place + len(slot)] = slot
        write_whole(disk, path, [content])
        self._file = disk.open_update(path)

    def note(self, ending: Ending) -> None:
        """Note that the disk has a segment up to a place. OSError when it cannot be written: what was noted before still holds."""
        with self._lock:
            if (ending.base, ending.size) <= (self._last.base, self._last.size):
                return
            self._disk.write_at(self._file, _slot(ending), SLOT_PLACES[self._turn])
            self._last, self._turn = ending, 1 - self._turn

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._file)


def _slot(ending: Ending) -> bytes:
    body = _SLOT.pack(ending.base, ending.size, ending.check)
    return body + _CHECK.pack(zlib.crc32(body))


def read(disk: Disk, directory: Path, identity: bytes) -> tuple[Ending | None, str]:
    """Return what was noted last, None when that cannot be read, and what is wrong with the file in words."""
    path = directory / FILE_NAME
    if not disk.exists(path):
        return None, "the file is missing; it only says how far the journal was on disk, and is written anew"
    content = read_file(disk, path, FILE_BYTES)
    head = content[: _HEAD.size]
    if len(content) < FILE_BYTES or content[_HEAD.size : _HEAD.size + 4] != _CHECK.pack(zlib.crc32(head)):
        return None, "the file is damaged; it only says how far the journal was on disk, and is written anew"
    magic, version, found = _HEAD.unpack(head)
    if magic != _MAGIC or version != FORMAT_VERSION or found != identity:
        return None, "the file is another directory's or version's; it only says how far a journal was on disk, and is written anew"
    slots = [content[place : place + _SLOT.size + 4] for place in SLOT_PLACES]
    endings = [Ending(*_SLOT.unpack(s[:-4])) for s in slots if s[-4:] == _CHECK.pack(zlib.crc32(s[:-4]))]
    trouble = "" if len(endings) == 2 else "one of its two notes is damaged; the other one says how far the journal was on disk at least"
    return max(endings, key=lambda e: (e.base, e.size), default=None), trouble


def identity_in(disk: Disk, directory: Path) -> bytes | None:
    """Return the identity in the file's head; None when it cannot be read."""
    path = directory / FILE_NAME
    if not disk.exists(path):
        return None
    head = read_file(disk, path, _HEAD.size + 4)
    if len(head) < _HEAD.size + 4 or head[_HEAD.size :] != _CHECK.pack(zlib.crc32(head[: _HEAD.size])):
        return None
    return bytes(_HEAD.unpack(head[: _HEAD.size])[2])
