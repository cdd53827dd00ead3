"""No data ends a query (K8): every function and aggregate over values at the ends of their types, in every kind of window.

A call is made for each name that the language knows, over columns and constants of whatever types it takes. What fails for a row is NULL
and counted; the query goes on, and so does every other. HOSTILE asks for more scripts.
"""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from millstream.engine.aggregates.table import aggregate_names
from millstream.engine.data.errors import EngineError
from millstream.engine.expressions.functions import RULES
from millstream.engine.language.column_types import TYPE_NAMES
from millstream.engine.plan.plan import plan_select
from millstream.server.run.embedded import Replay, run_replay

from tests.support.catalogs import catalog_of

SCRIPTS = int(os.environ.get("HOSTILE", "40"))
QUERIES = 6  # of a script
ROWS = 30
FAILED = re.compile(r"query \S+ failed|fault of millstream")
NONE_TAKEN = "s: none of 1 rows was accepted"  # a single row, whose event time is out of range
STREAM = (
    "CREATE STREAM s (at {time}, i INT, n BIGINT, x DOUBLE, d DECIMAL(10, 2), w DECIMAL(38, 10), t TEXT, u TEXT, b BOOLEAN, ts TIMESTAMP, "
    "day DATE, p INTERVAL, y BYTES, o TIME) TIMESTAMP BY at"
)
TIMES = {"plain": "BIGINT", "far": "TIMESTAMP"}
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "n": [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 1_715_000_000],
    "x": [0.0, -0.0, 1.5, "NaN", "Infinity", "-Infinity", 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 1e18, 0.1],
    "d": ["0.00", "-0.01", "99999999.99", "-99999999.99", "2.50"],
    "w": ["0", "9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", "0.0000000001"],
    "t": [
        "",
        " ",
        "a",
        "A\u0301",
        "\u0000",
        "%_\\",
        "(",
        "[a-",
        "(a+)+$",
        "NaN",
        "1e400",
        "2024-02-30",
        "🏳️‍🌈",
        "ß",
        "İ",
        "x" * 70_000,
        "1,2",
        "'",
    ],
    "u": ["", "a", "\\", "b" * 10, "$1", "%", "UTC", "0", "9" * 400, "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!"],
    "b": [True, False],
    "ts": [
        "1970-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "10000-01-01",
        "-290307-12-22",
        "294246-01-01",
        "0000-01-01",
        "1969-12-31",
    ],
    "day": ["1970-01-01", "9999-12-31", "12345-06-07", "-5000-01-01", "2024-02-29"],
    "y": ["\\x", "\\x00", "\\xff80", "\\x" + "61" * 9_000],
    "o": ["00:00", "23:59:59.999999", "12:00:00.5"],
    "p": ["0 seconds", "106751991 days", "-106751991 days", "1 microsecond", "26 hours"],
}
CONSTANTS = (
    *("0", "1", "-1", "2", "1000", "2147483648", "9223372036854775807", "1.5", "0.5e0", "1e308", "NULL", "TRUE", "''", "'a'", "'('", "'%'"),
    *(
        "'year'",
        "'week'",
        "'second'",
        "'Europe/Berlin'",
        "'YYYY-MM-DD HH24'",
        "CAST('NaN' AS DOUBLE)",
        "INTERVAL '1' DAY",
        "DATE '2024-02-29'",
        "TIME '23:00'",
        "x'00ff'",
        "'hex'",
        "'base64'",
    ),
)
OPERATORS = ("+", "-", "*", "/", "%", "||", "=", "<", ">=", "<>", "&", "|", "#", "~", "LIKE", "IS DISTINCT FROM", "^")
WINDOWS = (
    *("", "[RANGE 10 SECONDS SLIDE 10 SECONDS]", "[RANGE 7 SECONDS SLIDE 3 SECONDS]", "[RANGE 10 SECONDS]", "[ROWS 3]", "[ROWS 3 SLIDE 2]"),
    *(
        "[PARTITION BY t ROWS 2]",
        "[SESSION 3 SECONDS]",
        "[SESSION 3 SECONDS MAX 10 SECONDS]",
        "[NOW]",
        "[RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'UTC']",
    ),
    *("[RANGE 1 WEEK SLIDE 1 WEEK TIME ZONE 'America/New_York']", "[RANGE 36500 DAYS SLIDE 36500 DAYS]"),
)


