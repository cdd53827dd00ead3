"""`millstream sql`: statements from the command line, a file, standard input, or a shell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from millstream.client.commands.common import (
    connection_options,
    format_option,
    output,
    show_answer,
    show_results,
    stop_following,
    subscribed,
    text_of,
    warn,
)
from millstream.client.errors import MillstreamError
from millstream.client.statements import split_script

if TYPE_CHECKING:
    from millstream.client.blocking import BlockingSubscription, Client


@click.command()
@click.option("-c", "--command", "texts", multiple=True, metavar="STATEMENT", help="Run these statements and exit. May be repeated.")
@click.option("-f", "--file", "file", type=click.File(encoding="utf-8"), default=None, help="Run the statements of a file and exit.")
@click.option("--follow", is_flag=True, help="Also print the results of each CREATE QUERY, until it ends or you press Ctrl-C.")
@format_option
@connection_options
def command(texts: tuple[str, ...], file: Any, follow: bool, format: str | None, connect: Callable[[], Client]) -> None:
    """Run statements, or talk to the server in a shell.

    Prints the results of a SELECT until its inputs end or you press Ctrl-C. Prints several SELECTs of a script one after the other, each
    under a line with its name. The queries of CREATE QUERY keep running on the server. The command prints their results only with --follow.
    """
    if texts and file is not None:
        raise click.UsageError("give -c or -f, not both")
    if not texts and file is None and sys.stdin.isatty():
        if follow:
            raise click.UsageError("--follow goes with -c or -f")
        from millstream.client.commands.shell import run_shell

        with connect() as client:
            run_shell(client, format)
        return
    scripts = texts or (text_of(file or sys.stdin),)
    with connect() as client:
        run_script(client, [statement for script in scripts for statement in split_script(script)], format, durable_too=follow)


def run_script(client: Client, statements: Sequence[str], format: str | None, *, durable_too: bool = False) -> None:
    """Run all statements in order, then print the results of each SELECT; with `durable_too` of each CREATE QUERY, too."""
    running: list[tuple[str, BlockingSubscription, bool]] = []
    bare = 0
    for number, statement in enumerate(statements, 1):
        try:
            answer = client.execute(statement)
        except MillstreamError:
            if number < len(statements):
                warn(f"statement {number} of {len(statements)} failed; those after it did not run")
            raise
        if answer.continuous and answer.query is not None and (durable_too or not answer.durable):
            bare += not answer.durable
            name = answer.query.name if answer.durable else f"q{bare}"
            running.append((name, subscribed(client, answer), answer.durable))
        else:
            show_answer(answer, format)
    for name, subscription, durable in running:
        if len(running) > 1:
            output().write(f"-- {name}\n".encode())
        show_results(subscription, format)
        if not durable:
            stop_following(client, subscription)
