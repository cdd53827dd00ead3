"""A fault stays with its query: a step that ends its worker, takes too long, or wants too much memory; the others go on."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.engine.data.errors import BoundReached
from millstream.scheduler.placement import Move
from millstream.server.errors import TooMany
from millstream.server.run.embedded import Replay, run_replay
from millstream.server.workers import operators
from millstream.server.workers.operators import Placed, UnderWay
from millstream.server.workers.process import Answer, Incarnation, Installed, WorkerBounds, WorkerLost

from tests.support.leaks import child_processes
from tests.support.live_server import Harness, run
from tests.support.worker_pools import Pool, replays_served_by

SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT, x BIGINT) TIMESTAMP BY ts UNIT s;
SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k;
SELECT x, COUNT(*) AS n FROM s [SESSION 3 SECONDS] GROUP BY x;
SELECT k, MAX(x) AS high FROM s [RANGE 8 SECONDS] GROUP BY k
"""


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


class Bomb:
    """Goes off when a worker builds an operator of it."""

    def __init__(self, expression: str) -> None:
        self.expression = expression

    def __reduce__(self) -> Any:
        return eval, (self.expression,)


def bomb(expression: str) -> bytes:
    return pickle.dumps(Bomb(expression))


CRASH = bomb("__import__('os').abort()")
SPIN = bomb("any(_ for _ in iter(int, 1))")  # endless, and takes no memory: a list would reach the other bound first on a fast machine
HUNGER = bomb("bytearray(1 << 40)")
BOUNDS = WorkerBounds(memory_bytes_max=1 << 28, step_s_max=0.2, spare_s=0.1)


def timeline(folder: Path, rows: int = 60) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"stream": "s", "row": {"ts": i, "k": i % 3, "x": i * i % 11}}) + "\n" for i in range(rows)))
    return path


def replayed(path: Path) -> tuple[str | None, list[list[Any]]]:
    outcome = run_replay(Replay(SCRIPT, (), path, "fcfs", 1, 7))
    return outcome.failure, [[row for batch in r.batches for row in pa.RecordBatch.to_pylist(batch)] for r in outcome.results]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        (CRASH, "it ended its worker again when that took up what it had done before"),
        (SPIN, "step_s_max"),
        (HUNGER, "worker_bytes_max"),
    ],
    ids=["crash", "endless", "memory"],
)
def test_a_step_at_fault_ends_its_query_and_no_other(about: bytes, why: str, tmp_path: Path) -> None:
    path = timeline(tmp_path)
    failure, alone = replayed(path)
    assert failure is None
    pool, calls = Pool(1, BOUNDS), 0
    with pytest.MonkeyPatch.context() as patch:
        do = Placed.do

        def spoilt(self: Placed, asked: Any, budget_ns: int | None) -> Any:
            nonlocal calls
            for placed in [operator.elsewhere for call in asked for operator in call.operators]:
                if type(placed._running.logic).__name__ == "FoldedSessions":
                    calls += 1
                    if calls == 3:
                        placed.installed.about, placed.installed.at = about, 0
            return do(self, asked, budget_ns)

        patch.setattr(Placed, "do", spoilt)
        try:
            with replays_served_by(pool, 1):
                failure, found = replayed(path)
        finally:
            pool.close()
    assert failure is not None
    assert "q2" in failure
    assert why in failure
    assert "q1" not in failure
    assert [found[0], found[2]] == [alone[0], alone[2]]


