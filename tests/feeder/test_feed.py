"""A feed from prepared data to the last row, without Spark and without a daemon."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from millstream.feeder import feed as feeding
from millstream.feeder.arrivals import ArrivalRule
from millstream.feeder.errors import SourceError
from millstream.feeder.job import Counted, FeedPlan
from millstream.feeder.numbering import plan_numbering
from millstream.feeder.pace import Tally
from millstream.feeder.position import Position, load_position
from millstream.feeder.progress import achieved, progress_bar, stage, summary
from millstream.feeder.rates import constant
from millstream.feeder.session import broken_off_by_interrupt, stop_on_signal, why_not
from millstream.feeder.sources import check_paths
from millstream.feeder.targets import common_columns, quoted, split_stream_name
from rich.console import Console

from tests.feeder.fakes import Ack, FakeDaemon, Rejection, arriving, target

PLAN = FeedPlan(("x.csv",), (target("a"),), ArrivalRule("fixed", constant(1_000)))


class ReadyJob:
    """Hands over batches that were made beforehand."""

    def __init__(self, *batches: pa.RecordBatch | Exception) -> None:
        self._batches = batches

    def batches(self, counted: Counted) -> Iterator[Any]:
        for batch in self._batches:
            if isinstance(batch, Exception):
                raise batch
            yield batch


def prepared(job: Any, rows: int) -> feeding.Feed:
    counted = Counted(plan_numbering(PLAN.rule, [], {}, by_time=False), (rows,), {"column v is not a BIGINT": 2})
    return feeding.Feed(PLAN, job, counted, Position(("a",)), "print")


def test_all_rows_are_fed_the_stream_is_finished_and_the_position_kept(tmp_path: Path) -> None:
    daemon = FakeDaemon()
    seen: list[float] = []
    feed = prepared(ReadyJob(arriving([(0, 1, 10), (0, 2, 20)]), arriving([(0, 3, 30)])), 3)
    result = feeding.run(feed, daemon, state=tmp_path / "state", look=lambda tally, rate: seen.append(rate))
    assert daemon.values("a") == [1, 2, 3]
    assert daemon.finished == ["a"]
    assert (result.complete, result.tally.sent, result.refused) == (True, 3, {"column v is not a BIGINT": 2})
    assert load_position(tmp_path / "state", "print", ("a",)).acked() == (3,)
    assert seen[-1] in {0.0, 1_000.0}


@pytest.mark.parametrize(("refused", "is_useless"), [(3, True), (2, False)])
def test_a_feed_of_which_no_row_was_accepted_is_useless(refused: int, is_useless: bool) -> None:
    daemon = FakeDaemon(on_publish=lambda stream, data: Ack(3 - refused, [Rejection(i, "no") for i in range(refused)]))
    result = feeding.run(prepared(ReadyJob(arriving([(0, 1, 10), (0, 2, 20), (0, 3, 30)])), 3), daemon)
    assert (result.complete, result.is_useless) == (True, is_useless)
    nothing = feeding.run(prepared(ReadyJob(), 0), FakeDaemon())
    assert nothing.is_useless, "all rows of the files were refused before"


def test_a_failure_of_the_daemon_reaches_the_caller_and_the_position_says_what_was_acked(tmp_path: Path) -> None:
    daemon = FakeDaemon()

    def fail_at_two(stream: str, data: pa.RecordBatch) -> None:
        if data.column("v")[0].as_py() == 2:
            raise ConnectionError("the daemon went away")

    daemon.on_publish = fail_at_two
    feed = prepared(ReadyJob(arriving([(0, 1, 0)]), arriving([(0, 2, 10**6)])), 2)
    with pytest.raises(ConnectionError, match="went away"):
        feeding.run(feed, daemon, state=tmp_path / "state")
    assert load_position(tmp_path / "state", "print", ("a",)).acked() == (1,)


def test_a_failure_of_spark_reaches_the_caller() -> None:
    with pytest.raises(SourceError, match="gone"):
        feeding.run(prepared(ReadyJob(arriving([(0, 1, 0)]), SourceError("gone")), 2), FakeDaemon())


def test_a_feed_of_which_no_row_can_be_read_ends_no_stream() -> None:
    daemon = FakeDaemon()
    result = feeding.run(prepared(ReadyJob(), 0), daemon)
    assert (result.is_useless, daemon.finished) == (True, [])


@pytest.mark.parametrize("paths", [["nothere"], ["*.csv", "gone-*.parquet"]])
def test_a_path_at_which_nothing_is_is_refused_before_spark_starts(
    paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").touch()
    with pytest.raises(SourceError, match=f"nothing at {re.escape(paths[-1])}"):
        check_paths(paths)
    check_paths(["rows.csv", "*.csv", ".", "s3a://bucket/rows", "{rows,more}.csv"])
    monkeypatch.setenv("HADOOP_CONF_DIR", "there")
    check_paths(paths)


def test_an_interrupt_cancels_what_runs_until_it_ends_and_is_raised_then() -> None:
    cancelled = threading.Semaphore(0)
    before = signal.getsignal(signal.SIGINT)

    def job() -> None:
        signal.raise_signal(signal.SIGINT)
        for _ in range(2):
            assert cancelled.acquire(timeout=10)
        raise SourceError("the job was cancelled")

    with pytest.raises(KeyboardInterrupt), broken_off_by_interrupt(cancelled.release):
        job()
    assert signal.getsignal(signal.SIGINT) is before

    def job_that_hears_two() -> None:
        signal.raise_signal(signal.SIGINT)
        job()

    with pytest.raises(KeyboardInterrupt), broken_off_by_interrupt(cancelled.release):
        job_that_hears_two()
    with pytest.raises(SourceError, match="gone"), broken_off_by_interrupt(cancelled.release):
        raise SourceError("gone")


def test_what_java_said_before_it_ended_is_told_without_where_it_was_thrown() -> None:
    said = """WARNING: Using incubator modules
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark, k8s, or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""
    assert why_not(said) == "Master must either be yarn or start with spark, k8s, or local"
    assert (why_not("\n  no java here\n"), why_not("")) == ("no java here", "")


