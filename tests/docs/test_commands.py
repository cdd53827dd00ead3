"""The reference of the command line says what the commands' help says."""

from __future__ import annotations

import click
from millstream.client.cli import cli

from tests.support import commands_page


def test_the_page_of_commands_is_current() -> None:
    assert commands_page.PAGE.read_text("utf-8") == commands_page.page(), "run: python -m tests.support.commands_page"


def test_the_page_has_every_command_and_option() -> None:
    page = commands_page.PAGE.read_text("utf-8")
    root = click.Context(cli, info_name="millstream")
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        assert f"\n## millstream {name}\n" in page
        if name != "serve":
            missing = [option for one in command.params if isinstance(one, click.Option) for option in one.opts if option not in page]
            assert missing == [], name
