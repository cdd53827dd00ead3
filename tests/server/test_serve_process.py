"""`millstream serve` as a process: listening, a port in use, signals, what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from millstream.client import connect
from millstream.server.functions.processes import descendants

from tests.support.services import free_port

pytestmark = pytest.mark.process
START_S = 30.0
MODULES_MAX = 300
COMMAND = [sys.executable, "-c", "from millstream.server.serve_command import command; command()"]


def start(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a server; return it and its port once it listens."""
    process = subprocess.Popen([*COMMAND, "--port", "0", *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("{") and (event := json.loads(line))["event"] == "listening":
            return process, int(event["port"])
    process.stderr.close()
    raise AssertionError(f"the server left with {process.wait()}: {''.join(said)}")


def test_a_server_that_listens_has_loaded_three_hundred_of_our_modules_at_most() -> None:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0"], stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    )
    assert process.stderr is not None
    loaded = set()
    for line in process.stderr:
        if line.startswith("import time:"):
            loaded.add(line.rpartition("|")[2].strip())
        elif '"listening"' in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=START_S)
    ours = {name for name in loaded if name.partition(".")[0] == "millstream"}
    assert "millstream.server.live" in ours
    assert len(ours) <= MODULES_MAX
    assert "millstream.server.host.load_ring" not in ours  # nothing has come that it could count


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process, port = start(*arguments)
    try:
        yield process, port
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=START_S)


def test_it_listens_answers_and_leaves_on_sigterm_with_what_was_queued_answered() -> None:
    with serving() as (process, port):
        with connect(f"127.0.0.1:{port}") as client:
            client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
            client.submit("SELECT v FROM s", name="everything")
            subscription = client.subscribe("everything")
            client.publish("s", [{"ts": 1, "v": 1}])
            process.send_signal(signal.SIGTERM)
            rows = [row for batch in subscription for row in batch.to_pylist()]
            assert rows == [{"v": 1}]
            assert subscription.end.reason == "stopping"
        _, said = process.communicate(timeout=START_S)
        assert process.returncode == 0
        (stopped,) = [e for e in map(json.loads, said.splitlines()) if e["event"] == "stopped"]
        assert stopped["drained"] is True