def test_the_first_signal_stops_the_feed_after_what_is_under_way() -> None:
    daemon = FakeDaemon()

    def stop(stream: str, data: pa.RecordBatch) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    daemon.on_publish = stop
    feed = prepared(ReadyJob(arriving([(0, 1, 0), (0, 2, 3_600 * 10**9)])), 2)
    result = feeding.run(feed, daemon, stopping=stop_on_signal)
    assert (result.complete, daemon.values("a"), daemon.finished) == (False, [1], [])


def test_the_second_signal_interrupts_and_the_old_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = threading.Event()
    with stop_on_signal(stop):
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_rate_asked_for_is_that_of_all_streams() -> None:
    two = FeedPlan(("x",), (target("a"), target("b")), ArrivalRule("fixed", constant(1_000)))
    assert feeding.rate_now(two, Tally(started_ns=5), 10) == 2_000
    assert feeding.rate_now(two, Tally(), 10) == 0


def test_the_closing_lines_say_what_was_not_fed_and_why() -> None:
    tally = Tally(sent=3_000, rejected=2, started_ns=0, ended_ns=1_500_000_000, lag_ns_max=2_500_000, reasons=["a: no"])
    assert summary(tally, {"column v is not a BIGINT": 4}, complete=True, paced=True) == [
        "fed 3,000 rows in 1.5 s (2,000 rows/s), at most 2.5 ms late",
        "the server refused 2 rows: a: no",
        "4 rows were not fed: column v is not a BIGINT",
    ]
    one = Tally(sent=1, rejected=1, started_ns=0, ended_ns=10**9, reasons=["a: no"])
    assert summary(one, {"column ts is NULL": 1}, complete=True, paced=False) == [
        "fed 1 row in 1.0 s (1 rows/s)",
        "the server refused 1 row: a: no",
        "1 row was not fed: column ts is NULL",
    ]
    assert summary(Tally(), {}, complete=False, paced=True) == ["stopped after 0 rows in 0.0 s (0 rows/s)"]


def test_the_rate_achieved_is_counted_from_the_first_row() -> None:
    assert achieved(Tally(), 100) == 0
    assert achieved(Tally(sent=10, started_ns=10**9), 3 * 10**9) == 5


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_drawn_on_a_terminal_only(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with progress_bar(console, 10, lambda: 10**9) as look:
        look(Tally(sent=5, started_ns=0, lag_ns=1_000_000), 8.0)
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("asked 8/s, sent 5/s, 1.0 ms late" in drawn) == terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_what_takes_long_before_the_first_row_is_told(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with stage(console, "starting Spark"):
        pass
    assert "starting Spark" in console.file.getvalue()  # type: ignore[attr-defined]


def test_stream_names_are_made_from_values_and_quoted_where_they_must() -> None:
    assert split_stream_name("packets", "TCP/IP") == "packets_tcp_ip"
    assert quoted("plain_1") == "plain_1"
    assert quoted('Odd "name"') == '"Odd ""name"""'


def test_one_column_name_has_one_type_in_all_streams_of_a_feed() -> None:
    assert [column.name for column in common_columns([target("a", "v BIGINT, w TEXT"), target("b", "x INT, v BIGINT")])] == ["v", "w", "x"]
    with pytest.raises(SourceError, match="column v is BIGINT in a but TEXT in b"):
        common_columns([target("a"), target("b", "v TEXT")])
    with pytest.raises(SourceError, match="cannot be fed into"):
        common_columns([target("a"), target("b", "v BLOB")])
