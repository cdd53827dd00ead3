"""What the client's commands share: options to reach the server, formats, and where messages go.

Results go to stdout. Messages go to stderr; mere courtesy ("stream created") only when stdout is a terminal, so that a pipe is quiet,
losses and refusals always.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from millstream.client.render import BRIEF_WIDTH, EXPLANATION, FORMATS, Renderer, brief, renderer_for
from millstream.client.statements import query_statement

if TYPE_CHECKING:
    from ssl import SSLContext

    import pyarrow as pa
    from millstream.client.blocking import BlockingSubscription, Client
    from millstream.client.connection import Answer

SECONDS_MAX = 1e9
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
START_S_MAX = 10.0  # a busy machine may take this long to load the server
ASK_AGAIN_S = 0.1
TOLD_ALWAYS = ("disconnected", "resumed", "shed")  # codes of notices that a pipe must not miss
Command = TypeVar("Command", bound=Callable[..., Any])
if TYPE_CHECKING:
    Parameter = click.ParamType[float]  # before click 8.5 it takes no type
else:
    Parameter = click.ParamType


class Seconds(Parameter):
    """A time in s: a number from `min` on, neither NaN nor beyond what a clock can tell. Help does not tell the bounds."""

    name = "seconds"

    def __init__(self, min: float, min_open: bool = False) -> None:
        self._range = click.FloatRange(min, SECONDS_MAX, min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; BadParameter when it is none that will do."""
        if (found := self._range.convert(value, param, ctx)) != found:  # NaN is within any bounds
            self.fail(f"{value} is not a number", param, ctx)
        return found


class TimeSpan(Seconds):
    """A time as people write it: 90s, 10m, 1h, 2d; a number by itself is of seconds. At least a ms."""

    name = "time"

    def __init__(self) -> None:
        super().__init__(0.001)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return it in s; BadParameter when it is none."""
        text = str(value).strip().lower()
        unit = UNITS_S.get(text[-1:])
        try:
            number = float(text[:-1] if unit else text)
        except ValueError:
            self.fail(f"'{value}' is not a time: write 90s, 10m or 1h", param, ctx)
        return super().convert(number * (unit or 1.0), param, ctx)


def connection_options(command: Command) -> Command:
    """Return the command with --server, --token and --tls-ca; it gets `connect`, a function that returns a connected client."""

    @click.option(
        "--server",
        envvar="MILLSTREAM_SERVER",
        default="127.0.0.1:7415",
        show_default=True,
        metavar="HOST:PORT",
        help="Address of the server.",
    )
    @click.option("--token", envvar="MILLSTREAM_TOKEN", default=None, help="Token that grants a role.")
    @click.option("--tls-ca", envvar="MILLSTREAM_TLS_CA", default=None, metavar="FILE", help="Use TLS and trust this authority.")
    @functools.wraps(command)
    def wrapped(*args: Any, server: str, token: str | None, tls_ca: str | None, **options: Any) -> Any:
        wait_s = START_S_MAX

        def connected(tls: SSLContext | None = None, *, waiting: bool = True) -> Client:
            from millstream.client.blocking import connect

            nonlocal wait_s
            try:
                client = once_started(lambda: connect(server, token, tls or tls_ca), wait_s if waiting else 0)
            finally:
                wait_s = 0.0  # a server that went away later is its caller's to ask again
            client.on_notice(told)
            return client

        return command(*args, connect=connected, **options)

    return wrapped  # type: ignore[return-value]


def once_started(connect: Callable[[], Client], wait_s: float, pause: Callable[[float], None] = time.sleep) -> Client:
    """Connect, within `wait_s` also to a server that is starting on this machine: `millstream serve &` returns before the server listens.

    Raises what `connect` raises.
    """
    from millstream.client.errors import NoServerHere

    asked, tries = 0, round(wait_s / ASK_AGAIN_S)
    while True:
        try:
            client = connect()
        except NoServerHere as error:
            if asked == tries:
                progress("")
                raise
            progress(f"{error.message} yet; waiting up to {wait_s:g} s")  # one line: it is taken away again
            pause(ASK_AGAIN_S)
            asked += 1
        else:
            if asked:
                progress("")
            return client


def told(code: str, message: str) -> None:
    """Show a notice of the server: losses always, the others to people."""
    if code == "progress":
        progress(message)
    elif code in TOLD_ALWAYS:
        warn(message)
    else:
        courtesy(message)


format_option = click.option(
    "--format", "format", type=click.Choice(FORMATS), default=None, help="Default: table on a terminal, csv in a pipe."
)


time_format_option = click.option(
    "--time-format",
    "time_formats",
    metavar="[COLUMN=]FORMAT",
    multiple=True,
    help="How the file writes times: '%d.%m.%Y %H:%M:%S', or s, ms, us, ns for numbers. Without COLUMN: in all TIMESTAMP columns.",
)


def chosen_format(format: str | None) -> str:
    """Return the format to use when perhaps none was given."""
    return format or ("table" if sys.stdout.isatty() else "csv")


def output() -> IO[bytes]:
    """Return stdout for bytes."""
    return sys.stdout.buffer


def text_of(file: IO[str]) -> str:
    """Read a text file, or standard input, to its end; MillstreamError when it is no text."""
    from millstream.client.errors import MillstreamError

    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise MillstreamError("data", f"{file.name} is not UTF-8 text (byte {error.start})") from error


def courtesy(text: str) -> None:
    """Say something nice to know, to people only."""
    if sys.stdout.isatty():
        click.echo(text, err=True)


def progress(text: str) -> None:
    """Say on a terminal how far something is, in the place of what was said of it before; an empty text takes that away."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}\r", err=True, nl=False)


