"""`millstream record`: what arrives at a running server, and how its queries were measured, into a file for `millstream simulate`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from millstream.client.commands.common import Seconds, TimeSpan, connection_options, courtesy, warn

if TYPE_CHECKING:
    from millstream.client.blocking import Client
    from millstream.client.connection import Answer


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--seconds", type=Seconds(0, min_open=True), help="How long to record. Default: until Ctrl-C.")
@click.option("--last", type=TimeSpan(), help="Record nothing: write what arrived so long ago until now, as 90s, 10m or 1h.")
@connection_options
def command(file: Path, seconds: float | None, last: float | None, connect: Callable[[], Client]) -> None:
    """Record a running server into FILE.

    FILE holds the queries with their measured costs and selectivities, and the times and numbers of rows on each stream. It holds no
    values of rows. `millstream simulate FILE --policy hnr,fcfs` then shows which policy would have been best.

    The server keeps counts of what arrived within the last hour (`recording_kept_s`). `--last 10m` writes them for the last ten minutes.
    """
    if last is not None and seconds is not None:
        raise click.UsageError("--last is about what was, --seconds about what comes: give one of them")
    with connect() as client:
        if last is None:
            record(client, "ARRIVALS", file, seconds)
        else:
            check_writable(file)
            write_recording(file, client.execute(recording_of(last)))


def recording_of(last_s: float | None) -> str:
    """Return the statement that answers with what arrived in the last so many seconds; None for all that is kept."""
    return "SHOW RECORDING" if last_s is None else f"SHOW RECORDING LAST {round(last_s * 1_000)} MILLISECONDS"


def record(client: Client, what: str, file: Path, seconds: float | None) -> None:
    """Record for a while and write the lines that the server gives; the file appears whole or not at all."""
    check_writable(file)
    client.execute(f"START RECORDING {what}")
    wait(seconds)
    write_recording(file, client.execute(f"STOP RECORDING {what}"))


def write_recording(file: Path, answer: Answer) -> None:
    """Write the lines of an answer, and tell of what it says beside them."""
    write_whole(file, "".join(f"{row['line']}\n" for row in answer))
    for notice in answer.notices:
        (warn if "cut" in notice else courtesy)(f"{file}: {notice}")


def wait(seconds: float | None) -> None:
    """Let time pass: so many seconds, or until Ctrl-C, which ends the recording and not the command."""
    try:
        if seconds is None and sys.stderr.isatty():
            click.echo("recording; press Ctrl-C to end it", err=True)
        threading.Event().wait(seconds)
    except KeyboardInterrupt:
        return


def check_writable(path: Path) -> None:
    """Raise OSError naming the file if it cannot be written, before work is done for it."""
    part = path.with_name(path.name + ".part")
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file beside its place and move it there."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
