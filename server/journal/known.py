"""What the catalogue knows of the journal: which segments there are, and how far the last one was on disk when it was noted."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from millstream.engine.data.records import dataclass

FOLDER = "journal"  # in the data directory
ARCHIVE_FOLDER, ARCHIVE_SUFFIX = "archive", ".parquet"  # of archives that have no place of their own
SPILL_FOLDER = "spill"  # rows that left memory: nothing in it outlives the server
NEW_FOLDER, OLD_FOLDER = "journal.new", "journal.old"  # while a directory of version 0.1.0 is converted


def way_out(folder: Path) -> str:
    """Return what to do about a journal that cannot be used as it is."""
    directory = folder.parent
    return f"restore the directory from a copy, or get back what is readable: millstream journal salvage {directory} NEW_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Known:
    """Bases of the first and the last segment, and how many bytes of the last one were on disk.

    `is_empty` when nothing had come since it began and the server stopped then: the file may be begun anew.
    """

    first: int
    last: int
    end: int
    is_empty: bool = False


class CatalogueView(Protocol):
    """The catalogue as the journal sees it. `identity` is what both carry (16 bytes)."""

    @property
    def identity(self) -> bytes:
        """The identity of the data directory."""

    @property
    def number_max(self) -> int:
        """The greatest number that a stream or table was ever given."""

    def known(self) -> Known | None:
        """What was noted last; None when there was no journal yet."""

    def note_known(self, known: Known) -> None:
        """Note it, safely."""
