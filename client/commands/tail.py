"""`millstream tail`: the results of a query as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from millstream.client.commands.common import connection_options, courtesy, format_option, show_results
from millstream.client.statements import name_of

if TYPE_CHECKING:
    from millstream.client.blocking import Client


@click.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=0), default=None, metavar="N", help="Stop after N rows.")
@click.option("--from-start", is_flag=True, help="Begin with the oldest result that the server keeps.")
@click.option("--resume", "resume_token", default=None, metavar="TOKEN", help="Continue after the result with this token.")
@click.option("--follow", is_flag=True, help="If the connection is lost, connect again and continue. Each result comes once.")
@click.option("--tokens", is_flag=True, help="Add the column resume_token: the last row of each batch has a token for --resume.")
@click.option(
    "--receipts", is_flag=True, help="Add rows_seen, rows_shed and share_seen: what share of its input each result saw (docs/overload.md)."
)
@format_option
@connection_options
def command(
    query: str,
    limit: int | None,
    from_start: bool,
    resume_token: str | None,
    follow: bool,
    tokens: bool,
    receipts: bool,
    format: str | None,
    connect: Callable[[], Client],
) -> None:
    """Print the results of QUERY as they arrive, until it ends or you press Ctrl-C. The query keeps running."""
    with (
        connect() as client,
        client.subscribe(name_of(query), from_start=from_start, resume_token=resume_token, reconnect=follow) as subscription,
    ):
        if not from_start and resume_token is None:
            courtesy("results from now on (with --from-start those that are kept, too); Ctrl-C ends")
        show_results(subscription, format, limit, receipts=receipts, tokens=tokens)
