"""`millstream demo`: the options; everything heavy is imported when it runs."""

from __future__ import annotations

import signal
import sys

import click
from millstream.client.commands.common import Seconds


@click.command("demo")
@click.option("--policy", metavar="NAME", help="Scheduling policy of the server.")
@click.option("--workers", type=click.IntRange(min=0), help="Workers of the server.")
@click.option("--seconds", type=Seconds(1), default=20.0, show_default=True, help="How long the month lasts.")
@click.option("--seed", type=int, default=2013, show_default=True, help="Seed of the random arrivals.")
@click.option("--query", "names", multiple=True, metavar="NAME", help="Run this query only (may be given several times).")
@click.option(
    "--stay",
    is_flag=True,
    help="Show it in a browser as well, and go on until Ctrl-C, with load from a slider there.",
)
def demo(policy: str | None, workers: int | None, seconds: float, seed: int, names: tuple[str, ...], stay: bool) -> None:
    """Start a server, replay a month of flights into it through Spark, show thirteen queries live, and check every answer.

    Exit code 0 only if every answer equals DuckDB's over the same files and every row is accounted for.
    """
    from millstream.feeder.demo.queries import QUERIES
    from millstream.feeder.demo.show import Settings, show
    from millstream.feeder.errors import FeederError
    from rich.console import Console

    known = {query.name: query for query in QUERIES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.UsageError(f"there is no query {unknown[0]}; there are {', '.join(known)}")
    chosen = tuple(known[name] for name in names) or QUERIES
    # Ended from outside, the demo still ends its daemon and Spark; while rows flow the feed takes the signal itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        right = show(Settings(chosen, policy, workers, seconds, seed, stay), Console(highlight=False, soft_wrap=True))
    except FeederError as error:
        raise click.ClickException(f"{error.message}; {error.hint}" if error.hint else error.message) from error
    if not right:
        raise SystemExit(1)
