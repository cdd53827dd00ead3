"""Steps are cut before they run, a value has a greatest size, and what cannot be cut ends at a stated bound (K8)."""

from __future__ import annotations

import pytest
from millstream.engine.data import limits
from millstream.engine.data.errors import BoundReached
from millstream.engine.data.work import Step
from millstream.engine.expressions import compile as compile_module
from millstream.engine.expressions import text_functions
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import Kernel
from millstream.engine.runtime.executor import Executor

from tests.support.engine_run import SqlEngine

SECOND = 1_000_000
CREATES = (
    "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts",
    "CREATE STREAM w (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 1 HOUR",
)


def engine_of(query: str) -> SqlEngine:
    engine = SqlEngine(*CREATES)
    engine.select(query)
    return engine


def fill(engine: SqlEngine, stream: str, rows: int) -> None:
    engine.put(stream, [(i * SECOND, 1, float(i), f"t{i}") for i in range(rows)])


def test_a_step_that_has_had_its_processor_time_ends_the_query_and_says_which_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALL_VALUES_MAX", 100)
    engine = engine_of("SELECT MEDIAN(v) AS m FROM w [ROWS 50]")
    spent = iter(range(0, 10**12, SECOND * 1_000))  # a second of the processor's time each time somebody looks
    engine.executor = Executor(engine.network, processor_ns=lambda: next(spent), step_ns_max=2_000_000_000)
    engine.failures_expected = True
    fill(engine, "w", 400)
    engine.work()
    assert not engine.hooks.failures  # rows wait for W, which costs nothing
    engine.end("w")
    engine.work()
    (error,) = engine.hooks.failures
    assert isinstance(error, BoundReached)
    assert "step_s_max allows 2 s" in str(error)
    assert engine.network.memory.ended == 1


def test_a_busy_machine_ends_no_query() -> None:
    engine = engine_of("SELECT MEDIAN(v) AS m FROM w [ROWS 50]")
    engine.executor = Executor(engine.network, processor_ns=lambda: 0, step_ns_max=1)
    engine._now = 10**15  # however late it is by the other clock
    fill(engine, "w", 400)
    engine.end("w")
    engine.work()
    assert len(engine.rows("q")) == 400


@pytest.mark.parametrize(
    ("query", "bound", "rows_max"),
    [
        ("SELECT a.v, b.t FROM s AS a JOIN s AS b ON a.k = b.k WITHIN 1 HOUR", "CALL_PAIRS_MAX", 60),
        ("SELECT MEDIAN(v) AS m FROM s [ROWS 1000000]", "CALL_VALUES_MAX", 60),
        ("SELECT STRING_AGG(t) AS m FROM s [RANGE 1 HOUR]", "CALL_VALUES_MAX", 60),
    ],
)
def test_a_step_takes_no_more_rows_than_its_work_allows(query: str, bound: str, rows_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine_of(query)
    fill(whole, "s", 300)
    whole.end("s")
    whole.work()
    monkeypatch.setattr(limits, bound, 1_500)
    engine = engine_of(query)
    fill(engine, "s", 300)
    heavy = next(o.id for o in engine.network.operators.values() if o.logic.state_fields)
    for operator in list(engine.network.operators)[: list(engine.network.operators).index(heavy)]:
        engine.run_order(Step(operator))
    steps, taken = 0, 0
    while taken < 300 * len(engine.network.operators[heavy].inputs):
        receipt = engine.run_order(Step(heavy))
        took = sum(c.rows for step in receipt.each_step() for c in step.consumed)
        assert 0 < took <= 2 * rows_max
        steps, taken = steps + 1, taken + took
    assert steps > 5
    engine.end("s")
    engine.work()
    assert engine.rows("q") == whole.rows("q")


@pytest.mark.parametrize(
    "made",
    ["REPEAT(t, 30)", "t || t || t || t || t || REPEAT(t, 20)", "LPAD(t, 200)", "RPAD(t, 200)", "REPLACE(t, 't', REPEAT('x', 99))"],
)
def test_a_text_that_would_be_too_long_is_null_and_counted(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_functions, "TEXT_BYTES_MAX", 100)
    engine = engine_of(f"SELECT {made} AS x FROM s WHERE k = 1")
    engine.put("s", [(0, 1, 0.0, "ttttt"), (1, 1, 0.0, ""), (2, 1, 0.0, None)])
    engine.end("s")
    engine.work()
    assert engine.rows("q")[0] == (None,)
    assert engine.account("q")["s"].failed >= 1
    assert {e.reason for _, _, e in engine.hooks.errors} == {"text too long"}


def test_a_text_that_doubles_at_each_of_many_projections_is_worked_out_once_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = 0

    def counted(self: compile_module._Compiler, call: Call) -> Kernel:
        nonlocal compiled
        compiled += 1
        return whole(self, call)

    whole = compile_module._Compiler._call
    monkeypatch.setattr(compile_module._Compiler, "_call", counted)
    query = "SELECT t FROM s"
    for _ in range(14):
        query = f"SELECT t || t AS t FROM ({query})"
    engine = engine_of(query)
    engine.put("s", [(i, 1, 0.0, text) for i, text in enumerate(["ab", "", None] * 10)])
    engine.end("s")
    engine.work()
    assert engine.rows("q") == [("ab" * 2**14,), ("",), (None,)] * 10
    assert compiled < 500


def test_a_join_of_tables_that_makes_too_many_pairs_ends_at_a_stated_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SqlEngine("CREATE TABLE p (k BIGINT, PRIMARY KEY (k))", "CREATE TABLE q (k BIGINT, PRIMARY KEY (k))")
    engine.select("SELECT p.k AS a, q.k AS b FROM p CROSS JOIN q")
    engine.failures_expected = True
    for table, rows in (("p", 150), ("q", 150)):
        engine.put(table, [(k, "+") for k in range(rows)])
        engine.work()
    assert len(engine.rows("q")) == 150 * 150
    monkeypatch.setattr(limits, "COLUMN_BYTES_MAX", limits.CLAIM_BYTES_MIN)
    engine.put("q", [(k, "+") for k in range(150, 300)])
    engine.work()
    (error,) = engine.hooks.failures
    assert isinstance(error, BoundReached)
    assert "a join's output needs" in str(error)
