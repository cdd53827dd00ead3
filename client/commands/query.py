"""`millstream query`: submit, start, stop, pause, resume, drop, list, show, explain."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

import click
from millstream.client.commands.common import connection_options, courtesy, format_option, show_answer, show_results
from millstream.client.queries import name_of, quoted, statement
from millstream.client.statements import first_word

if TYPE_CHECKING:
    from millstream.client.blocking import Client

SELECT_WORDS = ("SELECT", "WITH", "ISTREAM", "DSTREAM", "RSTREAM")
Connect = Callable[[], "Client"]


@click.group(name="query")
def command() -> None:
    """Submit, start, stop, drop, list, show and explain queries."""


@command.command()
@click.argument("text", required=False)
@click.option("--plan", type=click.File(encoding="utf-8"), default=None, metavar="FILE", help="A plan object (JSON) instead of text.")
@click.option("--name", default=None, help="Name of the query: it becomes durable. Without, its results are printed until Ctrl-C.")
@click.option("--class", "class_", default=None, help="Its class.")
@click.option("--qos", default=None, help="Its latency graph, for example '0ms:1, 50ms:0.8, 200ms:0'.")
@click.option("--start-at", type=click.DateTime(), default=None, help="When to start it (UTC).")
@click.option("--lifetime", type=click.FloatRange(min=0, min_open=True), default=None, metavar="SECONDS", help="How long it runs.")
@format_option
@connection_options
def submit(
    text: str | None,
    plan: IO[str] | None,
    name: str | None,
    class_: str | None,
    qos: str | None,
    start_at: dt.datetime | None,
    lifetime: float | None,
    format: str | None,
    connect: Connect,
) -> None:
    """Submit a continuous query, "SELECT …" or --plan FILE."""
    if (text is None) == (plan is None):
        raise click.UsageError("give a SELECT or --plan FILE, one of the two")
    query = text if plan is None else _read_plan(plan)
    options = {key: value for key, value in (("class", class_), ("qos", qos)) if value is not None}
    start = None if start_at is None else start_at.replace(tzinfo=dt.UTC)
    runs = None if lifetime is None else dt.timedelta(seconds=lifetime)
    with connect() as client:
        submitted = client.submit(query, name and name_of(name), start_at=start, lifetime=runs, **options)
        if name is not None or (isinstance(query, dict) and query.get("name")):
            courtesy(f"query {submitted.name} is running")
            return
        with submitted.subscribe(from_start=True) as subscription:
            show_results(subscription, format)


def _read_plan(file: IO[str]) -> dict[str, Any]:
    try:
        plan = json.load(file)
    except ValueError as error:
        raise click.ClickException(f"{file.name} is not JSON: {error}") from error
    if not isinstance(plan, dict):
        raise click.ClickException(f"{file.name} is not a plan object")
    return plan


def _verb_command(verb: str, done: str, summary: str) -> None:
    @command.command(name=verb.lower(), help=summary)
    @click.argument("names", nargs=-1, required=True)
    @connection_options
    def run(names: tuple[str, ...], connect: Connect) -> None:
        with connect() as client:
            for name in names:
                client.execute(statement(verb, name_of(name)))
                courtesy(f"query {name} {done}")


_verb_command("START", "is running", "Start stopped queries; they begin anew.")
_verb_command("STOP", "is stopped", "Stop queries and drop their state.")
_verb_command("PAUSE", "is paused", "Let queries stand still, keeping their state.")
_verb_command("RESUME", "goes on", "Let paused queries go on.")


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--cascade", is_flag=True, help="Drop what reads them too.")
@connection_options
def drop(names: tuple[str, ...], cascade: bool, connect: Connect) -> None:
    """Drop queries."""
    with connect() as client:
        for name in names:
            client.execute(statement("DROP", name_of(name), cascade=cascade))
            courtesy(f"query {name} is dropped")


@command.command(name="list")
@format_option
@connection_options
def list_(format: str | None, connect: Connect) -> None:
    """List all queries."""
    with connect() as client:
        show_answer(client.execute("SHOW QUERIES"), format)


@command.command()
@click.argument("name")
@format_option
@connection_options
def show(name: str, format: str | None, connect: Connect) -> None:
    """Show one query."""
    with connect() as client:
        show_answer(client.execute(f"DESCRIBE {quoted(name_of(name))}"), format)


@command.command()
@click.argument("query")
@click.option("--semantics", "what", flag_value="SEMANTICS", default=None, help="What its answers mean.")
@click.option("--analyze", "what", flag_value="ANALYZE", help="Its operators with what they cost and let through.")
@click.option("--qos", "what", flag_value="QOS", help="Its promises and how they are kept.")
@format_option
@connection_options
def explain(query: str, what: str | None, format: str | None, connect: Connect) -> None:
    """Explain a query by name, or a SELECT. With --format json: as a plan object."""
    target = (
        query
        if first_word(query) in ("SELECT", "WITH", "ISTREAM", "DSTREAM", "RSTREAM") and " " in query.strip()
        else quoted(name_of(query))
    )
    with connect() as client:
        answer = client.execute(" ".join(word for word in ("EXPLAIN", what, target) if word))
        if format == "json" and what is None and isinstance(answer.info.get("plan"), dict):
            click.echo(json.dumps(answer.info["plan"], indent=2, ensure_ascii=False))
        else:
            show_answer(answer, format)
