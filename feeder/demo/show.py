"""The demo in order: daemon, streams, queries, Spark, feed, end, comparison; and what it shows meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Event
from typing import Any

from millstream.client import connect
from millstream.feeder import feed as feeding
from millstream.feeder import flights
from millstream.feeder.arrivals import ArrivalRule
from millstream.feeder.demo.check import Oracle, Verdict, compare, settle
from millstream.feeder.demo.daemon import console_of, daemon
from millstream.feeder.demo.overload import LoadMaker
from millstream.feeder.demo.queries import AIRLINES, STREAMS, DemoQuery
from millstream.feeder.demo.watch import Followed, PublishTimes, Watch
from millstream.feeder.errors import FeederError
from millstream.feeder.job import FeedPlan
from millstream.feeder.pace import Tally
from millstream.feeder.progress import summary
from millstream.feeder.rates import constant
from millstream.feeder.session import spark_session, stop_on_signal
from millstream.feeder.targets import describe
from rich.console import Console
from rich.live import Live
from rich.table import Table

LOOK_SECONDS = 1.0  # between two looks at whether the load still flows
ANSWER_SECONDS_MAX = 60  # after the last row; a query that has not ended by then never will
_FILES = {"departures": flights.DEPARTURES, "arrivals": flights.ARRIVALS, "weather": flights.WEATHER}
_ROWS = {"departures": 23_690, "arrivals": 23_611, "weather": 2_010}


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be chosen: queries, policy and workers of the daemon, how long the month lasts, the seed of its arrivals."""

    queries: tuple[DemoQuery, ...]
    policy: str | None = None
    workers: int | None = None
    seconds: float = 20.0
    seed: int = 2013
    stay: bool = False  # with a console, and until Ctrl-C


def show(settings: Settings, console: Console) -> bool:
    """Run the demo; return whether every answer was right and every count added up."""
    with ExitStack() as stack:
        address = stack.enter_context(daemon(_serve_arguments(settings)))
        if settings.stay:
            stack.enter_context(console_of(address))
        watch = stack.enter_context(Watch())
        control = stack.enter_context(connect(address))
        publishing = stack.enter_context(connect(address))
        console.print(
            f"a server listens on {address}; starting Spark to replay {sum(_ROWS.values()):,} rows of {flights.YEAR}-{flights.MONTH:02}"
        )
        _define(control, settings.queries)
        for query in settings.queries:
            control.submit(query.query, name=query.name)
        watch.follow(control, settings.queries)
        times = PublishTimes(publishing)
        policy = _policy(control)
        with spark_session(brief=True) as session:
            prepared = feeding.prepare(session, _plan(control, settings), None)
            total = sum(prepared.counted.rows)
            with _showing(console, watch, total, policy) as look:
                result = feeding.run(prepared, times, look=look, stopping=stop_on_signal)
        for line in summary(result.tally, result.refused, complete=result.complete, paced=True):
            console.print(line)
        if not result.complete:
            _drop(control, settings.queries)
        late = watch.join(ANSWER_SECONDS_MAX)
        if not result.complete:
            return False
        if late:
            raise FeederError(f"the queries {', '.join(late)} did not end {ANSWER_SECONDS_MAX} s after their streams")
        right = _judge(console, watch, times, policy)
        if settings.stay:
            _stay(console, address)
    return right


def _stay(console: Console, address: str) -> None:
    """Leave the server and its console running until Ctrl-C, with flights that come as the console's slider says."""
    maker = LoadMaker(address)
    with suppress(KeyboardInterrupt), maker.running():
        console.print(f"the server at {address} and its console stay until Ctrl-C")
        console.print(
            f"on the console's page Overload, a slider sends more: some {maker.capacity:,.0f} flights a second are what it can do"
        )
        while maker.problem is None:
            Event().wait(LOOK_SECONDS)
        raise FeederError(f"the load has ended: {maker.problem}")


def _serve_arguments(settings: Settings) -> list[str]:
    arguments = [] if settings.policy is None else ["--policy", settings.policy]
    if settings.stay:
        arguments += ["--load", "dilos"]  # for what comes after the answers; the demo's own queries are never shed
    return arguments + ([] if settings.workers is None else ["--workers", str(settings.workers)])


def _define(client: Any, queries: tuple[DemoQuery, ...]) -> None:
    from pyarrow import csv

    for definition in STREAMS:
        client.execute(definition)
    if any(query.airlines for query in queries):
        client.execute(AIRLINES)
        client.publish("airlines", csv.read_csv(flights.AIRLINES))


