"""`millstream top`: what the server does, as it does it; `--once`: the panes one below the other, for scripts and pipes."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
from millstream.client import figures
from millstream.client.commands.common import Seconds, connection_options
from millstream.client.render import aligned, fitted
from millstream.client.top.model import Board, Look, Pane, board, look, typed_rows

if TYPE_CHECKING:
    from millstream.client.blocking import Client


@click.command()
@click.option("--every", type=Seconds(0.1), default=1.0, show_default=True, metavar="SECONDS", help="Time between updates.")
@click.option("--once", is_flag=True, help="Print everything once as plain text and exit. This is the default in a pipe.")
@connection_options
def command(every: float, once: bool, connect: Callable[[], Client]) -> None:
    """Watch queries, streams, classes, the policy and the workers.

    Sort and filter the lists, open a query, pause it, or choose another policy. The key ? lists all keys; q or Ctrl-C quits.
    """
    source = Server(connect)
    try:
        if once or not sys.stdout.isatty():
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            click.echo(plain(board(source.look()), source.server, width), nl=False)
            return
        source.client()  # a server that is not there is told before the screen is taken
        from millstream.client.top.screen import TopScreen

        TopScreen(source, every).run()
    finally:
        source.close()


class Server:
    """The server for `top`: connects, and connects again when the connection was lost."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None
        self.server = ""

    def client(self) -> Client:
        """Return an open connection. MillstreamError when none can be had."""
        if self._client is None or not self._client.is_open:
            self.close()
            self._client = self._connect()
            self._client.on_notice(None)  # it would write over the screen
            self.server = f"{self._client.server} at {self._client.address}"
        return self._client

    def look(self) -> Look:
        """Ask for everything that is shown. MillstreamError."""
        return look(self.execute, lambda: (time.monotonic(), dt.datetime.now(dt.UTC)))

    def execute(self, statement: str) -> Iterable[Mapping[str, Any]]:
        """Run a statement. MillstreamError."""
        answer = self.client().execute(statement)
        return typed_rows({column.name: column.type.name for column in answer.columns}, answer.rows)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()


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
