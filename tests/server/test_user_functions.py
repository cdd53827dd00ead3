"""Users' functions: whole columns in and out, and nothing that one can do harms more than its own rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from millstream.engine.expressions.user_functions import FunctionFailed
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateFunction
from millstream.protocol.values.text import json_lines
from millstream.server.functions.child import REASONS_MAX
from millstream.server.functions.process import FunctionProcess
from millstream.server.journal.store import Store
from millstream.server.run.embedded import Replay, run_replay

SOURCE = """
from __future__ import annotations
import os, time
from dataclasses import dataclass
import numpy as np
import pyarrow as pa

@dataclass
class Scale:
    factor: float = 1.0

def area(width, height):
    return Scale().factor * np.where(width > 0, width, np.nan) * height

def moody(n):
    if (n == 1).any():
        raise ValueError("not one")
    if (n == 2).any():
        time.sleep(30)
    if (n == 3).any():
        os._exit(7)
    if (n == 4).any():
        return n[1:]
    if (n == 5).any():
        return ["five"] * len(n)
    if (n == 6).any():
        return 6
    if (n == 7).any():
        raise SystemExit
    if (n == 8).any():
        return pa.array([None] * len(n), pa.int64())
    if (n == 9).any():
        return np.ma.masked_array(n, mask=n == 9)
    if (n == 10).any():
        return n + 0.5
    if (n == 11).any():
        return n.astype(object) * 10**30
    return n
"""


def definition_of(text: str) -> Any:
    statement = parse_statement(text)
    assert isinstance(statement, CreateFunction)
    return statement.definition


@pytest.fixture
def moody() -> Iterator[FunctionProcess]:
    made = FunctionProcess(definition_of("CREATE FUNCTION moody(n BIGINT) RETURNS BIGINT FROM 'f.py' TIME LIMIT 2 SECONDS"), SOURCE)
    made.start()
    yield made
    made.close()


def ask(function: FunctionProcess, *values: int) -> list[Any]:
    answer: list[Any] = function([pa.array(values, pa.int64())]).values.to_pylist()
    return answer


WRONG = {
    1: r"ValueError: not one \(line 17\)",
    2: "it took longer than 2 SECONDS",
    3: "its process ended with exit code 7",
    4: "it gave 0 values for 1 rows",
    5: "of the type string, not int64",
    6: "it gave int, not a column",
    7: "SystemExit",
    10: "do not fit int64",
    11: "fit|range|overflow|large",
}


def test_whatever_goes_wrong_is_a_reason_and_the_next_call_works(moody: FunctionProcess) -> None:
    for value, words in WRONG.items():
        with pytest.raises(FunctionFailed, match=words):
            ask(moody, value)
        assert ask(moody, 20, 30) == [20, 30]
    assert (moody.failed_calls, moody.starts) == (len(WRONG), 3)  # one at first, one after each that was killed or died
    assert ask(moody, 8) == [None]
    assert ask(moody, 9, 20) == [None, 20]


def test_an_ended_function_leaves_no_process_and_says_so() -> None:
    made = FunctionProcess(definition_of("CREATE FUNCTION area(width DOUBLE, height INT) RETURNS DOUBLE FROM 'f.py'"), SOURCE)
    made.start()
    assert made._process is not None
    number = made._process.pid
    made.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    with pytest.raises(FunctionFailed, match="dropped"):
        ask(made, 1)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text(SOURCE, "utf-8")
    rows = [
        '{"ts": 1, "n": 20, "x": 2.0, "t": "a", "d": "1.50", "b": true, "at": "2024-05-06T12:00:00Z", "day": "2024-05-06"}',
        '{"ts": 2, "n": null, "x": 2.0, "t": "b", "d": "2.50", "b": false, "at": "1969-12-31T23:59:59Z", "day": "1969-12-31"}',
        '{"ts": 3, "n": 1, "x": -1.0, "t": null, "d": null, "b": null, "at": null, "day": null}',
        '{"ts": 4, "n": 21, "x": null, "t": "é", "d": "0.00", "b": true, "at": "2024-05-06T12:00:00Z", "day": "2024-05-06"}',
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    return tmp_path


STREAM = (
    "CREATE STREAM s (ts BIGINT, n BIGINT, x DOUBLE, t TEXT, d DECIMAL(6, 2), b BOOLEAN, at TIMESTAMP, day DATE) "
    "TIMESTAMP BY ts UNIT s ON ERROR INTO broken;\n"
)


def run(files: Path, script: str, train: int | None = None) -> tuple[dict[str, list[Any]], list[str]]:
    filled = STREAM + script.replace("FILE", str(files / "f.py"))
    outcomes = run_replay(Replay(filled, inputs=[("s", files / "rows.jsonl")], train=train))
    if outcomes.failure is not None:
        raise AssertionError(outcomes.failure)
    found = {}
    for result in outcomes.results:
        found[result.name] = [json.loads(line) for batch in result.batches for line in json_lines(batch).splitlines()]
    return found, outcomes.messages


def test_every_type_goes_in_and_comes_out(files: Path) -> None:
    source = """
