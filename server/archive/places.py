"""Where the files of an archive lie: a folder on the server's own disk, or a store that pyarrow.fs opens by its URI.

A file has its name only once it is whole: on a disk and in HDFS it is written aside and renamed, an object store shows an object when it
is closed. Names are paths below the place, with `/`. Operations raise OSError, and pyarrow's errors that are OSErrors too.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from millstream.engine.data.errors import InvalidDefinition
from millstream.server.journal.disk import PART_SUFFIX, Disk, write_whole

_OBJECT_STORES = ("s3", "gcs", "abfs", "mock")


class Place(Protocol):
    """A place for files; it can be pickled, so that another process may read there."""

    @property
    def text(self) -> str:
        """What is shown of it."""
        ...

    def put(self, path: str, content: Any) -> None:
        """Put a file in place, whole or not at all, in the place of one that has the name."""
        ...

    def open(self, path: str) -> Any:
        """Return a file opened for reading at any position, with `read`, `seek` and `close`."""
        ...

    def reach(self) -> object:
        """Look that there can be such a place, without writing to it. ValueError, OSError, NotImplementedError when there cannot."""
        ...

    def names(self) -> list[str]:
        """Return the paths of all files, and of those that were not finished."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; nothing when it is gone."""
        ...


class LocalPlace:
    """A folder of the server's disk."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.folder = folder

    @property
    def text(self) -> str:
        """The folder."""
        return str(self.folder)

    def reach(self) -> object:
        """Any folder can be one."""
        return self.folder

    def put(self, path: str, content: Any) -> None:
        """Write aside, have the disk take it, rename."""
        target = self.folder / path
        missing = [folder for folder in (target.parent, *target.parent.parents) if not self._disk.exists(folder)]
        if missing:
            self._disk.make_directory(target.parent)
            for folder in reversed(missing):
                self._disk.sync_directory(folder.parent)
        write_whole(self._disk, target, [content])

    def open(self, path: str) -> Any:
        """Open by the disk."""
        return self._disk.open_read(self.folder / path)

    def names(self) -> list[str]:
        """List the folder and those of days."""
        found: list[str] = []
        for name in self._disk.names(self.folder):
            if name.startswith("day="):
                found += [f"{name}/{one}" for one in self._disk.names(self.folder / name)]
            else:
                found.append(name)
        return found

    def remove(self, path: str) -> None:
        """Unlink, and remove the folder of a day that has no file any more."""
        target = self.folder / path
        if self._disk.exists(target):
            self._disk.unlink(target)
        if target.parent != self.folder and not self._disk.names(target.parent):
            with suppress(OSError):  # it is but an empty folder
                self._disk.remove_directory(target.parent)


class StorePlace:
    """A folder in a store of pyarrow.fs."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._opened: tuple[Any, str] | None = None

    def reach(self) -> tuple[Any, str]:
        """Return the file system and the folder there, opened with the first call, which may ask the store. ValueError, OSError."""
        if self._opened is None:
            from pyarrow import fs  # loaded with the first store, not with the server

            self._opened = fs.FileSystem.from_uri(self._uri)
        return self._opened

    @property
    def _system(self) -> Any:
        return self.reach()[0]

    def __reduce__(self) -> tuple[type[StorePlace], tuple[str]]:
        """Be opened anew elsewhere."""
        return StorePlace, (self._uri,)

    @property
    def text(self) -> str:
        """The URI without what may be secret in it."""
        parts = urlparse(self._uri)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"

    def _path(self, path: str) -> str:
        return f"{self.reach()[1].rstrip('/')}/{path}"

    def put(self, path: str, content: Any) -> None:
        """Write the object, and look that the store has all of it."""
        target = self._path(path)
        renames = self._system.type_name not in _OBJECT_STORES
        written = target + PART_SUFFIX if renames else target
        if renames:
            self._system.create_dir(target.rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(written) as file:
            file.write(content)
        size = self._system.get_file_info(written).size
        if size != len(content):
            raise OSError(f"{self.text}/{path}: the store has {size} of {len(content)} bytes")
        if renames:
            self._system.move(written, target)

    def open(self, path: str) -> Any:
        """Open by the store."""
        return self._system.open_input_file(self._path(path))

    def names(self) -> list[str]:
        """List all below."""
        from pyarrow import fs

        root = self.reach()[1].rstrip("/")
        found = self._system.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        return sorted(info.path[len(root) + 1 :] for info in found if info.is_file)

    def remove(self, path: str) -> None:
        """Delete."""
        with suppress(FileNotFoundError):
            self._system.delete_file(self._path(path))


def open_place(into: str | None, own: Path, disk: Disk, allowed: str = "") -> Place:
    """Return the place that ARCHIVE INTO names, `own` where it names none. InvalidDefinition when it cannot be one.

    `allowed`: the folder that files named by statements must lie in; empty: any.
    """
    if into is None:
        return LocalPlace(disk, own)
    scheme = urlparse(into).scheme
    if scheme in ("", "file"):
        folder = Path(unquote(urlparse(into).path) if scheme else into)
        if not folder.is_absolute():
            raise InvalidDefinition(f"ARCHIVE INTO needs a whole path or a URI, not {into!r}", hint="write for example '/data/packets'")
        if allowed and not folder.resolve().is_relative_to(Path(allowed).resolve()):
            raise InvalidDefinition(f"{folder} does not lie in {allowed}", hint="the setting files_dir says where files may lie")
        return LocalPlace(disk, folder)
    return StorePlace(into)


def check_place(place: Place) -> None:
    """Reach a new archive's place once. InvalidDefinition when that cannot be."""
    try:
        place.reach()
    except (ValueError, OSError, NotImplementedError) as error:
        hint = "write a folder, or the URI of a store that pyarrow.fs opens: file, s3, gs, hdfs"
        raise InvalidDefinition(f"ARCHIVE INTO cannot use {place.text}: {error}", hint=hint) from error
