"""`millstream serve`: the options, made from the settings' definitions; everything heavy is imported when it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import click
from millstream.server.config import Config, flag_of, load_config, setting_fields, variable_of

CONFIG_FILE = "millstream.toml"
CONFIG_VARIABLE = "MILLSTREAM_CONFIG"
METAVARS = {str: "TEXT", int: "INTEGER", float: "NUMBER"}


def _with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each setting."""
    kinds = get_type_hints(Config)
    for definition in reversed(setting_fields()):
        flag, kind = flag_of(definition.name), kinds[definition.name]
        default = definition.default if kind is not bool else flag[2:] if definition.default else f"no-{flag[2:]}"
        known = "" if default == "" else f"default: {default}; "
        shown = f"{definition.metadata['explanation']} [{known}{variable_of(definition.name)}]"
        if kind is bool:
            command = click.option(f"{flag}/--no-{flag[2:]}", definition.name, default=None, help=shown)(command)
        else:
            command = click.option(flag, definition.name, metavar=METAVARS[kind], default=None, help=shown)(command)
    return command


@click.command("serve")
@click.option("--config", "config_file", type=click.Path(path_type=Path), default=None, help=f"Settings file [{CONFIG_VARIABLE}].")
@_with_settings
def command(config_file: Path | None, **flags: Any) -> None:
    """Run the server until SIGTERM or Ctrl-C."""
    from millstream.server.errors import ServerError
    from millstream.server.lean import keep_pandas_out, share_arenas

    keep_pandas_out()
    share_arenas()
    from millstream.scheduler.errors import SchedulerError
    from millstream.server.live import serve

    try:
        serve(load_config(flags, os.environ, _settings_file(config_file)))
    except (ServerError, SchedulerError) as error:
        raise click.ClickException(str(error)) from error


def _settings_file(given: Path | None) -> Path | None:
    """Return the settings file: the one given, else that of the environment, else millstream.toml here if there is one."""
    if given is not None:
        return given
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    here = Path(CONFIG_FILE)
    return here if here.is_file() else None
