"""`millstream spark`: a script's queries over stored data, or over files as they come, on Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from millstream.server.run.run_command import map_option, time_format_option


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Split each NAME=PATH at the first equals sign; a name stands once."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise click.BadParameter(f"{value} is not of the form NAME=PATH")
        if name in found:
            raise click.BadParameter(f"{name} is given twice; a folder or a pattern such as 'rows/*.parquet' means several files")
        found[name] = path
    return found


LOOK_S = 1  # between two looks whether Ctrl-C was pressed
_SCRIPT = click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_MASTER = click.option("--master", default="local[*]", show_default=True, help="Spark master.")
_PARTITIONS = click.option("--partitions", type=click.IntRange(min=1), help="Buckets of keys behind a shuffle. Default: as many as slots.")


@click.group("spark")
def spark() -> None:
    """Run a script's queries on Spark: the same rows as `millstream run` gives."""


@spark.command("run")
@_SCRIPT
@click.option("--input", "inputs", metavar="STREAM=PATH", multiple=True, callback=_pairs, help="A file, a folder or a pattern of files.")
@click.option(
    "--output", "outputs", metavar="QUERY=FOLDER", multiple=True, callback=_pairs, help="Write a query's rows there, as Parquet files."
)
@map_option
@time_format_option
@click.option("--format", "format_", type=click.Choice(["table", "csv", "json", "arrow"]), default="table", show_default=True)
@_PARTITIONS
@_MASTER
def run_command(
    script: Path,
    inputs: dict[str, str],
    outputs: dict[str, str],
    mapped: tuple[str, ...],
    time_formats: tuple[str, ...],
    format_: str,
    partitions: int | None,
    master: str,
) -> None:
    """Run SCRIPT over stored data, once.

    The rows of queries without --output go to standard output, in the order of `millstream run`; they must fit into memory.
    """
    from millstream.feeder.spark.run import SparkScript
    from millstream.server.run.output import write_results

    with _told(), _session(master) as session, _told():  # Spark's own words are gone with its session
        found = SparkScript(session, _text(script), inputs, partitions, mapped, time_formats)
        names = [q.name for q in found.script.queries]
        strange = next((name for name in outputs if name not in names), None)
        if strange is not None:
            said = f"the queries are {', '.join(names)}" if names else f"{found.script.whole}, so all rows go to standard output"
            raise click.ClickException(f"there is no query {strange}; {said}")
        for number, rows in found.write({n: outputs[name] for n, name in enumerate(names) if name in outputs}):
            name = names[number]
            click.echo(f"{name}: {rows} row{'' if rows == 1 else 's'} in {outputs[name]}", err=True)
        results = found.tables(leave_out=outputs)
        for message in dict.fromkeys(found.messages):
            click.echo(message, err=True)
        write_results(results, format_, sys.stdout.buffer)
        sys.stdout.buffer.flush()


@spark.command("stream")
@_SCRIPT
@click.option(
    "--source", "sources", metavar="STREAM=FOLDER", multiple=True, required=True, callback=_pairs, help="A folder in which files arrive."
)
@click.option(
    "--output",
    "outputs",
    metavar="QUERY=FOLDER",
    multiple=True,
    required=True,
    callback=_pairs,
    help="Where a query's rows go.",
)
@map_option
@time_format_option
@click.option("--checkpoint", required=True, metavar="FOLDER", help="Where the run notes how far it is; the same command goes on.")
@click.option("--once", is_flag=True, help="Stop when all files that are there have been read.")
@click.option("--finish", is_flag=True, help="As --once, and then end the streams: open windows give their last results.")
@_PARTITIONS
@_MASTER
def stream_command(
    script: Path,
    sources: dict[str, str],
    outputs: dict[str, str],
    mapped: tuple[str, ...],
    time_formats: tuple[str, ...],
    checkpoint: str,
    once: bool,
    finish: bool,
    partitions: int | None,
    master: str,
) -> None:
    """Run SCRIPT over files as they arrive, until Ctrl-C.

    Each result is written once, also when the command is killed and run again. A file must be moved into its folder whole. The number of
    partitions is that of the first run.
    """
    from millstream.feeder.session import stop_on_signal
    from millstream.feeder.spark.stream import StreamRun

    with _told(), _session(master) as session, _told():  # Spark's own words are gone with its session
        run = StreamRun(
            session, _text(script), sources, outputs, checkpoint, partitions, mapped, time_formats, tell=partial(click.echo, err=True)
        )
        stopped = threading.Event()
        with stop_on_signal(stopped):  # in the place of Spark's own, which breaks off what it is just saying to Java
            query = run.start(once=once or finish)
            ended = f"all files of {', '.join(sources.values())} have been read"
            if not (once or finish):
                click.echo(f"reading the files that come to {', '.join(sources.values())}, until Ctrl-C", err=True)
            while not query.awaitTermination(LOOK_S) and not stopped.is_set():
                pass
            if stopped.is_set():
                query.stop()
                ended = "stopped; the same command goes on from here"
            elif finish:
                run.end()
                ended += ", and the streams have ended"
        click.echo(ended, err=True)


@spark.command("explain")
@_SCRIPT
def explain_command(script: Path) -> None:
    """Show how the queries of SCRIPT are cut: which operators run anywhere, which by key, which in one place, and why."""
    from millstream.feeder.spark.explain import explained

    with _told():
        for line in explained(_text(script)):
            click.echo(line)


def _text(script: Path) -> str:
    try:
        return script.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{script} is not UTF-8 text (byte {error.start})") from error


@contextmanager
def _session(master: str) -> Iterator[Any]:
    from millstream.feeder.progress import stage
    from millstream.feeder.session import spark_session
    from rich.console import Console

    with ExitStack() as stack:
        with stage(Console(stderr=True, highlight=False), "starting Spark"):
            session = stack.enter_context(spark_session(master))
        yield session


@contextmanager
def _told() -> Iterator[None]:
    """Say what went wrong, in the driver or in a task, in one sentence."""
    from millstream.engine.data.errors import ColumnMissing, EngineError
    from millstream.feeder.errors import FeederError, what_failed
    from millstream.protocol.values.names import MAP_HINT

    try:
        yield
    except FeederError as error:
        raise click.ClickException(f"{error.message}; {error.hint}" if error.hint else error.message) from error
    except ColumnMissing as error:
        raise click.ClickException(f"{error}; {MAP_HINT}") from error
    except EngineError as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:
        sentence = what_failed(error)
        if sentence is None:
            raise
        raise click.ClickException(sentence) from error
