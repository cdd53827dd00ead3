"""`millstream stream`: create, list, show, drop."""

from __future__ import annotations

import click
from millstream.client.commands.common import connection_options, courtesy
from millstream.client.commands.objects import Connect, add_drop, add_list, add_show
from millstream.client.statements import name_of, quoted


@click.group(name="stream")
def command() -> None:
    """Create, list, show and drop streams."""


@command.command()
@click.argument("name")
@click.argument("columns")
@click.option("--timestamp-by", default=None, metavar="COLUMN", help="Column with the event time. Default: time of arrival.")
@click.option("--unit", type=click.Choice(["s", "ms", "us", "ns"]), default=None, help="Unit of an integer event time.")
@click.option("--delay", default=None, metavar="DURATION", help="How far out of order rows may arrive, for example '2 SECONDS'.")
@click.option("--idle", default=None, metavar="DURATION", help="Silence after which the stream no longer holds others back.")
@click.option("--durability", type=click.Choice(["none", "journal", "sync"]), default=None, help="What an acknowledgement promises.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the name is taken.")
@connection_options
def create(
    name: str,
    columns: str,
    timestamp_by: str | None,
    unit: str | None,
    delay: str | None,
    idle: str | None,
    durability: str | None,
    if_not_exists: bool,
    connect: Connect,
) -> None:
    """Create the stream NAME with COLUMNS, for example "ts TIMESTAMP, k BIGINT, v DOUBLE"."""
    if unit is not None and timestamp_by is None:
        raise click.UsageError("--unit needs --timestamp-by")
    parts = [
        f"CREATE STREAM {'IF NOT EXISTS ' if if_not_exists else ''}{quoted(name_of(name))} ({columns})",
        f"TIMESTAMP BY {quoted(name_of(timestamp_by))}" if timestamp_by else None,
        f"UNIT {unit}" if unit else None,
        f"DELAY {delay}" if delay else None,
        f"IDLE {idle}" if idle else None,
        f"DURABILITY {durability}" if durability else None,
    ]
    with connect() as client:
        client.execute(" ".join(part for part in parts if part))
        courtesy(f"stream {name} is ready")


add_list(command, "SHOW STREAMS", "List all streams.")
add_show(command, "STREAM")
add_drop(command, "STREAM", "Stop and drop the queries that read them, too.")
