"""Which column of a stream a name in an input means: one rule for every format, in the client's readers and at the server's ingest.

A column is meant by exactly its name, else by the one name that differs only in case. Other names mean no column: a file's are left out,
with a note; in rows that a program sends they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

CHANGE_NOTE = "+ adds the row, - takes it back"
"""What DESCRIBE says of the column `op` of a change log."""
MAP_HINT = "--map COLUMN=FILE_COLUMN fills a column from one of another name in the file"


class ColumnNames:
    """The names of a stream's columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.known = frozenset(names)
        self._folded: dict[str, list[str]] = {}
        for name in names:
            self._folded.setdefault(name.lower(), []).append(name)

    def meant_by(self, name: str) -> str | None:
        """Return the column that a name alone means, None where it means none."""
        if name in self.known:
            return name
        candidates = self._folded.get(name.lower(), [])
        return candidates[0] if len(candidates) == 1 else None

    def match(self, names: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return where each column stands among the input's names, and the names that mean no column.

        ValueError when a column is named twice.
        """
        places: dict[str, int] = {}
        extra: list[str] = []
        exact = frozenset(names)
        for place, name in enumerate(names):
            column = self.meant_by(name)
            if column is None or (column != name and column in exact):
                extra.append(name)
            elif column in places:
                raise ValueError(f"column {column} stands twice")
            else:
                places[column] = place
        return places, tuple(extra)


def left_out_note(names: Sequence[str]) -> str:
    """Return the note about columns of a file that the stream does not have."""
    return f"left out {'column' if len(names) == 1 else 'columns'} {', '.join(names)}, which the stream does not have"
