"""K15 over several streams and tables: queries of every kind come while rows wait, some leave, clocks tick, streams fall silent and end.

Each history is played once with every query on its own and all work done in one go, and again in other ways: operators shared, chains
unfused, trains cut, operators run in any order and only now and then. Queries that stayed answer the same, those that left a part of it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from math import isclose
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.train import Train
from millstream.engine.data.work import Step

from tests.property.random_queries import random_query
from tests.support.engine_run import SECOND, SqlEngine

ROUNDS = 16


@dataclass
class History:
    """Statements to begin with, and steps: (what, …)."""

    create: list[str]
    steps: list[tuple[Any, ...]] = field(default_factory=list)

    def texts(self) -> dict[str, str]:
        return {step[1]: step[2] for step in self.steps if step[0] == "add"}

    def left(self) -> set[str]:
        return {step[1] for step in self.steps if step[0] == "drop"}


def create_streams(choice: random.Random) -> list[str]:
    """Two streams with event time, one by arrival, a table."""
    idle = choice.choice(("", "", " IDLE 3 SECONDS", " IDLE 3 SECONDS FLUSH"))
    skew = "" if idle else choice.choice(("", "", " SKEW 4 SECONDS"))
    columns = "(ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts"
    delay = choice.choice(("", " DELAY 2 SECONDS", " DELAY 5 SECONDS"))
    return [
        f"CREATE STREAM a {columns}{delay}{skew}{idle}",
        f"CREATE STREAM b {columns}{choice.choice(('', delay))}{skew}{choice.choice((idle, ''))}",
        "CREATE STREAM c (k BIGINT, v BIGINT, x DOUBLE)",
        "CREATE TABLE t (k BIGINT, w BIGINT, PRIMARY KEY (k))",
    ]


class Author:
    """Writes a random history."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self.history = History(create_streams(self.choice))
        self.pool = [random_query(self.choice) for _ in range(self.choice.choice((2, 4, 12)))]  # few: the same query comes again
        self.alive: list[str] = []
        self.ended: set[str] = set()
        self.now = self.clock = 0

    def write(self) -> History:
        for _ in range(self.choice.randint(1, 4)):
            self._add()
        for _ in range(ROUNDS):
            self._step(self.choice.random())
        return self.history

    def _step(self, kind: float) -> None:
        steps = self.history.steps
        if kind < 0.5:
            self._rows(self.choice.choice("aaabbct"))
        elif kind < 0.58:
            self.clock += self.choice.choice((1, 2, 4)) * SECOND
            steps.append(("tick", self.clock))
        elif kind < 0.74:
            steps.append(("work",))
        elif kind < 0.9 or not self.alive:
            self._add()
        elif kind < 0.985:
            steps.append(("drop", self.alive.pop(self.choice.randrange(len(self.alive)))))
        elif not self.ended:
            self.ended.add(self.choice.choice("abc"))
            steps.append(("end", *self.ended))

    def _add(self) -> None:
        name = f"q{len(self.history.texts())}"
        self.history.steps.append(("add", name, self.choice.choice(self.pool)))
        self.alive.append(name)

    def _rows(self, stream: str) -> None:
        if stream not in self.ended:
            self.history.steps.append(("rows", stream, [self._row(stream) for _ in range(self.choice.randint(1, 9))]))

    def _row(self, stream: str) -> tuple[Any, ...]:
        choice = self.choice
        if stream == "t":
            return choice.randint(1, 3), choice.randint(0, 5), choice.choice("+++-")
        values = choice.choice((None, 1, 1, 2, 2, 3, 3)), choice.choice((None, *range(10))), choice.choice((0.5, -0.25, 1e9, 3.0, None))
        self.now += choice.choice((0, 0, 1, 1, 2, 9)) * SECOND // 2
        late = choice.choice((0, 0, 0, 1, 2, 5, 12)) * SECOND
        return values if stream == "c" else (self.now - late, *values)


