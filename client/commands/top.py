"""`millstream top`: what the server does, as it does it."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from millstream.client.commands.common import Seconds, connection_options, in_force
from millstream.client.errors import MillstreamError
from millstream.client.render import WholeTable

if TYPE_CHECKING:
    from millstream.client.blocking import Client

PARTS = (
    ("queries", "SHOW QUERIES"), ("streams", "SHOW STREAMS"), ("classes", "SHOW CLASSES"), ("policy", "SHOW POLICIES"),
    ("scheduler", "SHOW SCHEDULER"), ("decisions", "SHOW DECISIONS"),
)  # fmt: skip


@click.command()
@click.option("--every", type=Seconds(0.1), default=1.0, show_default=True, metavar="SECONDS", help="How often to look.")
@click.option("--once", is_flag=True, help="Look once and exit. This is the default in a pipe.")
@connection_options
def command(every: float, once: bool, connect: Callable[[], Client]) -> None:
    """Watch queries, queues, latency, policy and shedding. Ctrl-C leaves."""
    with connect() as client:
        if once or not sys.stdout.isatty():
            click.echo(snapshot(client), nl=False)
            return
        try:
            _watch(client, every)
        except KeyboardInterrupt:
            return


def _watch(client: Client, every: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(Text(snapshot(client)), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(Text(snapshot(client)), refresh=True)


def snapshot(client: Client) -> str:
    """Return all tables as text. A part that this role may not see is left out."""
    parts = [f"{client.server}\n"]
    for title, statement in PARTS:
        try:
            answer = client.execute(statement)
        except MillstreamError as error:
            if error.code not in ("forbidden", "unsupported"):
                raise
            continue
        table = answer.to_arrow()
        if title == "policy":
            table = in_force(table)
        out = io.BytesIO()
        whole = WholeTable(table.schema, out, colour=False)
        for batch in table.to_batches():
            whole.batch(batch)
        whole.finish()
        parts.append(f"\n{title.upper()}\n{out.getvalue().decode()}")
    return "".join(parts)
