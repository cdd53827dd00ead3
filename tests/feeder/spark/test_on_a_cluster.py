"""On a cluster of two executors, each in processes of its own: the same answers, and Ctrl-C ends all that runs there.

The master and its workers run on loopback, as Spark's own tests have them (`local-cluster`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.live_server import Harness, run
from tests.support.spark_answers import CREATE, check_same, expected, rows

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

MASTER = "local-cluster[2,1,1024]"
WAIT_S = 600  # a start takes half a minute, and many times that on a busy machine
WORKERS = Path(find_spec("pyspark").origin).with_name("work")  # type: ignore[union-attr,arg-type]
PROGRAM = str(Path(sys.executable).with_name("millstream"))


@pytest.fixture(scope="module", autouse=True)
def folders_of_workers() -> Iterator[None]:
    """Remove what workers leave beside Spark's jars."""
    yield
    shutil.rmtree(WORKERS, ignore_errors=True)


@contextmanager
def running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command on the cluster in a session of its own; at the end nothing of it may run any more."""
    command = [PROGRAM, *words, "--master", MASTER]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(command, cwd=folder, start_new_session=True, stdout=said, stderr=said, text=True) as process,
    ):
        try:
            yield process
            process.wait(WAIT_S)
            wait_for(lambda: not processes_of(process.pid), "all processes have ended")
        finally:
            for pid in processes_of(process.pid):
                os.kill(pid, signal.SIGKILL)


def processes_of(session: int) -> dict[int, str]:
    """Return the processes of a session with their command lines, those that have ended left out."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], bool], what: str, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert process is None or process.poll() is None, "the command ended by itself"
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def executors_compute(session: int) -> bool:
    """Whether both executors are there, and Python computes in one."""
    lines = list(processes_of(session).values())
    return sum("CoarseGrainedExecutorBackend" in line for line in lines) == 2 and any("pyspark.daemon" in line for line in lines)


def script_over(folder: Path, queries: list[str], count: int) -> dict[str, str]:
    parquet.write_table(rows(np.random.default_rng(4), count), folder / "a.parquet", row_group_size=100)
    (folder / "script.sql").write_text(CREATE.format(name="a", delay=" DELAY 1 SECOND") + ";".join(queries))
    return {"a": str(folder / "a.parquet")}


def test_the_answers_are_those_of_one_machine(tmp_path: Path) -> None:
    queries = [
        "CREATE QUERY plain AS SELECT ts, k, v FROM a WHERE v > 3",
        "CREATE QUERY merged AS SELECT k, SUM(v) AS s, window_end FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
        "CREATE QUERY keyed AS SELECT k, LAST(v) AS l, window_end FROM a [SESSION 2 SECONDS] GROUP BY k",
    ]
    inputs = script_over(tmp_path, queries, 3_000)
    names = ("plain", "merged", "keyed")
    outputs = [word for name in names for word in ("--output", f"{name}={name}")]
    with running(tmp_path, "spark", "run", "script.sql", "--input", "a=a.parquet", *outputs) as process:
        assert process.wait(WAIT_S) == 0, (tmp_path / "said").read_text()
    want = dict(expected((tmp_path / "script.sql").read_text(), inputs))
    for name in names:
        found = [json.loads(line) for line in json_lines_of(parquet.read_table(tmp_path / name))]
        check_same([(name, sorted(found, key=json.dumps))], [(name, sorted(want[name], key=json.dumps))], name)


def json_lines_of(table: Any) -> list[str]:
    from millstream.protocol.values.text import json_lines

    return [line for batch in table.to_batches() for line in json_lines(batch).splitlines()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_broken_off_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """As from a terminal, Ctrl-C reaches all processes of the command's group; the kill reaches the command alone."""
    queries = [f"CREATE QUERY q{n} AS SELECT k, LAST(v) AS l FROM a [SESSION {n + 1} SECONDS] GROUP BY k" for n in range(200)]
    script_over(tmp_path, queries, 5_000)
    outputs = [word for n in range(200) for word in ("--output", f"q{n}=q{n}")]
    with running(tmp_path, "spark", "run", "script.sql", "--input", "a=a.parquet", *outputs) as process:
        wait_for(lambda: executors_compute(process.pid), "executors compute", process)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    said = (tmp_path / "said").read_text()
    assert process.returncode != 0
    assert "Traceback" not in said
    assert not (tmp_path / "q199").exists()
    if number == signal.SIGINT:
        assert process.returncode == 1
        assert not list(tmp_path.glob("q*/_staging*"))


def test_a_stream_stops_and_goes_on(tmp_path: Path) -> None:
    query = "CREATE QUERY q AS SELECT k, COUNT(*) AS n, window_end FROM a [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
    script_over(tmp_path, [query], 2_000)
    (tmp_path / "in").mkdir()
    table = parquet.read_table(tmp_path / "a.parquet")
    words = ("spark", "stream", "script.sql", "--source", "a=in", "--output", "q=out", "--checkpoint", "check", "--partitions", "3")
    parquet.write_table(table.slice(0, 1_000), tmp_path / "in" / "0.parquet")
    commits = tmp_path / "check" / "commits"
    with running(tmp_path, *words) as process:
        wait_for(lambda: (commits / "0.json").exists(), "a batch is committed", process)
        os.killpg(process.pid, signal.SIGINT)
    said = (tmp_path / "said").read_text()
    assert (process.returncode, said.splitlines()[-1]) == (0, "stopped; the same command goes on from here")
    parquet.write_table(table.slice(1_000), tmp_path / "in" / "1.parquet")
    with running(tmp_path, *words, "--finish") as process:
        assert process.wait(WAIT_S) == 0, (tmp_path / "said").read_text()
    want = dict(expected((tmp_path / "script.sql").read_text(), {"a": str(tmp_path / "a.parquet")}))["q"]
    found = [json.loads(line) for file in sorted((tmp_path / "out").glob("batch-*")) for line in json_lines_of(parquet.read_table(file))]
    check_same([("q", sorted(found, key=json.dumps))], [("q", sorted(want, key=json.dumps))], "batches")


def test_a_feed_stops_in_all_its_publishers_and_goes_on(tmp_path: Path) -> None:
    count = 30_000
    parquet.write_table(pa.table({"v": range(count)}), tmp_path / "rows.parquet")
    words = ["feed", "rows.parquet", "--into", "s", "--fixed", "--rate", "3k/s", "--state", "state", "--publishers", "2"]

    def stopped(address: str, intake: Any) -> None:
        with running(tmp_path, *words, "--server", address) as process:
            wait_for(lambda: intake.accepted_total >= 3_000, "rows have come", process)
            os.killpg(process.pid, signal.SIGINT)
        assert "Traceback" not in (tmp_path / "said").read_text()
        assert intake.accepted_total < count

    def finished(address: str) -> None:
        with running(tmp_path, *words, "--server", address) as process:
            assert process.wait(WAIT_S) == 0, (tmp_path / "said").read_text()

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (v BIGINT) DURABILITY journal")
        await asyncio.to_thread(stopped, harness.address, harness.server.application.host.intakes["s"])
        await asyncio.to_thread(finished, harness.address)
        found = [row["v"] for row in (await client.query_once("SELECT v FROM s")).to_pylist()]
        assert found == list(range(count))

    run(test, within_s=1_400, data_dir=str(tmp_path / "data"))