@cache
def catalog() -> Any:
    """The stream, to see what binds."""
    return catalog_of([STREAM.format(time="BIGINT") + " UNIT s"])


def binds(expression: str) -> bool:
    """Whether the language takes the expression."""
    try:
        plan_select(f"SELECT {expression} AS e FROM s", catalog())
    except EngineError:
        return False
    return True


def expression(choice: random.Random, depth: int) -> str:
    """Return an expression that binds."""
    for _ in range(200):
        made = _offered(choice, depth)
        if binds(made):
            return made
    return "n"


def _offered(choice: random.Random, depth: int) -> str:
    if depth == 0:
        return choice.choice([*VALUES, *CONSTANTS])
    parts = [expression(choice, depth - 1) if choice.random() < 0.4 else _offered(choice, 0) for _ in range(3)]
    match choice.randrange(7):
        case 0:
            return f"({parts[0]} {choice.choice(OPERATORS)} {parts[1]})"
        case 1:
            return f"CAST({parts[0]} AS {choice.choice([*TYPE_NAMES, 'DECIMAL(5, 1)', 'VARCHAR(3)', 'TIMESTAMP(0)'])})"
        case 2:
            return f"CASE WHEN {parts[0]} IS NULL THEN {parts[1]} ELSE {parts[2]} END"
        case 3:
            return f"EXTRACT({choice.choice(('YEAR', 'WEEK', 'HOUR', 'EPOCH', 'DOY', 'CENTURY', 'DAY'))} FROM {parts[0]})"
        case _:
            return f"{choice.choice(sorted(name for name in RULES if name.isidentifier()))}({', '.join(parts[: choice.randint(1, 3)])})"


@dataclass
class Pool:
    """Expressions and aggregates that bind, of which queries are made."""

    shallow: list[str]
    deep: list[str]
    aggregates: list[str]

    @classmethod
    def made(cls, choice: random.Random, size: int) -> Pool:
        """Return one with so many of each."""
        shallow = [expression(choice, choice.randint(0, 1)) for _ in range(size)]
        return cls(shallow, [expression(choice, 2) for _ in range(size)], [aggregate(choice, shallow) for _ in range(size)])


def aggregate(choice: random.Random, arguments: list[str]) -> str:
    """Return an aggregate that binds."""
    for _ in range(200):
        argument = choice.choice(arguments)
        option = choice.choice(("", "", ", 0.5", ", 3", ", '-'"))
        distinct = choice.choice(("", "", "DISTINCT "))
        made = f"{choice.choice(aggregate_names())}({distinct}{argument}{option})"
        made += choice.choice(("", "", " FILTER (WHERE x > 0)"))
        if binds(made):
            return made
    return "COUNT(*)"


