"""FETCH answers alike in the server's process, where `millstream run` computes it, and in one of its own, which ends with the server."""

from __future__ import annotations

import random
import signal
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateStream
from millstream.engine.plan.plan import PlanOptions, plan_select
from millstream.server.functions.process import Confinement
from millstream.server.host.contract import HeldBlock, HeldRows
from millstream.server.once import worker as worker_module
from millstream.server.once.question import Question, answer_of
from millstream.server.once.worker import FetchBounds, Worker

from tests.property.test_sharing import STREAM, query_text
from tests.support.catalogs import catalog_of
from tests.support.engine_run import SECOND, columns_of


def asked(seed: int, rows: int) -> Question:
    """Return a random SELECT over random rows, in blocks of random lengths."""
    draw = random.Random(seed)
    statement = parse_statement(STREAM)
    assert isinstance(statement, CreateStream)
    definition = statement.definition
    values: list[tuple[Any, ...]] = [
        (at * SECOND // 4, draw.choice((1, 2, None)), draw.randrange(10), draw.choice((0.5, -1.25, None))) for at in range(rows)
    ]
    blocks, seq = [], 0
    while seq < rows:
        size = draw.randint(1, 30)
        blocks.append(HeldBlock(seq, columns_of(definition.schema, values[seq : seq + size])))
        seq += size
    physical = plan_select(query_text(draw), catalog_of([STREAM]), options=PlanOptions(finite=True)).physical
    return Question(physical, {"s": HeldRows(definition, rows, lambda: iter(blocks), missing=3)}, info={"position": rows})


def test_a_question_has_one_answer_wherever_it_is_computed() -> None:
    worker = Worker(FetchBounds(2**30, 60.0, 2**26), Confinement())

    @given(seed=st.integers(0, 2**32), rows=st.integers(0, 200))
    @settings(max_examples=40, deadline=None)
    def check(seed: int, rows: int) -> None:
        question = asked(seed, rows)
        here, apart = answer_of(question), worker.ask(question, lambda: False)
        assert here.answer is not None
        assert apart.answer is not None
        assert apart.answer.schema == here.answer.schema
        assert [r for b in apart.answer.batches for r in b.to_pylist()] == [r for b in here.answer.batches for r in b.to_pylist()]
        assert (apart.notices, apart.info) == (here.notices, here.info)
        assert worker.starts == 1

    try:
        check()
    finally:
        worker.close()


def test_a_process_that_is_being_ended_is_still_killed_by_a_server_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that ends it dies with the server, which may be after the process was stopped and before it was killed."""
    worker = Worker(FetchBounds(2**30, 60.0, 2**26), Confinement())
    worker.ask(asked(1, 10), lambda: False)
    found: list[subprocess.Popen[bytes]] = []

    def cut_off(process: subprocess.Popen[bytes], lifeline: int) -> None:
        found.append(process)
        process.send_signal(signal.SIGSTOP)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(worker_module, "end", cut_off)
        with pytest.raises(SystemExit):
            worker.close()
    (process,) = found
    try:
        worker.kill()
        assert process.wait(10) == -signal.SIGKILL
    finally:
        process.kill()
        worker.close()
