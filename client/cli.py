"""The command `millstream`: finds its subcommands in all folders without importing them.

Each folder declares its subcommands in the entry point group `millstream.commands`. Their one-line help is in the table below as
well, so that `millstream --help` answers without importing any of them; a test compares the two.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from importlib import import_module
from typing import Any

import click
from millstream.client.installed import own_entry

GROUP = "millstream.commands"
GC_OBJECTS_AT_START = 250_000  # twice what starting makes, nearly all of which stays: to look through it is a tenth of the time
SUMMARY_LENGTH_MAX = 200

# In the order in which the help lists them.
SUMMARIES = {
    "serve": "Start the server.",
    "sql": "Run statements, or talk to the server in a shell.",
    "stream": "Create, list, show and drop streams.",
    "query": "Submit, start, stop, drop, list, show, explain and fetch queries.",
    "tail": "Print the results of a query as they arrive.",
    "publish": "Send rows from a file or standard input to a stream.",
    "feed": "Replay stored data into a stream with Spark.",
    "policy": "List, show, set and trace the scheduling policy.",
    "top": "Watch queries, queues, latency, policy and shedding.",
    "console": "Show a server in a browser, until SIGTERM or Ctrl-C: what runs, how fast, under which policy.",
    "record": "Record a running server into FILE.",
    "advise": "Advise on the scheduling policy.",
    "connect": "Run the sources and sinks that CREATE SOURCE and CREATE SINK have made, until it is stopped.",
    "gateway": "Let clients of PostgreSQL and of HTTP speak to a server.",
    "run": "Run a script on files, without a server.",
    "spark": "Run a script's queries on Spark.",
    "journal": "Check, show and salvage the journal of a data directory, without a server.",
    "simulate": "Simulate a workload or a recording under policies.",
    "experiment": "List and run the experiments.",
    "bench": "Run a benchmark.",
    "demo": "Replay a month of flights through thirteen queries, and check every answer.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, without importing anything."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None if there is none of that name."""
        place = own_entry(GROUP, cmd_name) or _entry_of_others(cmd_name)
        if place is not None:
            module, _, name = place.partition(":")
            command = getattr(import_module(module), name)
            if isinstance(command, click.Group):
                for one in command.commands.values():  # in a list of commands whole sentences, where click would cut them off
                    one.short_help = one.get_short_help_str(limit=SUMMARY_LENGTH_MAX)
            if isinstance(command, click.Command):
                return command
            raise click.ClickException(f"the entry point {place} of command {cmd_name} is not a command")
        if cmd_name in SUMMARIES:
            raise click.ClickException(f"the command {cmd_name} is not part of this installation")
        return None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names. UsageError, with the nearest name, if it names none."""
        name = args[0]
        if not name.startswith("-") and name not in SUMMARIES and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            near = get_close_matches(name, SUMMARIES, n=1)
            raise click.UsageError(f"No such command '{name}'.{f' Did you mean {near[0]}?' if near else ''}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. When the reader of our output has left, that is the end of it, not an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Nothing may be written any more, also not at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


def _entry_of_others(name: str) -> str | None:
    """Return the `module:object` of a command that another distribution declares, None if none does."""
    from importlib.metadata import entry_points

    return next((entry.value for entry in entry_points(group=GROUP, name=name)), None)


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"millstream {version('millstream')}")
        ctx.exit()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Print the version and exit.")
def cli() -> None:
    """A data stream management system: continuous queries over streams, scheduled by the policy you choose.

    Start with "millstream demo", or with "millstream serve" here and "millstream sql" in another terminal.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit: 0 done, 1 failed, 2 wrong usage. Every error is one line on stderr."""
    code = run(arguments)
    # The interpreter would look for rings once more before it lets everything go: a quarter of the time of a small script.
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    from millstream.client.errors import MillstreamError

    gc.set_threshold(GC_OBJECTS_AT_START, *gc.get_threshold()[1:])
    try:
        result = cli.main(args=arguments, prog_name="millstream", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.UsageError as error:
        if error.ctx is not None:
            click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} {error.ctx.help_option_names[0]}' for help.\n", err=True)
        return complain(_plainer(error.format_message()), error.exit_code)
    except click.ClickException as error:
        return complain(error.format_message(), error.exit_code)
    except MillstreamError as error:
        return complain(str(error))
    except (click.Abort, KeyboardInterrupt):
        return 1
    except Exception as error:
        if os.environ.get("MILLSTREAM_TRACEBACK"):
            raise
        if isinstance(error, OSError) and error.strerror:  # a file that was named, or a full disk behind the output
            return complain(f"{error.filename or 'cannot write'}: {error.strerror}")
        return complain(f"{type(error).__name__}: {error}; a fault of millstream itself, MILLSTREAM_TRACEBACK=1 shows where")
    return result if isinstance(result, int) else 0


def _plainer(message: str) -> str:
    """Say in plain words what click calls a float or an integer range."""
    message = re.sub(r"is not a valid integer( range)?\.", "is not a whole number.", message)
    return re.sub(r"is not a valid float( range)?\.", "is not a number.", message)


def complain(text: str, exit_code: int = 1) -> int:
    """Print an error on stderr, in the one form that all commands have, and return the exit code."""
    click.echo(f"error: {text}", err=True)
    return exit_code