def same(x):
    return x
""" + "\n".join(f"same_{i} = same" for i in range(6))
    (files / "f.py").write_text(source, "utf-8")
    types = {"t": "TEXT", "d": "DECIMAL(6, 2)", "b": "BOOLEAN", "at": "TIMESTAMP", "day": "DATE", "x": "DOUBLE"}
    create = "".join(
        f"CREATE FUNCTION same_{i}(v {type_}) RETURNS {type_} FROM 'FILE' TIME LIMIT 20 SECONDS;" for i, type_ in enumerate(types.values())
    )
    called = ", ".join(f"same_{i}({name}) AS {name}" for i, name in enumerate(types))
    found, messages = run(files, f"{create}SELECT {called} FROM s; SELECT {', '.join(types)} FROM s;")
    assert found["q1"] == found["q2"] != []
    assert messages == []


def test_null_arguments_give_null_without_a_call_and_calls_stand_anywhere(files: Path) -> None:
    found, messages = run(
        files,
        "CREATE FUNCTION area(width DOUBLE, height INT) RETURNS DOUBLE FROM 'FILE';"
        "SELECT area(x, CAST(n AS INT)) AS a FROM s; SELECT ts FROM s WHERE area(x, 3) = 6; SELECT SUM(area(2, 3)) AS a FROM s EMIT FINAL;"
        "SELECT area(ts, 1) AS k, COUNT(*) AS n FROM s GROUP BY area(ts, 1) HAVING area(COUNT(*), 1) > 0 EMIT FINAL;",
    )
    assert [row["a"] for row in found["q1"]] == [40.0, None, "NaN", None]
    assert [row["ts"] for row in found["q2"]] == [1, 2]
    assert found["q3"] == [{"a": 24.0}]
    assert [row["k"] for row in found["q4"]] == [1.0, 2.0, 3.0, 4.0]
    assert messages == []


def test_a_failed_call_is_counted_and_told_and_the_query_goes_on(files: Path) -> None:
    made = "CREATE FUNCTION moody(n BIGINT) RETURNS BIGINT FROM 'FILE';"
    script = "SELECT ts, COALESCE(moody(n), -1) AS m FROM s; SELECT query, reason FROM broken;"
    found, messages = run(files, made + script, train=1)
    assert [row["m"] for row in found["q1"]] == [20, -1, -1, 21]
    assert found["q2"] == [{"query": "q1", "reason": "MOODY: ValueError: not one (line 17)"}]
    assert messages == ["q1: 1 failed row"]


@pytest.mark.parametrize("train", [None, 1, 2, 7])
def test_a_row_for_which_a_function_raises_costs_itself_alone_however_rows_are_batched(files: Path, train: int | None) -> None:
    numbers = [1 if n % 100 == 37 else 5 if n == 500 else n + 20 for n in range(1_000)]
    (files / "rows.jsonl").write_text("".join(f'{{"ts": {ts}, "n": {n}}}\n' for ts, n in enumerate(numbers)), "utf-8")
    found, messages = run(
        files,
        "CREATE FUNCTION moody(n BIGINT) RETURNS BIGINT FROM 'FILE' TIME LIMIT 20 SECONDS; SELECT moody(n) AS m FROM s;"
        "SELECT reason, COUNT(*) AS n FROM broken GROUP BY reason EMIT FINAL;",
        train,
    )
    assert [row["m"] for row in found["q1"]] == [None if n in (1, 5) else n for n in numbers]
    assert messages == ["q1: 11 failed rows"]
    reasons = {row["reason"]: row["n"] for row in found["q2"]}
    assert reasons.pop("MOODY: ValueError: not one (line 17)") == 10
    assert list(reasons.values()) == [1]


def test_a_call_that_fails_for_many_reasons_tells_some_of_them_apart(files: Path) -> None:
    source = "def f(n):\n    if len(n) > 1 or n[0] % 2: raise ValueError(n[0])\n    return n\n"
    made = FunctionProcess(definition_of("CREATE FUNCTION f(n BIGINT) RETURNS BIGINT FROM 'f.py' TIME LIMIT 20 SECONDS"), source)
    try:
        answer = made([pa.array(range(100), pa.int64())])
        assert answer.values.to_pylist() == [None if n % 2 else n for n in range(100)]
        assert sorted(row for rows in answer.failed.values() for row in rows) == list(range(1, 100, 2))
        assert len(answer.failed) == REASONS_MAX + 1
        assert (made.failed_calls, made.calls) == (1, 1)
    finally:
        made.close()


def test_an_exception_whose_text_raises_costs_its_row_alone() -> None:
    mute = "class Mute(Exception):\n    def __str__(self):\n        raise Mute\n"
    source = f"{mute}\ndef f(n):\n    if 2 in n: raise Mute\n    return n\n"
    made = FunctionProcess(definition_of("CREATE FUNCTION f(n BIGINT) RETURNS BIGINT FROM 'f.py' TIME LIMIT 20 SECONDS"), source)
    try:
        answer = made([pa.array(range(5), pa.int64())])
        assert answer.values.to_pylist() == [0, 1, None, 3, 4]
        assert [(rows, "has no text" in reason and "(line 6)" in reason) for reason, rows in answer.failed.items()] == [([2], True)]
    finally:
        made.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE FUNCTION abs(x INT) RETURNS INT FROM 'FILE'", "ABS is a function of the language"),
        ("CREATE FUNCTION sum(x INT) RETURNS INT FROM 'FILE'", "SUM is a function of the language"),
        ("CREATE FUNCTION \"A b\"(x INT) RETURNS INT FROM 'FILE'", "a lower-case Python name"),
        ("CREATE FUNCTION f() RETURNS INT FROM 'FILE'", "at least one parameter"),
        ("CREATE FUNCTION f(x INT, x INT) RETURNS INT FROM 'FILE'", "named twice"),
        ("CREATE FUNCTION f(x INT) FROM 'FILE'", "RETURNS"),
        ("CREATE FUNCTION f(x INT) RETURNS INT FROM 'FILE' TIME LIMIT 0 SECONDS", "positive"),
        ("CREATE FUNCTION f(x INT) RETURNS INT FROM 'FILE'", "defines no function f"),
        ("CREATE FUNCTION f(x INT) RETURNS INT FROM 'missing.py'", "cannot read missing.py"),
        ("CREATE FUNCTION area(w DOUBLE) RETURNS DOUBLE FROM 'FILE'; SELECT area(n, 2) FROM s", "takes 1 argument, not 2"),
        (
            "CREATE FUNCTION area(w DOUBLE) RETURNS DOUBLE FROM 'FILE'; SELECT area(t) FROM s",
            "argument 1 of AREA is TEXT, it must be DOUBLE",
        ),
        ("SELECT area(x) FROM s", "no function AREA"),
        ("DROP FUNCTION f", "no function f"),
    ],
)
def test_what_cannot_be_is_refused(files: Path, statement: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        run(files, statement + ";")


def test_a_file_that_is_no_python_is_refused_with_its_line(files: Path) -> None:
    (files / "f.py").write_text("def f(x):\n  return (", "utf-8")
    with pytest.raises(AssertionError, match=r"SyntaxError.*line 2"):
        run(files, "CREATE FUNCTION f(x INT) RETURNS INT FROM 'FILE';")


def test_a_function_in_use_is_not_dropped_but_by_cascade(files: Path) -> None:
    made = (
        "CREATE FUNCTION area(w DOUBLE, h INT) RETURNS DOUBLE FROM 'FILE'; CREATE STREAM areas AS SELECT ts, area(x, 1) AS a FROM s;"
        "CREATE QUERY reader AS SELECT a FROM areas;"
    )
    with pytest.raises(AssertionError, match="area is called by areas"):
        run(files, made + "DROP FUNCTION area;")
    found, _ = run(files, made + "DROP FUNCTION area CASCADE; SHOW FUNCTIONS; SHOW STREAMS; SHOW QUERIES;")
    assert found["SHOW FUNCTIONS"] == found["SHOW QUERIES"] == []
    assert [row["name"] for row in found["SHOW STREAMS"]] == ["s", "broken"]


def test_functions_are_shown_described_and_explained(files: Path) -> None:
    made = "CREATE FUNCTION area(w DOUBLE, h INT) RETURNS DOUBLE FROM 'FILE' TIME LIMIT 2 SECONDS;"
    found, _ = run(files, made + "SHOW FUNCTIONS; DESCRIBE area; EXPLAIN SELECT area(x, 1) AS a FROM s;")
    assert found["SHOW FUNCTIONS"][0]["signature"] == "area(w DOUBLE, h INT) RETURNS DOUBLE"
    assert [(r["column"], r["type"], r["note"]) for r in found["DESCRIBE area"]] == [
        ("w", "DOUBLE", "parameter"), ("h", "INT", "parameter"), ("", "DOUBLE", "result"),
    ]  # fmt: skip
    explained = [row["explanation"] for row in found["EXPLAIN SELECT area(x, 1) AS a FROM s"]]
    assert any("declared pure" in line and "2 SECONDS" in line for line in explained)


def test_the_store_keeps_the_text_of_the_file_until_the_function_is_dropped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add_function("f", "CREATE FUNCTION f …", "def f(x): …")
    store.close()
    again = Store(tmp_path)
    assert again.source("f") == "def f(x): …"
    again.forget([("stream", "f")], [])
    assert again.source("f") is not None
    again.forget([("function", "f")], [])
    assert (again.source("f"), again.definitions()) == (None, [])
    again.close()
