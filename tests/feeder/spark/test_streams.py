"""Rows that come in batches give the rows of `millstream run` over all of them, each once, whenever the driver dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream.feeder.errors import SourceError
from millstream.feeder.spark import stream as streaming
from millstream.feeder.spark.stream import StreamRun
from millstream.protocol.values.text import json_lines
from pyarrow import parquet

from tests.property.random_queries import random_query
from tests.support.local_spark import LocalSession
from tests.support.spark_answers import CREATE, check_same, close, expected, rows


def random_stream(seed: int, folder: Path) -> tuple[str, Any, list[Path]]:
    """Return a script with one random query over stream a, all rows of a, and the files that they come in."""
    choice, rng = random.Random(seed), np.random.default_rng(seed)
    query = random_query(choice)
    while any(part in query for part in (" b", " c ", " t ", "JOIN t")):
        query = random_query(choice)
    text = CREATE.format(name="a", delay=choice.choice(("", " DELAY 1 SECOND"))) + "CREATE QUERY q AS " + query
    table = rows(rng, choice.choice((5, 40, 150)))
    cuts = sorted(choice.randrange(table.num_rows + 1) for _ in range(choice.randrange(6)))
    files = []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
        files.append(folder / f"{number:03d}.parquet")
        parquet.write_table(table.slice(start, stop - start), files[-1], row_group_size=20)
    parquet.write_table(table, folder / "all.parquet")
    return text, table, files


def place(row: dict[str, Any]) -> str:
    return json.dumps({name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()})


def answer(folder: Path) -> list[dict[str, Any]]:
    found = []
    for file in sorted(folder.glob("batch-*.parquet")):
        found += [json.loads(line) for batch in parquet.read_table(file).to_batches() for line in json_lines(batch).splitlines()]
    return found


def net(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that stand after all changes: how changes are put together depends on the trains (K9)."""
    standing: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for row in found:
        if "op" not in row:
            return sorted(found, key=place)
        kept = {name: value for name, value in row.items() if name != "op"}
        counts[place(kept)] += 1 if row["op"] == "+" else -1
        standing.append(kept)
    named = {place(row): row for row in standing}
    return [named[key] for key in sorted(counts) for _ in range(counts[key])]


def check(folder: Path, text: str, source: Path) -> None:
    check_same([("q", net(answer(folder)))], [("q", net(expected(text, {"a": str(source)})[0][1]))], text)


class Died(BaseException):
    """The driver is gone."""


def seeds(few: range, many: range) -> list[Any]:
    return [*few, *(pytest.param(seed, marks=pytest.mark.cluster) for seed in many)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(10), range(10, 80)))
