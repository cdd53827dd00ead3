"""`millstream run`: options and exit codes; the engine is imported when it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from millstream.scheduler.names import SHARING_DEFAULT, SHARINGS


def _stream_files(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, Path | list[Path]], ...]:
    """Split each STREAM=FILE at the first equals sign, and find the files; there must be some."""
    from millstream.engine.ingest.readers import files_at

    pairs: list[tuple[str, Path | list[Path]]] = []
    for value in values:
        stream, equals, file = value.partition("=")
        if not equals or not stream or not file:
            raise click.BadParameter(f"{value} is not of the form STREAM=FILE")
        found = files_at(file)
        if not found:
            raise click.BadParameter(f"there are no files at {file}; give a file, a folder or a pattern such as 'rows/*.csv'")
        pairs.append((stream, found[0] if len(found) == 1 else found))
    return tuple(pairs)


map_option = click.option(
    "--map",
    "mapped",
    metavar="COLUMN=FILE_COLUMN",
    multiple=True,
    help="Fill a column from one of another name in the file. STREAM.COLUMN means one stream's. May be repeated.",
)
time_format_option = click.option(
    "--time-format",
    "time_formats",
    metavar="[COLUMN=]FORMAT",
    multiple=True,
    help="How the files write times: '%d.%m.%Y %H:%M:%S', or s, ms, us, ns for numbers. Without COLUMN: in all TIMESTAMP columns.",
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("run")
@click.argument("script", type=_FILE)
@click.option(
    "--input",
    "inputs",
    metavar="STREAM=FILE",
    multiple=True,
    callback=_stream_files,
    help="Replay FILE, or the files of a folder or pattern by name, into STREAM. Several inputs are merged by event time.",
)
@map_option
@time_format_option
@click.option("--timeline", type=_FILE, help="File of rows, advances of time, ends and cancels, one JSON object a line.")
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json", "arrow"]), default="table", show_default=True)
@click.option("--train", type=click.IntRange(min=1), help="Rows read at a time. The answer does not depend on it.")
@click.option("--policy", default="fcfs", show_default=True, help="Scheduling policy, NAME or NAME:option=value,…; auto is fcfs.")
@click.option("--sharing", type=click.Choice(SHARINGS), default=SHARING_DEFAULT, show_default=True, help="How similar queries share work.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Orders that run at a time.")
def command(
    script: Path,
    inputs: tuple[tuple[str, Path | list[Path]], ...],
    mapped: tuple[str, ...],
    time_formats: tuple[str, ...],
    timeline: Path | None,
    format_: str,
    train: int | None,
    policy: str,
    sharing: str,
    workers: int,
) -> None:
    """Run SCRIPT over files, without a server, in virtual time.

    The rows of every SELECT go to standard output, messages to standard error. Exits with 1 if rows came for a stream and none was
    accepted.
    """
    from millstream.server.lean import keep_pandas_out

    keep_pandas_out()
    from millstream.server.run.embedded import Replay, run_replay
    from millstream.server.run.output import write_results

    try:
        text = script.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{script} is not UTF-8 text (byte {error.start})") from error
    outcomes = run_replay(Replay(text, inputs, timeline, policy, workers, train, sharing=sharing, maps=mapped, time_formats=time_formats))
    for message in outcomes.messages:
        click.echo(message, err=True)
    write_results(outcomes.results, format_, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    if outcomes.failure is not None:
        raise click.ClickException(outcomes.failure)