def _drop(client: Any, queries: tuple[DemoQuery, ...]) -> None:
    """End the queries of a demo that was stopped, so that their subscriptions end."""
    for query in queries:
        client.query(query.name).drop()


def _policy(client: Any) -> str:
    return next((str(row["name"]) for row in client.execute("SHOW POLICIES").rows if row["in_use"]), "?")


def _plan(client: Any, settings: Settings) -> FeedPlan:
    """Return the feed of the three files into three streams, each at the rate that lets all end together."""
    rule = ArrivalRule(
        "poisson",
        constant(_ROWS["departures"] / settings.seconds),
        seed=settings.seed,
        shares=tuple(rows / _ROWS["departures"] for rows in _ROWS.values()),
    )
    return FeedPlan(
        paths=tuple(str(path) for path in _FILES.values()),
        targets=tuple(describe(client, name) for name in _FILES),
        rule=rule,
        conditions=tuple(f"_source = {position}" for position in range(len(_FILES))),
    )


@contextmanager
def _showing(console: Console, watch: Watch, total: int, policy: str) -> Iterator[Callable[[Tally, float], None] | None]:
    """Draw the live table on a terminal; elsewhere nothing."""
    if not console.is_terminal:
        yield None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def look(tally: Tally, _: float) -> None:
            live.update(live_table(watch.followed, tally.sent, total, policy), refresh=True)

        yield look


def _judge(console: Console, watch: Watch, times: PublishTimes, policy: str) -> bool:
    oracle = Oracle()
    outcomes = []
    try:
        for one in watch.followed:
            rows = settle(one.answer()) if one.query.changes else one.answer()
            counts = one.subscription.end.counts
            verdict = compare(rows, oracle.answer(one.query))
            outcomes.append(Outcome(one, int(counts.get("accepted", 0)), is_conserved(counts), verdict))
    finally:
        oracle.close()
    console.print(final_table(outcomes, times, policy))
    for outcome in outcomes:
        for difference in outcome.verdict.differences:
            console.print(f"{outcome.followed.query.name}: {difference}", style="red")
    right = all(outcome.verdict.equal and outcome.conserved for outcome in outcomes)
    console.print(
        f"{sum(times.rows.values()):,} rows accepted; " + ("every answer equals DuckDB's" if right else "NOT every answer is right")
    )
    return right


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one query: rows in by the server's count, whether its counts add up, and whether the answer is right."""

    followed: Followed
    rows_in: int
    conserved: bool
    verdict: Verdict


def live_table(followed: Sequence[Followed], sent: int, total: int, policy: str) -> Table:
    """Return the table shown while rows flow."""
    table = Table(title=f"{sent:,} of {total:,} rows, policy {policy}", title_justify="left", expand=True)
    table.add_column("query", no_wrap=True)
    table.add_column("asks for", no_wrap=True, ratio=2)
    table.add_column("results", justify="right")
    table.add_column("newest", no_wrap=True, ratio=3)
    for one in followed:
        table.add_row(one.query.name, one.query.title, f"{one.rows:,}", one.last())
    return table


def final_table(outcomes: Sequence[Outcome], times: PublishTimes, policy: str) -> Table:
    """Return the closing table."""
    table = Table(title=f"policy {policy}", title_justify="left")
    for name in ("query", "rows in", "rows out", "p50 ms", "p99 ms", "conserved", "DuckDB"):
        table.add_column(name, justify="left" if name in {"query", "DuckDB"} else "right")
    for outcome in outcomes:
        latency = outcome.followed.latency_ms(times)
        middle, tail = ("-", "-") if latency is None else (f"{latency[0]:,.2f}", f"{latency[1]:,.2f}")
        verdict = "equal" if outcome.verdict.equal else "DIFFERENT"
        conserved = "yes" if outcome.conserved else "NO"
        table.add_row(outcome.followed.query.name, f"{outcome.rows_in:,}", f"{outcome.followed.rows:,}", middle, tail, conserved, verdict)
    return table


def is_conserved(counts: dict[str, Any]) -> bool:
    """Return whether accepted = processed + late + shed + failed + queued, by the server's final counts (K10)."""
    settled = sum(int(counts.get(name, 0)) for name in ("processed", "late", "shed", "failed", "queued"))
    return int(counts.get("accepted", -1)) == settled
