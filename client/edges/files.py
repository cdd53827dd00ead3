"""Files: a directory of them, or one log that grows and is rotated, as a source; rolled files in a directory as a sink.

The position of a source is the file and how many bytes of it are read. A sink writes a file aside and commits it by renaming it; the token
behind its last line stands in a file of its own that is renamed first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Lag, Message, MessageBatch
from millstream.client.edges.formats import check_is_text, encoder
from millstream.protocol.connectors import LINES_ONLY

READ_BYTES = 256 * 1024
LINE_BYTES_MAX = 1 << 20
POLL_S = 0.2
PACKED = (".gz", ".bz2", ".xz", ".zst")


class FilesSource:
    """Lines of files. `path` is a directory (with `glob`, by default `*`), whose files come in the order of their names, or one file."""

    promise = "exactly once: the place in the files is kept with the rows"

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._rest = b""
        self._name = ""
        self._offset = 0
        self._inode = 0
        self._header: bytes | None = None
        self._written_ns = self._done = 0  # when a file that is done was last written, and which it was

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Go on at the place in the file that the position names."""
        self._path = Path(options.text("path"))
        self._glob = options.text("glob", "*")
        check_is_text(options, "a line")
        self._skips_header = options.text("format", "json") == "csv" and options.maybe("header") is None
        self._is_folder = self._path.is_dir()
        if not self._path.exists() and not self._path.parent.is_dir():
            raise ConnectorError(f"there is no file or directory {self._path}")
        if position is None and not self._path.exists() and not self._rotated():
            raise ConnectorError(f"there is no file or directory {self._path} yet; it is read from its beginning once it is there")
        if position is not None:
            place = json.loads(position)
            self._name, self._offset, self._inode = place["file"], place["offset"], place["inode"]
        if not self._is_folder:
            self._open_next()  # before it is rotated

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return the next whole lines."""
        deadline = time.monotonic() + wait_s
        while True:
            batch = self._read_now()
            if batch is not None or time.monotonic() >= deadline:
                return batch
            time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))  # no system tells all that is written to a file or directory

    def _read_now(self) -> MessageBatch | None:
        while self._file is not None or self._open_next():
            assert self._file is not None
            self._file.seek(self._offset + len(self._rest))
            data = self._file.read(READ_BYTES)
            if data or not self._has_successor():
                *lines, self._rest = (self._rest + data).split(b"\n")
                if len(self._rest) > LINE_BYTES_MAX:
                    raise ConnectorError(f"{self._name}: a line of more than {LINE_BYTES_MAX} bytes at byte {self._offset}")
                return self._batch(lines, sum(len(line) + 1 for line in lines))
            batch = self._last_line()
            self._close_file()
            if batch is not None:
                return batch
        return None

    def _last_line(self) -> MessageBatch | None:
        """Return what stands behind the last line break of a file that does not grow any more."""
        rest, self._rest = self._rest, b""
        return self._batch([rest], len(rest)) if rest else None

    def _batch(self, lines: list[bytes], length: int) -> MessageBatch | None:
        is_first = self._offset == 0
        self._offset += length
        if is_first and self._skips_header and lines:
            self._header, lines = lines[0].rstrip(b"\r"), lines[1:]
        position = json.dumps({"file": self._name, "offset": self._offset, "inode": self._inode}).encode()
        messages = [Message(line.rstrip(b"\r"), topic=self._name, header=self._header) for line in lines if line.strip()]
        return MessageBatch(messages, position) if messages else None

    # --- which file ---

    def _following(self) -> str | None:
        """Return the name behind that of the file that is being read, in the directory; None when there is none yet."""
        with os.scandir(self._path) as entries:
            return min((e.name for e in entries if e.name > self._name and self._is_wanted(e.name) and e.is_file()), default=None)

    def _is_wanted(self, name: str) -> bool:
        return not name.startswith(".") and fnmatchcase(name, self._glob)

    def _open_next(self) -> bool:
        """Open the file that is being read, or else the next one."""
        if self._is_folder:
            return self._open_in_folder()
        if self._inode:
            found = self._by_inode()
            if found is not None:
                return self._open_file(found, self._offset)
        following = [p for written_ns, p in self._rotated() if written_ns >= self._written_ns and p.stat().st_ino != self._done]
        return bool(following) and self._open_file(following[0], 0)

    def _rotated(self) -> list[tuple[int, Path]]:
        """Return the log behind what rotation has made of it before, in the order in which they were last written, save packed ones."""
        paths = [p for p in self._path.parent.glob(self._path.name + "*") if p.is_file() and p.suffix not in PACKED]
        return sorted((p.stat().st_mtime_ns, p) for p in paths if p != self._path) + (
            [(self._path.stat().st_mtime_ns, self._path)] if self._path.exists() else []
        )

    def _open_in_folder(self) -> bool:
        if self._name and self._inode != -1 and (self._path / self._name).is_file():
            return self._open_file(self._path / self._name, self._offset)
        following = self._following()
        return following is not None and self._open_file(self._path / following, 0)

    def _by_inode(self) -> Path | None:
        """Return the file that was being read, wherever rotation has moved it to in its directory."""
        found = [path for _, path in self._rotated() if path.stat().st_ino == self._inode and path.stat().st_size >= self._offset]
        return found[0] if found else None

    def _open_file(self, path: Path, offset: int) -> bool:
        self._file = path.open("rb")
        if offset and self._skips_header:
            self._header = self._file.readline(LINE_BYTES_MAX).rstrip(b"\r\n")
        status = os.fstat(self._file.fileno())
        self._inode, self._name, self._offset, self._rest = status.st_ino, path.name if self._is_folder else self._path.name, offset, b""
        return True

    def _has_successor(self) -> bool:
        """Whether another file follows, so that this one grows no more."""
        assert self._file is not None
        if self._is_folder:
            return self._following() is not None
        if os.fstat(self._file.fileno()).st_size < self._offset:  # cut to be written anew
            return True
        try:
            return self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return False

    def _close_file(self) -> None:
        if self._file is not None:
            status = os.fstat(self._file.fileno())
            self._written_ns, self._done = status.st_mtime_ns, status.st_ino
            self._file.close()
            self._file = None
        self._inode = -1 if self._is_folder else 0
        self._rest = b""

    def settled(self, position: bytes) -> None:
        """Files stay as they are."""

    def lag(self) -> Lag:
        """Return nothing: how many lines a file has is not known before it is read."""
        return Lag()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class FilesSink:
    """Results as JSON lines in `path`, a directory: a file for each `roll_bytes` or `roll_s`, of whole batches, each put in place whole."""

    promise = "exactly once: a file is put in place whole, and the token behind it stands beside it before that"

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._bytes = 0
        self._token = ""
        self._began = 0.0

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Return the token that stands beside the newest file; what a connect process remembers may be ahead of it."""
        self._path = Path(options.text("path"))
        self._messages = encoder(options, LINES_ONLY)
        self._roll_bytes = options.number("roll_bytes", 16 * 2**20, 1)
        self._roll_s = options.number("roll_s", 10.0)
        self._prefix = options.text("prefix", options.name)
        self._path.mkdir(parents=True, exist_ok=True)
        self._number = max(self._numbers(), default=0)
        return self._token_path(self._number).read_text() if self._number else None

    def _token_path(self, number: int) -> Path:
        return self._path / f".{self._prefix}-{number:08}.token"

    def _numbers(self) -> Iterator[int]:
        for path in self._path.glob(f"{self._prefix}-*.jsonl"):
            number = path.stem.removeprefix(f"{self._prefix}-")
            if number.isdigit():
                yield int(number)

    def write(self, batch: Any, token: str) -> None:
        """Keep the rows until the file is due."""
        if not self._lines:
            self._began = time.monotonic()
        lines = self._messages(batch)
        self._lines += lines
        self._bytes += sum(map(len, lines))
        self._token = token

    def flush(self) -> None:
        """Put the file in place if it is due: a file for every few rows would be of use to nobody."""
        if self._lines and (self._bytes >= self._roll_bytes or time.monotonic() - self._began >= self._roll_s):
            self._roll()

    def _roll(self) -> None:
        number = self._number + 1
        self._put(self._token_path(number), self._token.encode())
        self._put(self._path / f"{self._prefix}-{number:08}.jsonl", b"\n".join(self._lines) + b"\n")
        self._token_path(self._number).unlink(missing_ok=True)
        self._number, self._lines, self._bytes = number, [], 0

    def _put(self, path: Path, content: bytes) -> None:
        part = self._path / f".{path.name.removeprefix('.')}.part"
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Put what there is in place."""
        if self._lines:
            self._roll()
