"""A server that is killed while rows come in: what was acked is there again, and each result comes once."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from millstream.client import connect
from millstream.client.errors import MillstreamError

from tests.server.test_serve_process import START_S, serving, start

pytestmark = pytest.mark.process
ROUNDS = 2


def publish_until_killed(port: int, first: int, acked: list[int], enough: threading.Event) -> None:
    """Publish blocks of ten numbers until the server is gone; `acked` gets every number that was acked."""
    with connect(f"127.0.0.1:{port}") as client:
        number = first
        try:
            while True:
                block = list(range(number, number + 10))
                ack = client.publish("s", [{"ts": v, "v": v} for v in block])
                assert ack.accepted == 10
                acked += block
                number += 10
                if number - first > 200:
                    enough.set()
        except MillstreamError:
            enough.set()


def read_some(port: int, token: str | None, seen: list[int]) -> str | None:
    """Read what there is until nothing comes for a moment; return the token to go on with."""
    with connect(f"127.0.0.1:{port}") as client:
        subscription = client.subscribe("every", **({"from_start": True} if token is None else {"resume_token": token}))
        while True:
            try:
                item = subscription.next_item(timeout=0.3)
            except TimeoutError:
                return subscription.resume_token
            assert not subscription.gaps
            seen += item.column("v").to_pylist()


def read_part(port: int, token: str | None, seen: list[int]) -> str | None:
    """Read a few batches of what comes, so that the kill finds a reader in the middle."""
    with connect(f"127.0.0.1:{port}") as client:
        subscription = client.subscribe("every", **({"from_start": True} if token is None else {"resume_token": token}))
        for _ in range(5):
            item = subscription.next_item(timeout=START_S)
            assert not subscription.gaps
            seen += item.column("v").to_pylist()
        return subscription.resume_token


@pytest.mark.parametrize("level", ["journal", "sync"])
def test_what_was_acked_before_a_kill_is_recovered_and_each_result_comes_once(tmp_path: Path, level: str) -> None:
    arguments = ("--data-dir", str(tmp_path), "--log-level", "info")
    acked: list[int] = []
    seen: list[int] = []
    token: str | None = None
    for number in range(ROUNDS):
        process, port = start(*arguments)
        try:
            if number == 0:
                with connect(f"127.0.0.1:{port}") as client:
                    client.execute(f"CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s DURABILITY {level}")
                    client.execute("CREATE QUERY every AS SELECT v FROM s")
                    client.execute("CREATE QUERY counts AS SELECT COUNT(*) AS n, SUM(v) AS total FROM s EMIT FINAL")
            first = 1_000_000 * number
            enough = threading.Event()
            publisher = threading.Thread(target=publish_until_killed, args=(port, first, acked, enough))
            publisher.start()
            assert enough.wait(START_S)
            token = read_part(port, token, seen)
            process.send_signal(signal.SIGKILL)
            publisher.join(START_S)
        finally:
            process.kill()
            process.communicate(timeout=START_S)
    with serving(*arguments) as (_, port):
        token = read_some(port, token, seen)
        assert len(seen) == len(set(seen)), "a result came twice"
        assert set(acked) <= set(seen), "an acked row is gone"
        assert seen == sorted(seen)
        with connect(f"127.0.0.1:{port}") as client:
            totals = client.query("counts").fetch().to_pylist()
            assert totals == [{"n": len(seen), "total": sum(seen)}]
            held: list[Any] = client.query_once("SELECT v FROM s")["v"].to_pylist()
            assert held == seen
