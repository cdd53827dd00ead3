"""Orders over parts of inputs, at a desk in this process: what is cut or fails in the midst of a call, and what is told once."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from millstream.engine.data import limits
from millstream.engine.data.allowance import CutAt, TooMuchAtOnce
from millstream.engine.data.errors import BoundReached
from millstream.engine.data.train import Train
from millstream.engine.data.work import Step
from millstream.engine.flow.running import Pending, outcome
from millstream.engine.language.recipes import JoinRecipe
from millstream.server.workers import process
from millstream.server.workers.desk import Desk
from millstream.server.workers.pool import Workers, worker_of
from millstream.server.workers.process import Answer, Asked, Installed, KeptCall, StepFailed, Telling, Worker, WorkerBounds
from millstream.server.workers.segments import SharedSegments
from millstream.server.workers.wire import Reader, Writer

from tests.support.engine_run import SECOND, SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts"
QUERIES = {
    "rows": "SELECT ts, k, v * 2 AS w, t FROM s WHERE v > 1.5",
    "panes": "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS] WHERE v > 0.5 GROUP BY k",
    "ordered": "SELECT k, MAX(v) AS high FROM s [RANGE 9 SECONDS] GROUP BY k",
    "sessions": "SELECT k, COUNT(*) AS n FROM s [SESSION 3 SECONDS] GROUP BY k",
    "pairs": "SELECT l.k, l.v AS a, r.v AS b FROM s AS l JOIN s AS r ON l.k = r.k WITHIN 2 SECONDS",
}
Spoil = Callable[[Any, Sequence[Any]], None]


class CountedTelling(Telling):
    parts = 0

    def train(self, writer: Writer, train: Train) -> Any:
        self.parts += train.rows > 1
        return super().train(writer, train)


class Here:
    """A worker whose desk is in this process."""

    def __init__(self, spoil: Spoil | None = None, budget_ns: int | None = None) -> None:
        self.budget_ns = budget_ns
        self.put_off = 0
        nothing: Any = type("NoSegments", (), {"base": None, "take_released": staticmethod(list)})()
        self.desk = Desk(nothing, SharedSegments(0), 0)
        self.telling = CountedTelling()
        self.number, self.pid, self.deaths, self.busy_ns, self.calls, self.last_end = 1, 0, 0, 0, 0, ""
        self.operators: dict[int, Any] = {}
        self.messages: list[int] = []
        self.costs: list[int] = []
        self.told_trains = 0
        if spoil is not None:
            built = self.desk._built

            def spoilt(about: Any, state: Any) -> Any:
                made = built(about, state)
                work = made.logic.process

                def process(inputs: Any, out: Any) -> None:
                    spoil(made.logic, inputs)
                    work(inputs, out)

                made.logic.process = process
                return made

            self.desk._built = spoilt  # type: ignore[method-assign]

    def ask_all(self, asked: Sequence[Asked], budget_ns: int | None) -> Pending[list[Any]]:
        yield
        writer, calls = Writer(), []
        for one in asked:
            fresh = [installed for installed in one.operators if installed.at != 1]
            for installed in fresh:
                installed.at = 1
            calls.append([[installed.told(writer) for installed in fresh], one.compose(writer, self.telling)])
        fresh_trains = self.telling.take_fresh()
        self.told_trains += len(fresh_trains)
        body = [[], self.telling.take_forgotten(), [], fresh_trains, calls, self.budget_ns]
        reader = Reader(*_sent(self.desk.answer(*_sent(writer.parts(body)), lambda call: None)))
        self.messages.append(len(asked))
        answers: list[Any] = []
        for told, cost_ns, claimed in reader.body[0]:
            if told[0] == "late":
                self.put_off += 1
                answers.append(None)
                continue
            self.calls += 1
            self.costs.append(cost_ns)
            answers.append(self.error(told) if told[0] in ("cut", "error") else Answer(reader, told, cost_ns, claimed, 1))
        return answers

    def ask(self, operators: Any, compose: Any) -> Any:
        (answer,) = outcome(self.ask_all((Asked(operators, compose),), None))
        return answer

    def keep(self, one: Installed, call: KeptCall, answer: Answer) -> None:
        one.keep(call)

    def stand(self, one: Installed, snapshot: Any, answer: Answer) -> None:
        one.stand(snapshot)

    def error(self, told: list[Any]) -> Exception:
        return process._error(told, WorkerBounds(1 << 30, 0.0))

    def drop(self, installed: Any) -> None:
        self.operators.pop(installed.key, None)

    def close(self) -> None:
        pass


def _sent(message: Any) -> tuple[bytes, bytes]:
    head, bodies, size = message
    whole = np.zeros(size, dtype=np.uint8)
    process_at = 0
    for body in bodies:
        whole[process_at : process_at + body.nbytes] = body.reshape(-1).view(np.uint8)
        process_at += body.nbytes + -body.nbytes % 8
    return head, whole.tobytes()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOINED_ROWS_MAX", 8)
    monkeypatch.setattr(process, "ROWS_PLACED_MIN", 2)
    monkeypatch.setattr("millstream.engine.chains.fused.ROWS_HERE_MAX", 0)


def engine_with(worker: Here | None, **how: Any) -> SqlEngine:
    engine = SqlEngine(STREAM, **how)
    if worker is not None:
        there: Any = worker
        Workers(engine.network, [there], SharedSegments(0))
    for name, text in QUERIES.items():
        engine.select(text, name)
    return engine


def batches(choice: random.Random) -> Iterator[list[tuple[Any, ...]]]:
    at = 0
    for _ in range(30):
        rows = []
        for _ in range(choice.randint(1, 12)):
            at += choice.randint(0, 2)
            rows.append((at * SECOND, choice.randint(0, 3), choice.random() * 4, choice.choice(["a", None, "ä" * 9])))
        yield rows


def work(engine: SqlEngine) -> None:
    """All queries in one order, then what is left."""
    operators = [o for delta in engine.deltas.values() for o in delta.query.operators if o in engine.network.operators]
    engine.run_order(*map(Step, dict.fromkeys(operators)))
    engine.work()


def answers(engine: SqlEngine, seed: int) -> dict[str, Any]:
    choice = random.Random(seed)
    for number, rows in enumerate(batches(choice)):
        engine.put("s", rows)
        if number % 7 == 6:
            work(engine)
    engine.end("s")
    work(engine)
    return {name: engine.rows(name) for name in QUERIES}


def test_parts_of_inputs_go_in_few_messages_each_train_once_and_the_answers_are_the_same(seed: int) -> None:
    worker = Here()
    assert answers(engine_with(worker), seed) == answers(engine_with(None), seed)
    assert worker.calls > 20
    assert worker.told_trains < worker.telling.parts * 0.7, "what several operators take is told once"
    assert max(worker.messages) >= 3


def test_calls_that_are_put_off_run_later_and_the_answers_are_the_same(seed: int) -> None:
    worker = Here(budget_ns=0)
    assert answers(engine_with(worker), seed) == answers(engine_with(None), seed)
    assert worker.put_off


def test_operators_that_are_put_off_before_they_have_ever_run_are_there_when_they_do() -> None:
    worker = Here(budget_ns=0)
    found = []
    for engine in (engine_with(worker), engine_with(None)):
        engine.put("s", [(at * SECOND, at % 3, 2.0, None) for at in range(40)])
        engine.end("s")
        firsts = [engine.deltas[name].query.operators[1] for name in ("ordered", "sessions")]
        engine.run_order(*map(Step, firsts))
        found.append(engine)
    assert (worker.messages, worker.put_off) == ([2], 1)
    for engine in found:
        engine.work()
    assert {name: found[0].rows(name) for name in QUERIES} == {name: found[1].rows(name) for name in QUERIES}
    assert found[0].rows("sessions")


def test_an_operator_that_cannot_be_built_says_so_to_each_call_that_wants_it() -> None:
    here = Here()
    installed = [Installed(key, pickle.dumps("no operator"), None) for key in (1, 2)]
    for asked in ([installed[0]], [installed[0]], installed):
        told = here.ask(asked, lambda writer, telling: ["snapshot", 1])
        assert isinstance(told, StepFailed)
        assert "unpack" in str(told)


def test_what_a_first_call_builds_is_no_cost_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0

    class Clock:
        perf_counter_ns = staticmethod(lambda: now_ns)

    monkeypatch.setattr("millstream.server.workers.desk.time", Clock)
    worker = Here()
    built, program = worker.desk._built, worker.desk._program

    def slow(make: Any) -> Any:
        def made(*how: Any) -> Any:
            nonlocal now_ns
            now_ns += SECOND * 1_000
            return make(*how)

        return made

    worker.desk._built, worker.desk._program = slow(built), slow(program)  # type: ignore[method-assign]
    answers(engine_with(worker), 7)
    assert now_ns > 0
    assert worker.costs
    assert not any(worker.costs)


def test_a_part_that_is_too_much_at_once_is_put_back_and_those_before_it_count(seed: int) -> None:
    choice, spoilt = random.Random(seed), []

    def spoil(logic: Any, inputs: Sequence[Any]) -> None:
        train = inputs[0]
        if len(inputs) == 1 and train.rows > 1 and choice.random() < 0.4:
            seqs = train.seq.array()
            if seqs[0] != seqs[-1]:
                spoilt.append(type(logic).__name__)
                raise CutAt(int(seqs[len(seqs) // 2])) if logic.stateful else TooMuchAtOnce("too much")

    assert answers(engine_with(Here(spoil)), seed) == answers(engine_with(None), seed)
    assert spoilt


def test_what_a_part_raises_ends_its_query_behind_the_results_of_those_before(seed: int) -> None:
    seen = 0

    def spoil(logic: Any, inputs: Sequence[Any]) -> None:
        nonlocal seen
        if "Session" in type(logic).__name__:
            seen += bool(inputs[0].rows)
            if seen == 12:
                raise BoundReached("enough")

    worker = Here(spoil)
    engine, whole = engine_with(worker), answers(engine_with(None), seed)
    engine.failures_expected = True
    found = answers(engine, seed)
    assert [str(error) for error in engine.hooks.failures] == ["enough"]
    assert {name: rows for name, rows in found.items() if name != "sessions"} == {n: r for n, r in whole.items() if n != "sessions"}
    assert 0 < len(found["sessions"]) < len(whole["sessions"])
    assert found["sessions"] == whole["sessions"][: len(found["sessions"])]


def test_the_parts_of_a_split_query_are_in_different_workers_which_are_asked_at_once(seed: int) -> None:
    workers, log = [Here(), Here()], list[tuple[str, int]]()
    for number, worker in enumerate(workers, 1):
        worker.number = number
        worker.ask_all = partial(_noted, worker.ask_all, log, number)  # type: ignore[method-assign]
    split, whole = SqlEngine(STREAM), SqlEngine(STREAM)
    there: Any = workers
    pool = Workers(split.network, there, SharedSegments(0))
    text = QUERIES["panes"]
    delta = split.select(f"{text} WITH (split = 2)", "windows")
    whole.select(text, "windows")
    placed = [pool.why(operator) for operator in delta.query.operators]
    assert {why.rpartition(", as ")[2] for why in placed if " part " in why} == {"part 1 of 2", "part 2 of 2"}
    assert [len(group) for group in pool.groups() if worker_of(group[0]) == 1 and group[0].elsewhere.part is not None]
    for rows in batches(random.Random(seed)):
        split.put("s", rows)
        whole.put("s", rows)
        split.run_order(*map(Step, delta.query.operators))
    at_once = [("asked", 1), ("asked", 2), ("done", 2), ("done", 1)]  # in this order nobody waits for ever for a way that another has
    assert at_once in [log[place : place + 4] for place in range(len(log))], "one worker waited for the other"
    for engine in (split, whole):
        engine.end("s")
        engine.work()
    assert split.rows("windows") == whole.rows("windows")
    assert split.rows("windows")


def test_a_part_of_a_join_is_with_its_own_rows_where_the_two_streams_differ() -> None:
    workers: list[Any] = [Here(), Here()]
    workers[1].number = 2
    engine = SqlEngine(STREAM, "CREATE STREAM r (ts TIMESTAMP, w TEXT, k INT) TIMESTAMP BY ts")
    Workers(engine.network, workers, SharedSegments(0))
    delta = engine.select("SELECT s.v, r.w FROM s JOIN r ON s.k = r.k WITHIN 2 SECONDS WITH (split = 2)")
    found = [engine.network.operators[one] for one in delta.query.operators if one in engine.network.operators]
    joins = {worker_of(one) for one in found if isinstance(one.recipe, JoinRecipe)}
    assert joins == {1, 2}


def _noted(ask_all: Any, log: list[tuple[str, int]], number: int, asked: Any, budget_ns: Any) -> Pending[list[Any]]:
    log.append(("asked", number))
    found = yield from ask_all(asked, budget_ns)
    log.append(("done", number))
    return found


assert Worker.ask_all  # what `Here` stands for