def test_random_queries_in_random_batches(seed: int, tmp_path: Path) -> None:
    text, _, files = random_stream(seed, tmp_path)
    run = StreamRun(LocalSession(), text, {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"), 3)
    for number, file in enumerate(files):
        run.take(number, {"a": [str(file)]})
        run = StreamRun(LocalSession(), text, {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"))
    run.end()
    check(tmp_path / "out", text, tmp_path / "all.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(100, 106), range(106, 140)))
def test_a_driver_that_dies_anywhere_gives_each_result_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies at a random call that writes or moves something; another one begins, and Spark brings it the batch again."""
    text, _, files = random_stream(seed, tmp_path)
    choice = random.Random(seed)
    left = [0]

    def dying(function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Died
            return function(*given, **named)

        return call

    monkeypatch.setattr(streaming, "write_whole", dying(streaming.write_whole))
    monkeypatch.setattr(streaming, "write_part", dying(streaming.write_part))
    monkeypatch.setattr(Path, "rename", dying(Path.rename))
    monkeypatch.setattr(Path, "unlink", dying(Path.unlink))
    deaths = 0
    work: list[Any] = [*files, None]
    for number, file in enumerate(work):
        for _ in range(3):
            left[0] = choice.randrange(1, 8)
            try:
                run = StreamRun(LocalSession(), text, {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"), 3)
                run.take(number, {} if file is None else {"a": [str(file)]}, ends=file is None)
            except Died:
                deaths += 1
        left[0] = 0
        run = StreamRun(LocalSession(), text, {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"), 3)
        run.take(number, {} if file is None else {"a": [str(file)]}, ends=file is None)
    assert deaths
    check(tmp_path / "out", text, tmp_path / "all.parquet")
    assert not list((tmp_path / "out").glob("_staging*"))


def test_a_map_and_what_is_refused_in_batches(tmp_path: Path) -> None:
    text = CREATE.format(name="a", delay="") + "CREATE QUERY q AS SELECT ts, v FROM a"
    (tmp_path / "1.csv").write_text("when,v\n03.02.2024 10:00,1\n2024-02-03,2\n")
    (tmp_path / "2.csv").write_text("when,v\n03.02.2024 10:01,3\n")
    told: list[str] = []
    where = {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check")
    run = StreamRun(LocalSession(), text, *where, 2, ["ts=when"], ["%d.%m.%Y %H:%M"], told.append)
    for number in (1, 2):
        run.take(number, {"a": [str(tmp_path / f"{number}.csv")]})
    run.end()
    assert [row["v"] for row in answer(tmp_path / "out")] == [1, 3]
    assert told[1:] == ["batch 1: 1 file of a; q 1 result", "batch 2: 1 file of a; q 1 result", "batch 3: the streams end; q 0 results"]
    assert told[0].startswith("batch 1: a: ")
    assert "1 of 2 rows refused" in told[0]
    assert "line 3" in told[0]
    with pytest.raises(SourceError, match="another --map or --time-format"):
        StreamRun(LocalSession(), text, *where, 2, ["ts=when"])


def test_items_of_lists_in_batches(tmp_path: Path) -> None:
    text = CREATE.format(name="a", delay="") + "CREATE QUERY q AS SELECT a.k, u.item FROM a CROSS JOIN UNNEST(ARRAY[k, v]) AS u(item)"
    table = rows(np.random.default_rng(2), 60)
    run = StreamRun(LocalSession(), text, {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"), 3)
    for number in range(3):
        parquet.write_table(table.slice(number * 20, 20), tmp_path / f"{number}.parquet")
        run.take(number, {"a": [str(tmp_path / f"{number}.parquet")]})
    run.end()
    parquet.write_table(table, tmp_path / "all.parquet")
    check(tmp_path / "out", text, tmp_path / "all.parquet")


def test_a_task_that_outlives_its_driver_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves a file in a folder while the next run removes that, and names its state while that is forgotten."""
    text = CREATE.format(name="a", delay="") + "CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM a [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
    aside, state = tmp_path / "out" / "_staging-0", tmp_path / "check" / "state"
    aside.mkdir(parents=True)
    state.mkdir(parents=True)
    (aside / "early").touch()
    late = [aside / "late"]
    unlink = os.unlink

    def outlived(path: Any, **named: Any) -> None:
        unlink(path, **named)
        if late:
            late.pop().touch()

    monkeypatch.setattr(os, "unlink", outlived)
    run = StreamRun(LocalSession(), text, {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"), 3)
    assert not late
    (state / ".named").touch()
    iterdir = Path.iterdir

    def renamed(folder: Path) -> list[Path]:
        found = list(iterdir(folder))
        (state / ".named").rename(state / "named")
        return found

    monkeypatch.setattr(Path, "iterdir", renamed)
    run._forget()
    monkeypatch.undo()
    run.take(0, {})
    assert not list((tmp_path / "out").glob("_staging*"))
    assert not list(state.iterdir())


def test_another_script_is_refused_a_checkpoint(tmp_path: Path) -> None:
    text = CREATE.format(name="a", delay="") + "CREATE QUERY q AS SELECT k FROM a"
    StreamRun(LocalSession(), text, {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"))
    with pytest.raises(SourceError, match="belongs to another script"):
        StreamRun(LocalSession(), text + " WHERE v > 3", {"a": "in"}, {"q": str(tmp_path / "out")}, str(tmp_path / "check"))


def test_a_query_without_an_output_and_a_script_that_acts_as_a_whole_are_refused(tmp_path: Path) -> None:
    text = CREATE.format(name="a", delay="") + "CREATE QUERY q AS SELECT k FROM a"
    with pytest.raises(SourceError, match="query q has no output"):
        StreamRun(LocalSession(), text, {"a": "in"}, {}, str(tmp_path / "check"))
    with pytest.raises(SourceError, match="cannot run over batches"):
        StreamRun(LocalSession(), text + "; SHOW STREAMS", {"a": "in"}, {"q": "out"}, str(tmp_path / "check"))


def test_floats_are_compared() -> None:
    assert not close({"x": 1.0}, {"x": 1.1})


KILLS = 2
COMMAND_SECONDS_MAX = 240


class Command:
    """`millstream spark stream` over a folder in which 1,000 rows of a table arrive for each kill, and the others at last."""

    TEXT = CREATE.format(name="a", delay=" DELAY 1 SECOND") + (
        "CREATE QUERY q AS SELECT k, COUNT(*) AS n, LAST(v) AS l, window_end FROM a [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k;"
    )

    def __init__(self, folder: Path, table: Any, master: str) -> None:
        self._folder, self._table = folder, table
        (folder / "script.sql").write_text(self.TEXT)
        (folder / "in").mkdir()
        parquet.write_table(table, folder / "all.parquet")
        program = Path(sys.executable).with_name("millstream")
        self._words = [str(program), "spark", "stream", "script.sql", "--source", "a=in", "--output", "q=out", "--checkpoint", "check"]
        self._words += ["--master", master, "--partitions", "3"]

    def give(self, number: int, rows: int | None = 1_000) -> None:
        parquet.write_table(self._table.slice(number * 1_000, rows), self._folder / "part")
        (self._folder / "part").rename(self._folder / "in" / f"{number}.parquet")

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run it, and kill it at the end with all processes of its group; Java ends with its input."""
        said = self._folder / "said"
        with said.open("wb") as file, subprocess.Popen(self._words, cwd=self._folder, start_new_session=True, stderr=file) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def finish(self) -> None:
        """Give the other rows, run it to the end, and compare all results with those of `millstream run`."""
        self.give(KILLS, None)
        subprocess.run([*self._words, "--finish"], cwd=self._folder, check=True, timeout=COMMAND_SECONDS_MAX, capture_output=True)
        check(self._folder / "out", self.TEXT, self._folder / "all.parquet")


@pytest.mark.cluster
@pytest.mark.timeout(1200)
def test_a_command_that_is_killed_gives_each_result_once(tmp_path: Path) -> None:
    """The driver and all its processes are killed once some results stand, the command is run again, and at last the streams end."""
    command = Command(tmp_path, rows(np.random.default_rng(3), 4_000), "local[2]")
    for kill in range(KILLS):
        command.give(kill)
        with command.running() as process:
            wait_for(partial(batches_begun, tmp_path), kill + 1, process)
    command.finish()


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_python_workers_that_are_killed_cost_no_result(tmp_path: Path) -> None:
    """Spark runs the tasks of a worker that died again: of a batch some parts are then written twice, and one of them counts."""
    command = Command(tmp_path, rows(np.random.default_rng(8), 6_000), f"local[2,{KILLS + 2}]")
    with command.running() as process:
        for kill in range(KILLS):
            command.give(kill)
            wait_for(partial(python_workers_killed, process.pid), 1, process)
            wait_for(partial(batches_done, tmp_path), kill + 1, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(COMMAND_SECONDS_MAX) == 0
    said = (tmp_path / "said").read_text()
    assert said.splitlines()[-1] == "stopped; the same command goes on from here"
    command.finish()


def python_workers_killed(session: int) -> int:
    """Kill the Python processes in which tasks of a session of processes run; returns how many there were."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (path / "cmdline").read_bytes():
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    parents[int(path.name)] = int(fields[1])
        except OSError:
            continue
    workers = [pid for pid, parent in parents.items() if parent in parents]
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    return len(workers)


def batches_done(folder: Path) -> int:
    """Return how many batches are committed."""
    return len(list((folder / "check" / "commits").glob("[0-9]*.json")))


def batches_begun(folder: Path) -> int:
    """Return how many batches have begun to leave something: the kill comes before, at or after a commit."""
    aside = {int(p.name.partition("-")[2]) for p in (folder / "out").glob("_staging-*")}
    done = {int(p.stem) for p in (folder / "check" / "commits").glob("[0-9]*.json")}
    return max(aside | done, default=-1) + 1


def wait_for(count: Callable[[], int], least: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    while count() < least:
        assert process.poll() is None, "the command ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)
