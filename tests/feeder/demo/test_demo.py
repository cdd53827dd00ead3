"""The demo as a user runs it: a daemon process, Spark, the whole month."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time

import httpx
import pytest
from millstream.client import connect
from millstream.client.cli import run
from millstream.feeder.demo.daemon import console_of, daemon
from millstream.feeder.demo.overload import CONTROL, PERCENT_MAX, STREAM, LoadMaker
from millstream.feeder.errors import FeederError

from tests.support.consoles import bundled

COMMAND = [sys.executable, "-c", "from millstream.client.cli import main; main()", "demo"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.process
def test_every_answer_of_the_demo_equals_duckdb() -> None:
    chosen = [word for name in ("delays", "carriers", "fast", "movements", "rush") for word in ("--query", name)]
    done = subprocess.run([*COMMAND, "--seconds", "5", *chosen], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "policy fcfs" in done.stdout
    assert "49,311 rows accepted; every answer equals DuckDB's" in done.stdout
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:-1]] for line in done.stdout.splitlines() if "│" in line
    }
    assert rows["movements"][:2] == ["47,301", "47,301"]
    assert all(cells[-2:] == ["yes", "equal"] for cells in rows.values())
    assert re.search(r"fed 49,311 rows", done.stdout)


@pytest.mark.slow
@pytest.mark.process
def test_a_console_shows_the_demos_server_and_ends_with_it() -> None:
    bundled()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    page = f"http://127.0.0.1:{port}/"
    with daemon() as address, console_of(address, port):
        deadline = time.monotonic() + 60
        while True:
            try:
                assert "Millstream" in httpx.get(page).text
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the console does not answer"
                time.sleep(0.1)
        asked = httpx.post(f"{page}api/statement", json={"sql": "SHOW SCHEDULER"})
        assert ["policy", "fcfs"] in asked.json()["rows"]
    with pytest.raises(httpx.TransportError):
        httpx.get(page)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.process
def test_flights_come_as_the_slider_says_until_the_block_ends() -> None:
    def accepted() -> int:
        return next(int(row["accepted"]) for row in client.execute("SHOW STREAMS") if row["name"] == STREAM)

    with daemon(["--load", "dilos"]) as address, connect(address) as client:
        maker = LoadMaker(address)
        with maker.running():
            assert maker.capacity > 0
            before, deadline = accepted(), time.monotonic() + 60
            client.execute(f"INSERT INTO {CONTROL} VALUES (30)")
            while accepted() == before:
                assert time.monotonic() < deadline, "no flight has come"
            assert maker._percent == 30
            client.execute(f"INSERT INTO {CONTROL} VALUES (1000)")
            while maker._percent != PERCENT_MAX:
                assert time.monotonic() < deadline, "the slider is not followed"
            assert {row["name"] for row in client.execute("SHOW CLASSES")} == {"gold", "silver", "bronze", "default"}
        after = accepted()
        assert accepted() == after
        assert maker.problem is None


def test_a_daemon_that_cannot_start_says_why() -> None:
    with pytest.raises(FeederError, match=r"did not start: .*no-such-policy"), daemon(["--policy", "no-such-policy"]):
        pass


def test_a_query_that_is_not_there_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--query", "weather"]) == 2
    assert "there is no query weather; there are delays" in capfd.readouterr().err
