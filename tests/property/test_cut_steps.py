"""Steps may be cut anywhere: an answer's bytes do not depend on it (K15), and nothing is lost or done twice (K10)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from millstream.engine.data import limits
from millstream.engine.data.allowance import CutAt, TooMuchAtOnce
from millstream.engine.data.train import Train
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.row_operators import Sink

from tests.property.random_queries import random_query
from tests.support.engine_run import SqlEngine

SECOND = 1_000_000
CREATES = (
    "CREATE STREAM a (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts DELAY 2 SECONDS",
    "CREATE STREAM b (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts",
    "CREATE STREAM c (k BIGINT, v BIGINT, x DOUBLE)",
    "CREATE TABLE t (k BIGINT, w BIGINT, PRIMARY KEY (k))",
)
Given = list[tuple[str, list[tuple[Any, ...]]]]


def given_rows(choice: random.Random) -> Given:
    """Some trains for each stream, times nearly in order, with late rows and NULLs."""
    found: Given = [("t", [(k, 10 * k, "+") for k in range(4)])]
    now = 0
    for _ in range(12):
        rows = []
        for _ in range(choice.randrange(1, 40)):
            now += choice.randrange(0, SECOND)
            back = choice.choice((0, 0, 0, 1, 3, 9)) * SECOND
            rows.append((now - back, choice.choice((0, 1, 1, 2, None)), choice.randrange(0, 9), choice.randrange(0, 64) / 64))
        stream = choice.choice("aabbc")
        found.append(
            (stream, [row[1:] for row in rows] if stream == "c" else sorted(rows, key=lambda row: row[0]) if stream == "b" else rows)
        )
        if choice.random() < 0.2:
            found.append(("t", [(choice.randrange(4), choice.randrange(9), "+")]))
    return found


def cut_by_chance(engine: SqlEngine, choice: random.Random) -> None:
    """Let every operator with state refuse trains now and then, and those without find that they make too much at once."""
    for running in engine.network.operators.values():
        if not isinstance(running.logic, Sink):
            running.logic.process = _refusing(running.logic.process, running.logic.stateful, choice)  # type: ignore[method-assign]


def _refusing(process: Callable[..., None], stateful: bool, choice: random.Random) -> Callable[[Sequence[Train], Emitter], None]:
    def refuse(inputs: Sequence[Train], out: Emitter) -> None:
        seqs = sorted({s for train in inputs for s in train.seq.array().tolist()})
        if len(seqs) > 1 and choice.random() < 0.7:
            if stateful:
                raise CutAt(choice.choice(seqs[1:]))
            raise TooMuchAtOnce("by chance")
        process(inputs, out)

    return refuse


def answer(text: str, given: Given, chance: random.Random | None, **how: Any) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    engine = SqlEngine(*CREATES, **how)
    engine.select(text)
    if chance is not None:
        cut_by_chance(engine, chance)
    for place, (stream, rows) in enumerate(given):
        engine.put(stream, rows)
        if chance is None or place % 3 == 0:
            engine.work()
    engine.end("a", "b", "c")
    engine.work()
    accounts = engine.account("q")
    assert all(account.balances and account.queued == 0 for account in accounts.values()), accounts
    return engine.rows("q"), accounts


def net(rows: list[tuple[Any, ...]], text: str) -> Any:
    """What stands of a change log, whose rows may depend on trains; else the rows as they came."""
    plain = [tuple("NaN" if v != v else tuple(v) if isinstance(v, list) else v for v in row) for row in rows]
    changes = bool(plain) and all(isinstance(row[-1], str) and row[-1] in "+-" for row in plain)
    if not changes:
        return plain
    sums: Counter[Any] = Counter()
    for row in plain:
        sums[row[:-1]] += 1 if row[-1] == "+" else -1
    return {row: count for row, count in sums.items() if count}


@pytest.mark.parametrize("seed", range(120))
def test_an_answer_does_not_depend_on_where_steps_are_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = random.Random(seed)
    text, given = random_query(choice), given_rows(choice)
    expected, accounts = answer(text, given, None)
    monkeypatch.setattr(limits, "CALL_PAIRS_MAX", choice.choice((1, 5, 40)))
    monkeypatch.setattr(limits, "CALL_VALUES_MAX", choice.choice((1, 9, 60)))
    for chance in (None, random.Random(seed)):
        for fuse in (True, False):
            cut, counted = answer(text, given, chance, fuse=fuse)
            assert net(cut, text) == net(expected, text), text
            assert counted == accounts, text
