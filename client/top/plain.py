"""`top --once`: the panes one below the other, for scripts and pipes."""

from __future__ import annotations

from millstream.client import figures
from millstream.client.render import aligned
from millstream.client.top.model import Board, Pane


def plain(board: Board, server: str) -> str:
    """Return the board as text: nothing cut off, no colours. Columns of which nothing is known, as rates after one look, are left out."""
    parts = [f"{server}\n", f"policy {board.policy}\n"]
    parts += [f"\n{pane.title.upper()}\n{_table(pane)}" for pane in board.panes.values() if pane.rows]
    return "".join(parts)


def _table(pane: Pane) -> str:
    rows = [cells for _, cells in pane.shown() if any(cell != figures.UNKNOWN for cell in cells[1:])]
    known = [place for place in range(len(pane.columns)) if any(row[place] != figures.UNKNOWN for row in rows)]
    heads = [(pane.columns[place].title, pane.columns[place].to_the_right) for place in known]
    return "\n".join(aligned(heads, [[row[place] for place in known] for row in rows])) + "\n"