@pytest.mark.parametrize("calls_max", [operators.KEPT_CALLS_MAX, 1], ids=["kept", "snapshot"])
def test_a_call_that_was_answered_is_not_lost_when_its_worker_is_started_anew_before_that_is_noted(
    calls_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = timeline(tmp_path)
    _, alone = replayed(path)
    note, notes = Placed.note, 0

    def after_a_death(self: Placed, answer: Answer, done: UnderWay) -> None:
        nonlocal notes
        notes += 1
        if notes % 9 == 4:
            self.worker.kill()
            self.worker.ask((), lambda writer, telling: ["nothing"])  # as another thread does, for another operator
        note(self, answer, done)

    monkeypatch.setattr(operators, "KEPT_CALLS_MAX", calls_max)
    monkeypatch.setattr(Placed, "note", after_a_death)
    pool = Pool(1, BOUNDS)
    try:
        with replays_served_by(pool, 1):
            failure, found = replayed(path)
        assert pool.workers[0].deaths > 1
    finally:
        pool.close()
    assert (failure, found) == (None, alone)


@pytest.mark.parametrize("refused", ["memfd_create", "eventfd", "pidfd_open"])
@pytest.mark.parametrize("at", [1, 2])
def test_nothing_is_left_of_a_worker_that_cannot_be_started(refused: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = getattr(os, refused), 0

    def refusing(*how: Any) -> int:
        nonlocal asked
        asked += 1
        if asked == at or refused == "pidfd_open":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return int(made(*how))

    Incarnation(1, 1, BOUNDS).close()  # and with it what is started once
    gc.collect()
    before = descriptors(), child_processes()
    monkeypatch.setattr(os, refused, refusing)
    with pytest.raises(TooMany, match="no worker can be started: Too many open files"):
        Incarnation(1, 1, BOUNDS)
    monkeypatch.undo()
    assert (descriptors(), child_processes()) == before


def test_what_a_worker_is_asked_ends_with_the_reason() -> None:
    pool = Pool(1, BOUNDS)
    worker = pool.workers[0]
    try:
        first = worker.pid
        with pytest.raises(BoundReached, match="worker_bytes_max = 268435456"):
            worker.ask((Installed(1, HUNGER, None),), lambda writer, telling: ["nothing"])
        assert (worker.pid, worker.deaths) == (first, 0), "the process goes on"
        lost = Installed(2, CRASH, None)
        with pytest.raises(WorkerLost, match="SIGABRT"):
            worker.ask((lost,), lambda writer, telling: ["nothing"])
        assert (worker.deaths, worker.last_end) == (2, "it was ended by SIGABRT")
        with pytest.raises(WorkerLost, match="SIGABRT"):
            worker.ask((lost,), lambda writer, telling: ["nothing"])
        assert worker.deaths == 2, "and is not asked again"
        with pytest.raises(WorkerLost, match=r"more than 0\.2 s of the processor"):
            worker.ask((Installed(3, SPIN, None),), lambda writer, telling: ["nothing"])
        assert worker.deaths == 3, "a step that takes too long is not tried again"
        assert worker.ask((), lambda writer, telling: ["nothing"]).told == ["nothing"]
    finally:
        pool.close()


def trouble(harness: Harness, number: int, rng: np.random.Generator) -> None:
    """Let a group move, and end a worker."""
    pool = harness.server.application.workers
    assert pool is not None
    group = pool.groups()[number % len(pool.groups())]
    with harness.server.application.runtime.still():
        pool.move(Move((group[0].id,), 1 + number // 15 % len(pool.workers), "in a test"))
    pool.workers[int(rng.integers(len(pool.workers)))].kill()


@pytest.mark.parametrize("workers", [2])
def test_a_live_server_answers_alike_although_its_workers_are_killed(workers: int, rng: np.random.Generator) -> None:
    batches = [
        pa.record_batch(
            {
                "ts": pa.array(1_700_000_000_000_000 + np.arange(i * 500, (i + 1) * 500) * 20_000, pa.timestamp("us", "UTC")),
                "k": rng.integers(0, 9, 500),
                "x": rng.integers(0, 1_000, 500),
            }
        )
        for i in range(40)
    ]
    queries = {
        "w": "SELECT k, COUNT(*) AS n, SUM(x) AS s, window_end FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE x > 100 GROUP BY k",
        "j": "SELECT l.k, l.x AS lx, r.x AS rx FROM a AS l JOIN a AS r ON l.k = r.k AND l.x = r.x WITHIN 1 SECOND WHERE l.x < 200",
        "p": "SELECT k, x * 2 AS y FROM a WHERE x % 97 = 5",
    }

    async def answers(harness: Harness, is_killed: bool) -> dict[str, list[Any]]:
        client = await harness.client()
        await client.execute("CREATE STREAM a (ts TIMESTAMP, k BIGINT, x BIGINT) TIMESTAMP BY ts")
        readers = {}
        for name, text in queries.items():
            await client.execute(f"CREATE QUERY {name} AS {text}")
            readers[name] = await client.subscribe(name)
        publisher = await client.publisher("a")
        pool = harness.server.application.workers
        for number, batch in enumerate(batches):
            await publisher.send(batch)
            if is_killed and number % 15 == 10:
                trouble(harness, number, rng)
                await publisher.flush()
        if is_killed:
            shown = [tuple(row.values()) for row in await client.execute("SHOW WORKERS")]
            assert [row[0] for row in shown] == list(range(1, workers + 1))
            assert sum(row[3] for row in shown) >= 3
            assert sum(row[6] for row in shown) >= 1, "none has moved"
            explained = "\n".join(r["explanation"] for r in await client.execute("EXPLAIN w"))
            assert "in worker" in explained
            assert "in the server, as results leave from here" in explained
        await client.finish("a")
        found: dict[str, list[Any]] = {}
        for name, reader in readers.items():
            found[name] = [row async for batch in reader for row in batch.to_pylist()]
        if is_killed:
            assert pool is not None
            assert sum(w.deaths for w in pool.workers) >= 1
        return found

    found: list[dict[str, list[Any]]] = []

    async def take(harness: Harness, is_killed: bool) -> None:
        found.append(await answers(harness, is_killed))

    run(lambda harness: take(harness, False), workers=1)
    run(lambda harness: take(harness, True), workers=workers)
    assert found[1] == found[0]
    assert all(found[0].values())