def test_a_server_whose_log_nobody_reads_any_more_goes_on_and_leaves_when_told() -> None:
    process, port = start("--log-level", "info")
    assert process.stderr is not None
    process.stderr.close()
    for number in range(3):
        with connect(f"127.0.0.1:{port}") as client:
            client.execute(f"CREATE STREAM s{number} (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
            client.submit(f"SELECT v FROM s{number}", name=f"q{number}")
            client.execute(f"DROP QUERY q{number}")
    process.send_signal(signal.SIGTERM)
    assert process.wait(START_S) == 0


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_it_leaves_on_sigterm_while_a_fetch_runs_that_never_ends() -> None:
    with serving("--drain-s", "1") as (process, port):
        with connect(f"127.0.0.1:{port}") as client, connect(f"127.0.0.1:{port}") as other, ThreadPoolExecutor(1) as pool:
            for name in "abc":
                client.execute(f"CREATE TABLE {name} (k BIGINT PRIMARY KEY)")
                client.publish(name, [{"k": k} for k in range(3_000)])
            asking = pool.submit(client.execute, "FETCH SELECT COUNT(*) AS n FROM a, b, c WHERE a.k + b.k + c.k < 0")
            while not (children := descendants(process.pid)):
                assert list(other.execute("SHOW QUERIES")) == []
                assert not asking.done()
            process.send_signal(signal.SIGTERM)
            assert asking.exception() is not None
        process.communicate(timeout=START_S)
        assert process.returncode == 0
        ends = time.monotonic() + START_S  # a bound on hanging: the system takes a moment to bury what was killed
        while left := [pid for pid in children if is_alive(pid)]:
            assert time.monotonic() < ends, left


@pytest.mark.parametrize(
    "hang",
    ["async def stop(self): threading.Event().wait()\nlive.LiveServer.stop = stop\n",
     "async def settle(self):\n    while True: pass\nlive.LiveServer.settle = settle\n"],
    ids=["while it stops", "in the loop, as a policy may"],
)  # fmt: skip
def test_what_never_ends_does_not_keep_it_from_leaving(hang: str) -> None:
    hangs = (
        "import threading, millstream.server.live as live\n"
        "from millstream.server.config import Config\n"
        f"{hang}"
        "live.GRACE_S = 0.1\n"
        "live.serve(Config(port=0, drain_s=0.1, log_format='json'))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", hangs], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any(json.loads(line)["event"] == "listening" for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=START_S)
    assert process.returncode == 1
    assert [json.loads(line)["event"] for line in said.splitlines()] == ["ended_by_force"]


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=START_S, check=False)
        metrics = subprocess.run(
            [*COMMAND, "--port", "0", "--metrics-port", port], capture_output=True, text=True, timeout=START_S, check=False
        )
    assert (result.returncode, result.stdout, metrics.returncode) == (1, "", 1)
    assert result.stderr.count("\n") == 1
    told = f"port {port} on 127.0.0.1 is in use; another server may be running; choose another port with"
    assert result.stderr.endswith(f"{told} --port\n")
    assert metrics.stderr.endswith(f"{told} --metrics-port\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--host", "0.0.0.0"], "MILLSTREAM_ADMIN_TOKEN"), (["--workers", "x"], "whole number"), (["--policy", "fastest"], "fastest")],
)
def test_settings_that_cannot_be_used_are_one_clear_line(arguments: list[str], said: str) -> None:
    result = subprocess.run([*COMMAND, "--port", "0", *arguments], capture_output=True, text=True, timeout=START_S, check=False)
    assert result.returncode == 1
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_data_directory_in_use_is_one_clear_line_and_is_free_again_after_a_kill(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path)) as (process, _):
        second = [*COMMAND, "--port", "0", "--data-dir", str(tmp_path)]
        result = subprocess.run(second, capture_output=True, text=True, timeout=START_S, check=False)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert f"{tmp_path} is in use by another server (process {process.pid})" in result.stderr
        process.kill()
        process.wait(START_S)
    with serving("--data-dir", str(tmp_path)) as (_, port):
        assert states(port) == {}


def states(port: int) -> dict[str, tuple[str, str]]:
    with connect(f"127.0.0.1:{port}") as client:
        return {row["name"]: (row["state"], row["class"]) for row in client.execute("SHOW QUERIES")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_keeps_desired_states(tmp_path: Path, number: int) -> None:
    with serving("--data-dir", str(tmp_path)) as (process, port):
        with connect(f"127.0.0.1:{port}") as client:
            client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
            client.execute("CREATE CLASS gold PRIORITY 6")
            client.submit("SELECT v FROM s", name="first", class_="gold")
            client.execute("CREATE QUERY second AS SELECT v FROM s WHERE v > 1")
            client.execute("STOP QUERY first")
        os.kill(process.pid, number)
        process.wait(START_S)
    with serving("--data-dir", str(tmp_path)) as (_, port):
        assert states(port) == {"first": ("stopped", "gold"), "second": ("running", "default")}


def test_metrics_and_health_are_served() -> None:
    import urllib.request

    metrics_port = free_port()

    def page(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}{path}", timeout=10) as answer:
            return answer.read().decode()

    with serving("--metrics-port", str(metrics_port)) as (_, port):
        with connect(f"127.0.0.1:{port}") as client:
            client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
            client.submit("SELECT v FROM s", name="everything")
            client.publish("s", [{"ts": 1, "v": 1}, {"ts": 2, "v": "x"}])
            text = page("/metrics")
        assert 'millstream_stream_accepted_total{stream="s"} 1.0' in text
        assert 'millstream_stream_refused_total{stream="s"} 1.0' in text
        assert 'millstream_query_accepted_total{query="everything"} 1.0' in text
        assert (page("/healthz"), page("/readyz")) == ("ok\n", "ready\n")
