"""`millstream advise`: which policy would have served best, and the switch to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from millstream.client.advice import OBJECTIVES, Advice, advise, follow, policy_in_force, told
from millstream.client.commands.common import TimeSpan, connection_options, progress, warn
from millstream.client.commands.record import recording_of, write_recording

if TYPE_CHECKING:
    from millstream.client.blocking import Client


@click.command()
@click.argument("recording", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--objective", type=click.Choice(OBJECTIVES), default="p99", show_default=True, help="What is to be good.")
@click.option("--last", type=TimeSpan(), help="Without RECORDING: the time before now to look at, as 10m. Default: all that is kept.")
@click.option("--policy", "policies", help="Try only these policies, separated by commas.")
@click.option("--present", help="The policy to compare with. Default: the one in force when it was recorded.")
@click.option("--minutes", type=click.FloatRange(0.01, 1_440), default=3.0, show_default=True, help="How long to try.")
@click.option("--processes", type=click.IntRange(1, 256), help="Runs at a time. Default: one for each core.")
@click.option("--apply", "applies", is_flag=True, help="Switch the server to the proposed policy.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of the output.")
@connection_options
def command(
    recording: Path | None,
    objective: str,
    last: float | None,
    policies: str | None,
    present: str | None,
    minutes: float,
    processes: int | None,
    applies: bool,
    form: str,
    connect: Callable[[], Client],
) -> None:
    """Advise on the scheduling policy.

    Simulates all policies and their options on the load of RECORDING, or on what arrived at the server in the last hour. Then it checks
    the best with other seeds and with 20% more load. It proposes a policy, or says to keep the one you have.
    """
    if recording is not None and last is not None:
        raise click.UsageError("--last is about a server, RECORDING is a file: give one of them")
    with TemporaryDirectory() as folder:
        if recording is None or applies:  # whether the server answers shows before minutes have passed
            with connect() as client:
                if recording is None:
                    recording = Path(folder) / "lately.recording"
                    write_recording(recording, client.execute(recording_of(last)))
                if applies:
                    policy_in_force(client)
        try:
            advice = advise(
                recording,
                objective=objective,
                present=present,
                policies=[one.strip() for one in (policies or "").split(",") if one.strip()],
                minutes=minutes,
                processes=processes or os.cpu_count() or 1,
                progress=_show,
            )
        finally:
            progress("")
    click.echo(json.dumps(advice) if form == "json" else "\n".join(told(advice)))
    if applies:
        with connect() as client:
            _apply(client, advice)


def _show(what: str, done: int, of: int) -> None:
    progress(f"{what}: run {done} of {of}")


def _apply(client: Client, advice: Advice) -> None:
    switched = follow(client, advice)
    if switched is None:
        warn("nothing was changed")
    else:
        now, before = switched
        warn(f"policy {now} is in use; to go back: millstream policy set {quote(before)}")
