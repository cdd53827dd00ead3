"""`millstream query`: submit, start, stop, pause, resume, drop, list, show, explain, fetch."""

from __future__ import annotations

import datetime as dt
import json
from typing import IO, Any

import click
from millstream.client.commands.common import Seconds, connection_options, courtesy, format_option, show_answer, show_results, text_of
from millstream.client.commands.objects import Connect, add_drop, add_list, add_show, add_verb
from millstream.client.statements import first_word, name_of, quoted

SELECT_WORDS = ("SELECT", "WITH", "ISTREAM", "DSTREAM", "RSTREAM")


@click.group(name="query")
def command() -> None:
    """Submit, start, stop, drop, list, show, explain and fetch queries."""


@command.command()
@click.argument("text", required=False)
@click.option("--plan", type=click.File(encoding="utf-8"), default=None, metavar="FILE", help="A plan object (JSON) instead of text.")
@click.option(
    "--name", default=None, help="Name of the query, which makes it durable. Without a name, its results are printed until Ctrl-C."
)
@click.option("--class", "class_", default=None, help="Class of the query.")
@click.option("--qos", default=None, help="Latency graph of the query, for example '0ms:1, 50ms:0.8, 200ms:0'.")
@click.option("--start-at", type=click.DateTime(), default=None, help="When to start the query (UTC).")
@click.option("--lifetime", type=Seconds(0, min_open=True), default=None, metavar="SECONDS", help="How long the query runs.")
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
        raise click.UsageError("give either a SELECT or --plan FILE")
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
        plan = json.loads(text_of(file))
    except ValueError as error:
        raise click.ClickException(f"{file.name} is not JSON: {error}") from error
    if not isinstance(plan, dict):
        raise click.ClickException(f"{file.name} is not a plan object, as millstream query explain --format json prints it")
    return plan


add_verb(command, "START", "QUERY", "is running", "Start stopped queries from the beginning.")
add_verb(command, "STOP", "QUERY", "is stopped", "Stop queries and drop their state.")
add_verb(command, "PAUSE", "QUERY", "is paused", "Pause queries and keep their state.")
add_verb(command, "RESUME", "QUERY", "is running again", "Resume paused queries.")
add_drop(command, "QUERY", "Also drop the queries that read them.")
add_list(command, "SHOW QUERIES", "List all queries.")
add_show(command, "QUERY")


@command.command()
@click.argument("query")
@format_option
@connection_options
def fetch(query: str, format: str | None, connect: Connect) -> None:
    """Print the contents of the open windows of a query, or the answer of a SELECT over the rows that the server holds."""
    with connect() as client:
        show_answer(client.execute(f"FETCH {query if _is_select(query) else 'QUERY ' + quoted(name_of(query))}"), format)


@command.command()
@click.argument("query")
@click.option("--semantics", "what", flag_value="SEMANTICS", default=None, help="Show what the answers mean.")
@click.option("--analyze", "what", flag_value="ANALYZE", help="Show the operators with their cost and selectivity.")
@click.option("--qos", "what", flag_value="QOS", help="Show the promises and whether they are kept.")
@format_option
@connection_options
def explain(query: str, what: str | None, format: str | None, connect: Connect) -> None:
    """Explain a query by name, or a SELECT. With --format json, print a plan object."""
    target = query if _is_select(query) else quoted(name_of(query))
    with connect() as client:
        answer = client.execute(" ".join(word for word in ("EXPLAIN", what, target) if word))
        if format == "json" and what is None and isinstance(answer.info.get("plan"), dict):
            click.echo(json.dumps(answer.info["plan"], indent=2, ensure_ascii=False))
        else:
            show_answer(answer, format)


def _is_select(text: str) -> bool:
    """Whether what was typed is a SELECT rather than a name."""
    return first_word(text) in SELECT_WORDS and " " in text.strip()
