"""`millstream policy`: list, show, set, trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from millstream.client.commands.common import Seconds, connection_options, courtesy, format_option, in_force, show_answer, show_table, warn
from millstream.client.commands.record import record
from millstream.client.errors import MillstreamError
from millstream.client.statements import policy_statement

if TYPE_CHECKING:
    from millstream.client.blocking import Client

Connect = Callable[[], "Client"]


@click.group(name="policy")
def command() -> None:
    """List, show, set and trace the scheduling policy."""


@command.command(name="list")
@format_option
@connection_options
def list_(format: str | None, connect: Connect) -> None:
    """List all policies."""
    with connect() as client:
        show_answer(client.execute("SHOW POLICIES"), format)


@command.command()
@click.argument("name", required=False)
@format_option
@connection_options
def show(name: str | None, format: str | None, connect: Connect) -> None:
    """Show one policy; without NAME, the one in use."""
    import pyarrow.compute as pc

    with connect() as client:
        answer = client.execute("SHOW POLICIES")
    table = answer.to_arrow()
    if name is not None:
        rows = table.filter(pc.equal(table["name"], name))
        if not rows.num_rows:
            raise MillstreamError("unknown_name", f"there is no policy {name}", "millstream policy list shows all policies")
    else:
        rows = in_force(table)
    show_table(rows, format)
    for notice in answer.notices:
        warn(notice)


@command.command(name="set")
@click.argument("name")
@click.option("--set", "--option", "options", multiple=True, metavar="NAME=VALUE", help="A setting of the policy. May be repeated.")
@connection_options
def set_(name: str, options: tuple[str, ...], connect: Connect) -> None:
    """Use policy NAME from now on.

    Settings may also follow the name: `bsd-log:clusters=12,level=operator`.
    """
    try:
        statement = policy_statement(name, options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with connect() as client:
        client.execute(statement)
        courtesy(f"policy {name.partition(':')[0]} is in use")


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--seconds", type=Seconds(0, min_open=True), help="How long to record. Default: until Ctrl-C.")
@connection_options
def trace(file: Path, seconds: float | None, connect: Connect) -> None:
    """Write all decisions and runs from now on into FILE, for a trace viewer.

    FILE is in the trace-event format (chrome://tracing, Perfetto): orders, the operators that they ran, arrivals, and changes of policy.
    """
    with connect() as client:
        record(client, "DECISIONS", file, seconds)