def query(choice: random.Random, pool: Pool) -> str:
    """Return a query of some shape."""
    one, other = choice.choice(pool.deep), choice.choice(pool.shallow)
    window = choice.choice(WINDOWS)
    offered = [
        f"SELECT {one} AS e, {other} AS f FROM s",
        f"SELECT n FROM s WHERE {one} IS NOT NULL",
        f"SELECT {choice.choice(pool.aggregates)} AS a, {choice.choice(pool.aggregates)} AS c FROM s {window}"
        + (" EMIT FINAL" if not window else ""),
        f"SELECT {other} AS k, {choice.choice(pool.aggregates)} AS a FROM s {window} GROUP BY {other}"
        + (" EMIT FINAL" if not window else ""),
        f"SELECT {choice.choice(pool.aggregates)} AS a FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] EMIT EVERY 3 SECONDS",
        f"SELECT {choice.choice(pool.aggregates)} AS a FROM s GROUP BY {other}",
        f"SELECT DISTINCT {one} AS e FROM s",
        f"SELECT {one} AS e FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] ORDER BY {other} DESC LIMIT 3",
        f"SELECT LAG({choice.choice(list(VALUES))}) OVER (PARTITION BY {choice.choice(('t', 'b', 'x'))}) AS l FROM s",
        f"SELECT a.n FROM s a JOIN s c ON a.{choice.choice('inxdtb')} = c.{choice.choice('inxdtb')} WITHIN 2 SECONDS",
        f"RSTREAM(SELECT {choice.choice(pool.aggregates)} AS a FROM s [RANGE 3 SECONDS])",
    ]
    for _ in range(20):
        made = choice.choice(offered)
        try:
            plan_select(made, catalog())
        except EngineError:
            continue
        return made
    return "SELECT n FROM s"


def rows(choice: random.Random, times: str) -> str:
    """Return hostile rows as JSON lines, in order of time."""
    lines = []
    for number in range(choice.choice((0, 1, ROWS))):
        row = {name: None if choice.random() < 0.15 else choice.choice(values) for name, values in VALUES.items()}
        if times == "far":
            row["at"] = sorted(VALUES["ts"], key=_year)[number % len(VALUES["ts"])]
        else:
            row["at"] = number - 5
        lines.append(json.dumps(row, ensure_ascii=False))
    return "\n".join(sorted(lines, key=lambda line: _year(json.loads(line)["at"])) if times == "far" else lines) + "\n"


def _year(text: str) -> int:
    return int(text[: text.index("-", 1)])


def run_one(seed: int, folder: Path, pool: Pool) -> tuple[str, Any]:
    """Run one script; return it and what came of it."""
    choice = random.Random(seed)
    times = choice.choice(("plain", "plain", "plain", "far"))
    file = folder / "s.jsonl"
    file.write_text(rows(choice, times), "utf-8")
    unit = "" if times == "far" else " UNIT s"
    script = ";\n".join([STREAM.format(time=TIMES[times]) + unit + " DELAY 3 SECONDS", *(query(choice, pool) for _ in range(QUERIES))])
    return script, run_replay(Replay(script, [("s", file)], train=choice.choice((None, 1, 7)), workers=choice.choice((1, 3))))


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * SCRIPTS)
def test_no_data_ends_a_query(seed: int, tmp_path: Path) -> None:
    pool = Pool.made(random.Random(seed), min(40 + SCRIPTS, 2_000))
    for turn in range(SCRIPTS):
        script, outcome = run_one(seed + turn, tmp_path, pool)
        said = [*outcome.messages, outcome.failure or ""]
        assert not any(FAILED.search(text) for text in said), (seed + turn, script, said)
        assert outcome.failure in (None, NONE_TAKEN), (seed + turn, script, outcome.failure)


@pytest.mark.slow
def test_no_constant_is_a_fault_of_the_planner(seed: int) -> None:
    """The planner computes what is constant, so a constant at the end of its type may be one too many there already."""
    choice = random.Random(seed)
    names = sorted(name for name in RULES if name.isidentifier())
    ends = ["0", "-1", "2147483648", "9223372036854775807", "-9223372036854775807", "'a'", "''", "'a,b'", "n", "t", *CONSTANTS]
    taken = 0
    for name in names * (1 + SCRIPTS // 40):
        for _ in range(12):
            call = f"{name}({', '.join(choice.choice(ends) for _ in range(choice.randint(1, 3)))})"
            try:
                plan_select(f"SELECT {call} AS e FROM s", catalog())
                taken += 1
            except EngineError:
                continue
            except Exception as fault:
                pytest.fail(f"{call}: {type(fault).__name__}: {fault}")
    assert taken > len(names)