def warn(text: str) -> None:
    """Say something that must not be missed."""
    click.echo(text, err=True)


def show_table(table: pa.Table, format: str | None) -> None:
    """Print a whole table."""
    name = chosen_format(format)
    renderer = renderer_for(name, table.schema, output(), colour=sys.stdout.isatty())
    for batch in table.to_batches():
        renderer.batch(batch)
    renderer.finish()


def show_listing(table: pa.Table, first: list[str], format: str | None) -> None:
    """Print the table of a SHOW: as a table, only what a person needs first; in every other format all of it."""
    if chosen_format(format) != "table" or not first:
        show_table(table, format)
        return
    import shutil

    width = max(shutil.get_terminal_size().columns, BRIEF_WIDTH) if sys.stdout.isatty() else BRIEF_WIDTH
    output().write("".join(line + "\n" for line in brief(table, first, width)).encode())
    output().flush()
    courtesy(f"to see all {table.num_columns} columns: \\x in the shell, or --format vertical, csv or json")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `276,488 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def in_force(table: pa.Table) -> pa.Table:
    """Return the rows of SHOW POLICIES that are in force; all of them if it does not say."""
    marks = [name for name in table.column_names if name in ("in_force", "in_use", "current", "active")]
    return table.filter(table[marks[0]]) if marks else table


def show_answer(answer: Answer, format: str | None) -> None:
    """Print what a statement answered: its table if it has one, its notices.

    An explanation is lines of text, a plan one object where JSON is asked for.
    """
    progress("")
    plan = answer.info.get("plan") if format == "json" else None
    if isinstance(plan, dict):
        output().write(json.dumps(plan, ensure_ascii=False).encode() + b"\n")
        output().flush()
    elif format is None and [column.name for column in answer.columns] == [EXPLANATION]:
        output().write("".join(f"{row[EXPLANATION]}\n" for row in answer).encode())
        output().flush()
    elif answer.columns or len(answer):
        show_listing(answer.to_arrow(), answer.first, format)
    for notice in answer.notices:
        courtesy(notice)


def subscribed(client: Client, answer: Answer) -> BlockingSubscription:
    """Subscribe to the query that a SELECT has just started, from its first result."""
    assert answer.query is not None
    return client.subscribe(answer.query.name, from_start=True)


def stop_following(client: Client, subscription: BlockingSubscription) -> None:
    """Drop the temporary query of a subscription that was broken off."""
    if subscription.end is None and client.is_open:
        client.execute(query_statement("DROP", subscription.query))


def show_results(
    subscription: BlockingSubscription, format: str | None, limit: int | None = None, *, receipts: bool = False, tokens: bool = False
) -> None:
    """Print results until the subscription ends, `limit` rows are printed, or Ctrl-C.

    `receipts`: with three columns more. `tokens`: with the resume token beside the last row of each batch.
    """
    import pyarrow as pa
    from millstream.client.receipts import receipt_of, with_receipt, with_token
    from millstream.client.subscriber import Lost
    from millstream.protocol.batches import arrow_schema

    def shaped(batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = with_token(batch) if tokens else batch
        return with_receipt(batch) if receipts else batch

    schema = subscription.schema if subscription.schema is not None else arrow_schema(subscription.columns)
    schema = shaped(pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)).schema
    renderer = renderer_for(chosen_format(format), schema, output(), live=True, colour=sys.stdout.isatty())
    left = limit
    told = False
    try:
        while left is None or left > 0:
            item = subscription.next_item()
            if item is None:
                break
            if isinstance(item, Lost):
                warn(f"gap: {item.rows} rows are missing here ({item.reason})")
                continue
            receipt = None if receipts or told else receipt_of(item)
            if receipt is not None and receipt.shed_rows:
                told = True
                warn(f"rows are being shed: these results saw {receipt.share_seen:.1%} of their input (--receipts shows it for each row)")
            left = _print(renderer, shaped(item), left)
    except KeyboardInterrupt:
        courtesy("stopped")
    finally:
        renderer.finish()
    _explain_end(subscription)


def _print(renderer: Renderer, batch: pa.RecordBatch, left: int | None) -> int | None:
    if left is not None and batch.num_rows > left:
        batch = batch.slice(0, left)
    renderer.batch(batch)
    return None if left is None else left - batch.num_rows


def _explain_end(subscription: BlockingSubscription) -> None:
    end = subscription.end
    if end is None or end.reason in ("finished", "unsubscribed"):
        return
    token = f"; continue with --resume {end.resume_token}" if end.resume_token else ""
    warn(f"{subscription.query} ended: {end.reason}{f' ({end.message})' if end.message else ''}{token}")


def stop_with_input(stop: Callable[[], object]) -> None:
    """Call `stop`, in another thread, when standard input ends, as it does with the process that started this one."""

    def wait() -> None:
        while sys.stdin.buffer.read(4096):
            """Nothing is said there."""
        stop()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def bound_process(bytes_max: int, cpu_s_max: float | None = None) -> None:
    """Let this process take so many bytes for its data, and so much processor time, as far as the platform can bound that."""
    try:
        import resource
    except ImportError:  # not on every platform
        return
    bounds = [(resource.RLIMIT_DATA, bytes_max)]
    if cpu_s_max is not None:
        bounds.append((resource.RLIMIT_CPU, math.ceil(cpu_s_max)))
    for what, most in bounds:
        hard: Any = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
