"""`top --once`: the panes one below the other, for scripts and pipes."""

from __future__ import annotations

from textwrap import wrap

from millstream.client import figures
from millstream.client.render import aligned, fitted
from millstream.client.top.model import Board, Pane


def plain(board: Board, server: str, width: int | None = None) -> str:
    """Return the board as text without colours. Columns of which nothing is known, as rates after one look, are left out.

    Nothing is cut off, unless a `width` is given: then texts are cut and columns left out that have no room, and it says which.
    """
    parts = [f"{server}\n", f"policy {board.policy}\n"]
    parts += [f"\n{pane.title.upper()}\n{_table(pane, width)}" for pane in board.panes.values() if pane.rows]
    return "".join(parts)


def _table(pane: Pane, width: int | None) -> str:
    rows = [cells for _, cells in pane.shown() if any(cell != figures.UNKNOWN for cell in cells[1:])]
    known = [place for place in range(len(pane.columns)) if any(row[place] != figures.UNKNOWN for row in rows)]
    heads = [(pane.columns[place].title, pane.columns[place].to_the_right) for place in known]
    cells = [[row[place] for place in known] for row in rows]
    if width is None:
        return "\n".join(aligned(heads, cells)) + "\n"
    lines, left_out = fitted(heads, cells, width)
    if left_out:
        lines += wrap(f"no room for {', '.join(left_out)}", width)
    return "\n".join(lines) + "\n"
