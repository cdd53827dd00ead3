"""What a worker loads before the first rows come: later it would seem to be these rows' cost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from millstream.server.workers.pool import Workers
from millstream.server.workers.process import Installed, StepFailed, Worker

from tests.server.workers.test_faults import bomb
from tests.server.workers.test_orders import QUERIES, SECOND, STREAM
from tests.support.engine_run import SqlEngine
from tests.support.tree import ROOT
from tests.support.worker_pools import Pool

TELL = "(_ for _ in ()).throw(LookupError(' '.join(__import__('sys').modules)))"


def modules_of(worker: Worker, key: int) -> set[str]:
    """The modules of others that a worker has loaded; its own come with the operators, which are no rows' cost."""
    with pytest.raises(StepFailed) as told:
        worker.ask((Installed(key, bomb(TELL), None),), lambda writer, telling: ["nothing"])
    kind, *names = str(told.value).split()
    assert kind == "LookupError:"
    return {name for name in names if not name.startswith("millstream.")}


def test_the_first_rows_load_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.engine.chains.fused.ROWS_HERE_MAX", 0)
    pool = Pool(1)
    try:
        worker = pool.workers[0]
        before = modules_of(worker, -1)
        engine = SqlEngine(STREAM)
        Workers(engine.network, pool.workers, pool.segments)
        for name, text in QUERIES.items():
            engine.select(text, name)
        engine.put("s", [(at * SECOND, at % 3, 1.0 * (at % 4), "some text") for at in range(40)])
        engine.end("s")
        engine.work()
        assert worker.calls > len(QUERIES)
        assert all(engine.rows(name) for name in QUERIES)
        assert modules_of(worker, -2) - before == set()
    finally:
        pool.close()


def loaded_by_rows() -> list[str]:
    """Return the modules that the first rows load in the process that has the workers; for a process of its own."""
    pool = Pool(1)
    try:
        engine = SqlEngine(STREAM)
        Workers(engine.network, pool.workers, pool.segments)
        for name, text in QUERIES.items():
            engine.select(text, name)
        before = set(sys.modules)
        for rows in (1, 40):
            engine.put("s", [(at * SECOND, at % 3, 1.0 * (at % 4), "some text") for at in range(rows)])
            engine.work()
        assert all(engine.rows(name) for name in QUERIES)
        return sorted(set(sys.modules) - before)
    finally:
        pool.close()


def test_the_first_rows_load_no_code_in_the_server_either() -> None:
    script = "from tests.server.workers.test_first_calls import loaded_by_rows; print(loaded_by_rows())"
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout == "[]\n"


def test_a_worker_takes_up_an_aggregate_that_another_query_brings_to_a_running_synopsis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.engine.chains.fused.ROWS_HERE_MAX", 0)
    pool = Pool(1)  # of its own: a worker that had such a state before has loaded what it is made of
    try:
        engine = SqlEngine(STREAM, sharing=True)
        Workers(engine.network, pool.workers, pool.segments)
        for name, asked in (("count", "COUNT(*)"), ("different", "APPROX_COUNT_DISTINCT(t)"), ("middle", "APPROX_PERCENTILE(v, 0.5)")):
            engine.select(f"SELECT k, {asked} AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k", name)
        engine.put("s", [(at * SECOND, at % 2, float(at % 2), f"text {at}") for at in range(40)])
        engine.end("s")
        engine.work()
        assert len({engine.deltas[name].query.operators[1] for name in ("count", "different", "middle")}) == 1
        assert pool.workers[0].calls
        assert sum(row[1] for row in engine.rows("count")) == sum(row[1] for row in engine.rows("different")) == 40
        assert {row[:2] for row in engine.rows("middle")} == {(0, 0.0), (1, 1.0)}
    finally:
        pool.close()
