"""`millstream feed`: the options; everything heavy is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from millstream.client.commands.common import connection_options, time_format_option


@click.command("feed")
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--into",
    "into",
    multiple=True,
    required=True,
    metavar="STREAM",
    help="Stream to feed; 'STREAM WHERE condition' takes only the rows that match. May be repeated.",
)
@click.option("--rate", metavar="N/s", help="Rows per second of each stream: 500/s, 2k/s, 90/min.")
@click.option("--profile", metavar="STEPS", help="Rates over time, repeated: '40/s:150s,80/s:50s'.")
@click.option("--poisson", "kind", flag_value="poisson", help="Random arrivals at the rate (the default with --rate or --profile).")
@click.option("--fixed", "kind", flag_value="fixed", help="Evenly spaced arrivals at the rate.")
@click.option("--original", "kind", flag_value="original", help="Arrivals as recorded in the event-time column.")
@click.option("--max", "kind", flag_value="max", help="As fast as the server takes them (the default without a rate).")
@click.option("--speed", type=float, default=1.0, show_default=True, help="With --original: how many times faster than recorded.")
@click.option(
    "--burst", type=click.IntRange(min=1), default=1, show_default=True, help="Rows that arrive together. The rate stays the same."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random gaps: the same seed, the same arrivals.")
@click.option("--split-by", metavar="COLUMN", help="Make one stream, named STREAM_value, for each value of this column of the files.")
@click.option(
    "--map",
    "mapped",
    multiple=True,
    metavar="COLUMN=EXPRESSION",
    help="Fill a column of the stream by a Spark SQL expression over the file's columns.",
)
@time_format_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "jsonl", "parquet", "orc"]),
    help="Format of the files. Default: by their names.",
)
@click.option("--null", default="", help="Text that means NULL in CSV, in addition to an empty value.")
@click.option("--delimiter", help="Separator of the values in CSV.")
@click.option("--one-line", is_flag=True, help="Say that no CSV value spans lines, so that large files are read in parallel.")
@click.option("--zone", metavar="AREA/CITY", help="Time zone of times without a zone (default: the stream's).")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option(
    "--publishers",
    type=click.IntRange(1, 1_000),
    help="Publish from so many of Spark's tasks, which run at once, each with a connection of its own. Default: from this process.",
)
@click.option(
    "--in-order/--any-order",
    default=True,
    show_default=True,
    help="With --publishers: whether rows wait until all rows that are due before have been taken.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the feed's name and position. A feed that was stopped, or killed, continues after the last row that the server took.",
)
@click.option("--finish/--no-finish", default=True, show_default=True, help="End the streams after their last row.")
@connection_options
def feed(**options: Any) -> None:
    """Replay stored data (CSV, JSON lines, Parquet, ORC; any path Spark reads) as live streams.

    The same seed gives the same arrivals, for every Spark master and number of partitions. Ctrl-C stops the feed. With --state, the
    next run of the same command continues where this one stopped. Exits with 1 if it was stopped, or if rows came and none was accepted.
    """
    from millstream.feeder.errors import FeederError

    try:
        done = _run(options)
    except FeederError as error:
        raise click.ClickException(f"{error.message}; {error.hint}" if error.hint else error.message) from error
    if not done:
        raise SystemExit(1)


def _run(options: dict[str, Any]) -> bool:
    from contextlib import ExitStack

    from millstream.feeder import feed as feeding
    from millstream.feeder.options import arrival_rule, feed_plan, parse_into
    from millstream.feeder.pace import WallClock
    from millstream.feeder.progress import progress_bar, stage, summary
    from millstream.feeder.session import spark_session, stop_on_signal
    from millstream.feeder.sources import check_paths
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    rule = arrival_rule(options)
    into = parse_into(options["into"], split=options["split_by"] is not None)
    with ExitStack() as stack:
        client = stack.enter_context(options["connect"]())
        plan = feed_plan(client, options, into, rule)
        if options["master"].startswith("local"):
            check_paths(plan.paths)
        with stage(console, "starting Spark"):
            session = stack.enter_context(spark_session(options["master"], brief=rule.kind != "max"))
        with stage(console, "looking through the files"):
            if plan.split_by is not None:
                plan = feeding.targets_by_value(client, session, plan, into[0].stream)
            prepared = feeding.prepare(session, plan, options["state"], client)
        if prepared.job.unused:
            console.print(f"columns that the stream lacks are left out: {', '.join(prepared.job.unused)}", soft_wrap=True)
        left = sum(prepared.counted.rows) - sum(prepared.position.acked())
        look = stack.enter_context(progress_bar(console, left, WallClock().now_ns))
        given = {"finish": options["finish"], "state": options["state"], "look": look, "stopping": stop_on_signal}
        if plan.publishers:
            result = feeding.run_in_tasks(prepared, client, options["connect"], in_order=options["in_order"], **given)
        else:
            result = feeding.run(prepared, client, **given)
    for line in summary(result.tally, result.refused, complete=result.complete, paced=rule.kind != "max"):
        console.print(line, soft_wrap=True)
    if result.is_useless and options["finish"]:
        console.print("no row was accepted, so no stream was ended: mend the files or the command, and feed again", soft_wrap=True)
    return result.complete and not result.is_useless
