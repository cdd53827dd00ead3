from __future__ import annotations

import io
import time
from typing import Any

import pyarrow as pa
import pytest
from millstream.feeder.demo.check import Verdict
from millstream.feeder.demo.daemon import port_in
from millstream.feeder.demo.queries import QUERIES, DemoQuery
from millstream.feeder.demo.show import Outcome, final_table, is_conserved, live_table
from millstream.feeder.demo.watch import NS_PER_MS, POSITION, Followed, PublishTimes, Watch
from rich.console import Console

QUERY = DemoQuery("q", "what", "SELECT 1", "SELECT 1")


class Acking:
    """Takes rows and gives them the next arrival numbers."""

    def __init__(self) -> None:
        self.next = 0
        self.finished: list[str] = []

    def publish(self, stream: str, data: pa.RecordBatch) -> Any:
        self.next += data.num_rows
        return type("Ack", (), {"accepted": data.num_rows, "position": self.next - 1 if data.num_rows else None, "rejected": []})()

    def finish(self, stream: str) -> None:
        self.finished.append(stream)


def batch(values: list[Any], position: int | None = None) -> pa.RecordBatch:
    found = pa.record_batch({"v": values})
    return found if position is None else found.replace_schema_metadata({POSITION: str(position)})


def test_a_result_is_timed_from_the_publish_that_brought_its_row() -> None:
    client = Acking()
    times = PublishTimes(client)
    times.publish("s", batch([1, 2, 3]))
    between_ns = time.monotonic_ns()
    times.publish("s", batch([4]))
    times.publish("s", batch([]))
    assert times.rows == {"s": 4}
    first, second = times.sent_ns(2), times.sent_ns(3)
    assert first is not None
    assert second is not None
    assert first <= between_ns <= second
    assert times.sent_ns(0) == first
    assert times.sent_ns(4) is None
    followed = Followed(QUERY, None, received=[(1, first + 4 * NS_PER_MS), (3, second + 8 * NS_PER_MS), (9, 0)])
    assert followed.latency_ms(times) == pytest.approx((6.0, 7.96))
    assert Followed(QUERY, None).latency_ms(times) is None
    times.finish("s")
    assert client.finished == ["s"]


def test_all_rows_of_a_subscription_are_kept_with_the_newest_in_words() -> None:
    followed = Followed(QUERY, [batch([1, None], 5), batch([]), batch([2.5], 6)])
    followed.follow()
    assert followed.error is None
    assert followed.answer() == [(1,), (None,), (2.5,)]
    assert (followed.rows, followed.last()) == (3, "2.5")
    assert [position for position, _ in followed.received] == [5, 6]


def test_what_a_subscription_raises_is_raised_where_its_end_is_awaited() -> None:
    def broken() -> Any:
        yield batch([1])
        raise ConnectionError("gone")

    client = type("Client", (), {"subscribe": lambda self, name: broken()})()
    with Watch() as watch:
        watch.follow(client, [QUERY])
        with pytest.raises(ConnectionError, match="gone"):
            watch.join(10)


def test_the_law_of_conservation_is_checked_against_the_counts() -> None:
    counts = {"accepted": 10, "processed": 6, "late": 1, "shed": 1, "failed": 1, "queued": 1}
    assert is_conserved(counts)
    assert not is_conserved(counts | {"processed": 5})
    assert not is_conserved({})


def test_the_closing_table_names_what_is_wrong() -> None:
    console = Console(file=io.StringIO(), width=120)
    good = Followed(QUERY, None, rows=1_234)
    outcomes = [Outcome(good, 5_678, True, Verdict(())), Outcome(good, 1, False, Verdict(("x",)))]
    console.print(final_table(outcomes, PublishTimes(None), "hnr"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("policy hnr", "5,678", "1,234", "equal", "DIFFERENT", "yes", "NO"):
        assert word in shown


def test_the_live_table_shows_each_query_and_its_newest_row() -> None:
    console = Console(file=io.StringIO(), width=160)
    followed = Followed(QUERIES[0], [batch(["EWR"])])
    followed.follow()
    console.print(live_table([followed], 10, 100, "chain"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("10 of 100 rows, policy chain", "delays", "hour by hour", "EWR"):
        assert word in shown


@pytest.mark.parametrize(
    ("line", "port"),
    [('{"event": "listening", "port": 7415}', 7415), ('{"event": "stopping", "port": 1}', None), ("Traceback", None), ("[1]", None)],
)
def test_the_port_is_read_from_the_line_that_says_so(line: str, port: int | None) -> None:
    assert port_in(line) == port
