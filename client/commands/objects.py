"""The commands that streams and queries have alike: list all, show one, do something to each of several names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from millstream.client.commands.common import connection_options, courtesy, format_option, show_answer
from millstream.client.statements import name_of, quoted

if TYPE_CHECKING:
    from millstream.client.blocking import Client

Connect = Callable[[], "Client"]


def add_list(group: click.Group, statement: str, summary: str) -> None:
    """Add `list`: the table that `statement` answers with."""

    @group.command(name="list", help=summary)
    @format_option
    @connection_options
    def run(format: str | None, connect: Connect) -> None:
        with connect() as client:
            show_answer(client.execute(statement), format)


def add_show(group: click.Group, kind: str) -> None:
    """Add `show NAME`: what DESCRIBE says of one of `kind`."""

    @group.command(name="show", help=f"Show one {kind.lower()} with its columns.")
    @click.argument("name")
    @format_option
    @connection_options
    def run(name: str, format: str | None, connect: Connect) -> None:
        with connect() as client:
            show_answer(client.execute(f"DESCRIBE {kind} {quoted(name_of(name))}"), format)


def add_verb(group: click.Group, verb: str, kind: str, done: str, summary: str) -> None:
    """Add a command that does `verb` to each name given."""

    @group.command(name=verb.lower(), help=summary)
    @click.argument("names", nargs=-1, required=True)
    @connection_options
    def run(names: tuple[str, ...], connect: Connect) -> None:
        with connect() as client:
            for name in names:
                client.execute(f"{verb} {kind} {quoted(name_of(name))}")
                courtesy(f"{kind.lower()} {name} {done}")


def add_drop(group: click.Group, kind: str, cascade_help: str) -> None:
    """Add `drop NAME…`, with --cascade."""

    @group.command(name="drop", help=f"Drop {'queries' if kind == 'QUERY' else kind.lower() + 's'}.")
    @click.argument("names", nargs=-1, required=True)
    @click.option("--cascade", is_flag=True, help=cascade_help)
    @connection_options
    def run(names: tuple[str, ...], cascade: bool, connect: Connect) -> None:
        with connect() as client:
            for name in names:
                client.execute(f"DROP {kind} {quoted(name_of(name))}{' CASCADE' if cascade else ''}")
                courtesy(f"{kind.lower()} {name} is dropped")
