"""Writes docs/commands.md, the reference of the command line, from the commands' own help.

    python -m tests.support.commands_page          # from the root; rewrites docs/commands.md

A test compares the page with what this would write.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from millstream.client.cli import cli

from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "commands.md"
CONNECTION = {"server", "token", "tls_ca"}  # the options of every command that talks to a server: described once
HEAD = """# The command line

`python -m tests.support.commands_page` writes this page from the help of the commands. `millstream COMMAND --help` prints the same.

Every command that talks to a server has these options:

"""


def page() -> str:
    """Return docs/commands.md as it should be."""
    root = click.Context(cli, info_name="millstream")
    commands = list(_commands(cli, root))
    return HEAD + _connection_options(commands) + "".join(_section(command, context) for command, context in commands)


def _commands(group: click.Group, parent: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command below a group with its context, a group before its own commands."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None, name
        context = click.Context(command, info_name=name, parent=parent)
        yield command, context
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def _connection_options(commands: list[tuple[click.Command, click.Context]]) -> str:
    for command, context in commands:
        options = [one for one in command.params if one.name in CONNECTION]
        if len(options) == len(CONNECTION):
            return _table(options, context)
    raise AssertionError("no command has the options of a connection")


def _section(command: click.Command, context: click.Context) -> str:
    path = context.command_path
    lines = [f"\n{'#' * (path.count(' ') + 1)} {path}\n\n"]
    if not isinstance(command, click.Group):
        usage = " ".join(command.collect_usage_pieces(context))
        lines.append(f"```\n{path} {usage}\n```\n\n")
    lines.append(f"{inspect.cleandoc(command.help or '').strip()}\n")
    if path == "millstream serve":
        lines.append("\n[Configuration](configuration.md) lists its options: every setting has a flag.\n")
        return "".join(lines)
    options = [one for one in command.params if isinstance(one, click.Option) and one.name not in CONNECTION]
    return "".join(lines) + (f"\n{_table(options, context)}" if options else "")


def _table(options: list[click.Parameter] | list[click.Option], context: click.Context) -> str:
    """Return a table of options as their help shows them."""
    rows = [record for record in (one.get_help_record(context) for one in options) if record is not None]
    cells = [(f"`{names}`".replace("|", "\\|"), meaning.replace("|", "\\|")) for names, meaning in rows]
    return "| option | meaning |\n| --- | --- |\n" + "".join(f"| {names} | {meaning} |\n" for names, meaning in cells)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