@dataclass(frozen=True)
class Way:
    """How a history is played. With a `seed` only some operators run at a time, on a few rows, and queries leave when they are said to."""

    seed: int | None = None
    sharing: bool = False
    fuse: bool = True
    train: int | None = None

    def engine(self, create: list[str]) -> SqlEngine:
        shuffle = None if self.train is None else self.seed
        return SqlEngine(*create, sharing=self.sharing, fuse=self.fuse, train=self.train, shuffle=shuffle)


class Played:
    """A history that has been played."""

    def __init__(self, history: History, way: Way) -> None:
        self.way, self.choice = way, random.Random(way.seed)
        self.engine = engine = way.engine(history.create)
        for step in history.steps:
            self._take(*step)
            if way.seed is not None and self.choice.random() < 0.3:
                self._some()
        engine.end(*[name for name, source in engine.network.sources.items() if not source.ended])
        engine.work()
        self.late: dict[str, Counter[Any]] = {}
        for query, stream, rows in engine.hooks.late_rows:
            self.late.setdefault(query, Counter()).update((stream, time) for time in rows.time.array().tolist())

    def _take(self, what: str, *told: Any) -> None:
        engine = self.engine
        if what == "add":
            self._add(*told)
        elif what == "rows":
            engine.put(*told)
        elif what == "tick":
            engine.tick(*told)
        elif what == "end":
            engine.end(*told)
        elif what == "work":
            if self.way.seed is None:
                engine.work()
            else:
                self._some()
        elif self.way.seed is not None and told[0] in engine.deltas:
            engine.drop(told[0])

    def _add(self, name: str, text: str) -> None:
        try:
            self.engine.select(text, name)
        except InvalidDefinition as refused:  # its stream has ended: so it is in every way
            if "has ended" not in str(refused):
                raise
            del self.engine.results[name]

    def _some(self) -> None:
        """Run some operators, in any order."""
        operators = [o for delta in self.engine.deltas.values() for o in delta.query.operators]
        self.choice.shuffle(operators)
        for operator in operators[: self.choice.randint(0, len(operators))]:
            if operator in self.engine.network.operators:
                rows = None if self.way.train is None else self.choice.choice((1, 1, 2, 3, self.way.train))
                self.engine.run_order(Step(operator, rows))


def same(one: Any, other: Any) -> bool:
    """Equal, doubles within the tolerance of K15."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def rows_same(found: list[Any], expected: list[Any]) -> bool:
    return all(len(x) == len(y) and all(map(same, x, y)) for x, y in zip(found, expected, strict=True))


def is_log(*played: list[Train]) -> bool:
    """Whether a query answers by changes."""
    return any(train.schema.fields[-1].name == "op" for trains in played for train in trains)


def standing(rows: list[Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for *row, kind in rows:
        found[tuple(f"{v:.9g}" if isinstance(v, float) else repr(v) for v in row)] += 1 if kind == "+" else -1
    return Counter({row: count for row, count in found.items() if count})


def compare(name: str, text: str, found: Played, first: Played, *, left: bool) -> None:
    rows, expected = found.engine.rows(name), first.engine.rows(name)
    log = is_log(found.engine.results[name], first.engine.results[name])
    if left:  # what it had answered when it left
        assert log or rows_same(rows, expected[: len(rows)]), (name, text)
        return
    if log:
        assert standing(rows) == standing(expected), (name, text)
    else:
        assert len(rows) == len(expected), (name, text)
        assert rows_same(rows, expected), (name, text)
    assert found.engine.account(name) == first.engine.account(name), (name, text)
    assert found.late.get(name) == first.late.get(name), (name, text)


def check(seed: int) -> None:
    history = Author(seed).write()
    texts, left = history.texts(), history.left()
    first = Played(history, Way())
    cut = Way(seed, sharing=True, train=3), Way(seed, sharing=True, fuse=False, train=2)
    ways = (Way(seed), Way(seed, sharing=True), *cut, Way(sharing=True))
    for way in ways:
        found = Played(history, way)
        assert found.engine.results.keys() == first.engine.results.keys()
        for name in first.engine.results:
            compare(name, texts[name], found, first, left=name in left and way.seed is not None)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6))
def test_queries_that_come_and_go_answer_as_if_each_were_alone(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", [63, 93, 195, 256, 370])
def test_histories_that_once_went_wrong(seed: int) -> None:
    check(seed)
