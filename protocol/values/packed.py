"""Packed files: by the end of their name (.gz, .zst), or by their first bytes where there is no name.

Arrow unpacks Zstandard, so that no other library is needed for it.
"""

from __future__ import annotations

import io
from pathlib import PurePath
from typing import Any, BinaryIO, cast

SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_FIRST_BYTES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
READ_BYTES = 256 * 1024
FIRST_BYTES_MAX = max(map(len, _FIRST_BYTES))


def split_name(path: PurePath) -> tuple[PurePath, str | None]:
    """Return the name without the packing's suffix, and the packing: `gzip`, `zstd`, or None."""
    packing = SUFFIXES.get(path.suffix.lower())
    return (path, None) if packing is None else (path.with_suffix(""), packing)


def packing_of(first_bytes: bytes) -> str | None:
    """Return the packing that bytes begin with: `gzip`, `zstd`, or None."""
    return next((packing for magic, packing in _FIRST_BYTES.items() if first_bytes.startswith(magic)), None)


def may_be_packed(first_bytes: bytes) -> bool:
    """Whether more of the bytes could show that a file is packed."""
    return any(magic.startswith(first_bytes) for magic in _FIRST_BYTES)


def unpacked(file: BinaryIO, packing: str | None) -> BinaryIO:
    """Return the file as it was before it was packed. Closing it closes `file`. Damage shows while it is read, as EOFError."""
    if packing is None:
        return file
    if packing == "gzip":
        import gzip
        import zlib

        raw = _Unpacked(file, gzip.GzipFile(fileobj=file, mode="rb"), (OSError, EOFError, zlib.error))
    else:
        import pyarrow as pa

        raw = _Unpacked(file, pa.CompressedInputStream(file, "zstd"), (OSError,))
    return cast(BinaryIO, io.BufferedReader(raw, READ_BYTES))


class _Unpacked(io.RawIOBase):
    """Reads what `stream` unpacks of `file`. `faults` are what it raises for damage. One of Zstandard cannot go back."""

    def __init__(self, file: BinaryIO, stream: Any, faults: tuple[type[Exception], ...]) -> None:
        self._file = file
        self._stream = stream
        self._faults = faults
        self._at = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say whether one can go to a place."""
        return bool(self._stream.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; OSError where that cannot be."""
        self._at = int(self._stream.seek(offset, whence))
        return self._at

    def tell(self) -> int:
        """Return how many bytes lie before the next one."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read into memory; returns how much. EOFError when the file is damaged or cut off."""
        view = memoryview(buffer).cast("B")
        try:
            data = self._stream.read(len(view))
        except self._faults as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise EOFError(str(error)) from error
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Close both."""
        if not self.closed:
            super().close()
            self._stream.close()
            self._file.close()
