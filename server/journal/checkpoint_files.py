"""The files of checkpoints: a head with the identity of journal and catalogue, and a body that durability/checkpoints.py understands."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from millstream.server.errors import StoreError
from millstream.server.journal.disk import PART_SUFFIX, Disk, read, write_whole
from millstream.server.journal.known import way_out

FORMAT_VERSION = 3  # 2 was never released: its body was pickled
MAGIC = b"MSTC"
SUFFIX = ".checkpoint"
_HEAD = struct.Struct("<4sI16sqqI")  # magic, version, identity, arrival number, body length, body check
_CHECK = struct.Struct("<I")
_BODY_AT = _HEAD.size + _CHECK.size


def checkpoint_path(directory: Path, at: int) -> Path:
    """Return the file of the checkpoint at an arrival number."""
    return directory / f"{at:020d}{SUFFIX}"


def checkpoint_bases(disk: Disk, directory: Path) -> list[int]:
    """Return the arrival numbers of the checkpoints in a directory."""
    stems = [name.removesuffix(SUFFIX) for name in disk.names(directory) if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isascii() and stem.isdigit())


def write_body(disk: Disk, directory: Path, identity: bytes, at: int, body: bytes) -> None:
    """Put a checkpoint on disk, whole or not at all. OSError when the disk refuses."""
    head = _HEAD.pack(MAGIC, FORMAT_VERSION, identity, at, len(body), zlib.crc32(body))
    write_whole(disk, checkpoint_path(directory, at), [head, _CHECK.pack(zlib.crc32(head)), body])


def read_body(disk: Disk, directory: Path, identity: bytes, at: int) -> bytes | None:
    """Return the body of a checkpoint, None when there is no file. StoreError when it is damaged or of another version."""
    path = checkpoint_path(directory, at)
    if not disk.exists(path):
        return None
    content = read(disk, path)
    version = format_of(content)
    if version not in (None, FORMAT_VERSION):
        told = f"{path}: the checkpoint has format {version} and this server reads format {FORMAT_VERSION}"
        raise StoreError(f"{told}; the journal has let go of rows that only it knows of", hint="start the release that wrote it")
    try:
        return checked_body(content, identity, at)
    except ValueError as problem:
        raise StoreError(f"{path}: {problem}", hint=way_out(directory)) from problem


def checked_body(content: bytes, identity: bytes, at: int) -> bytes:
    """Return the body in a file's content. ValueError that says what is wrong with it."""
    head, body = content[: _HEAD.size], content[_BODY_AT:]
    version = format_of(content)
    if version not in (None, FORMAT_VERSION):
        raise ValueError(f"the checkpoint has format {version} and this server reads format {FORMAT_VERSION}")
    if version is None:
        raise ValueError("the checkpoint is damaged at byte 0, in its head")
    _, _, found_identity, found_at, length, check = _HEAD.unpack(head)
    if found_identity != identity or found_at != at:
        raise ValueError("the checkpoint belongs to another data directory or place")
    if len(body) != length or zlib.crc32(body) != check:
        raise ValueError(f"the checkpoint is damaged behind byte {_BODY_AT}")
    return body


def format_of(content: bytes) -> int | None:
    """Return the format that a file's whole head names, None when that is damaged. Format 1, of version 0.1.0, had no such head."""
    head = content[: _HEAD.size]
    if content[:4] != MAGIC or content[_HEAD.size : _BODY_AT] != _CHECK.pack(zlib.crc32(head)):
        return None
    return int.from_bytes(content[4:8], "little")


def forget_others(disk: Disk, directory: Path, needed: int) -> list[Path]:
    """Remove checkpoints of other formats, save the one that is needed, so that nothing relies on them. Returns their paths."""
    gone = []
    for at in checkpoint_bases(disk, directory):
        path = checkpoint_path(directory, at)
        if at != needed and format_of(read(disk, path, _BODY_AT)) not in (None, FORMAT_VERSION):
            disk.unlink(path)
            gone.append(path)
    return gone


def forget_before(disk: Disk, directory: Path, at: int) -> None:
    """Remove checkpoints before an arrival number, and what a failed try left half written."""
    for name in disk.names(directory):
        if name.endswith(SUFFIX + PART_SUFFIX):
            disk.unlink(directory / name)
    for base in checkpoint_bases(disk, directory):
        if base < at:
            disk.unlink(checkpoint_path(directory, base))
