"""Linear Road as it is run: the statements of the files beside this one, and its queries' rows as answers that can be judged.

Where more comes than the server can take (`lossy_statements`), warnings of accidents and answers to questions are in a class that is never
shed, and all that tolls need is in one that may be. Its rows are told apart by car: one that is shed is shed whole, as long as the share
stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.client.benchmarks.linear_road.rules import RoadAnswers

FILES = ("reports", "statistics", "accidents", "tolls", "accounts")
QUERIES = {
    "toll": "toll_notification",
    "accident": "accident_notification",
    "balance": "account_balance",
    "expenditure": "daily_expenditure",
}
"""The query that gives each type of answers."""
LOSSY = "overload"
WHOLE = ("accident", "danger", "account_balance", "daily_expenditure")  # beside those that the file of LOSSY puts into a class itself
BY_CAR = "vid * 7919 % 10007"  # neighbours in number, who drive beside one another, are far from one another in it
READS_CARS = ("report", "seen", "receipts")  # where the class that may be shed reads what cars send
_NAME = re.compile(r"(?:--[^\n]*\s*)*CREATE (?:STREAM|QUERY|TABLE|CLASS) (\w+)")
COLUMNS = {
    "toll": ("vid", "time", "lav", "toll"),
    "accident": ("vid", "time", "xway", "dir", "seg"),
    "balance": ("qid", "time", "result_time", "balance"),
    "expenditure": ("qid", "time", "toll"),
}


def script() -> str:
    """Return all statements, in order."""
    return "".join(map(_text, FILES))


def statements() -> list[str]:
    """Return the statements one by one; no comment of theirs has a semicolon."""
    return _cut(script())


def lossy_statements(target_ms: float) -> list[str]:
    """Return the statements with their classes, where tolls may be shed so that their results are no later than a target."""
    own = {_name(statement): statement for statement in _cut(_text(LOSSY))}
    own["tolls"] = re.sub(r"TARGET \d+", f"TARGET {max(1, round(target_ms))}", own["tolls"])
    made = [own.pop("warnings"), own.pop("tolls")]
    for statement in statements():
        name = _name(statement)
        made.append(own.pop(name) if name in own else _classed(name, statement))
        if name == "input":
            made.append(own.pop("sighting"))
    return [*made, *(_classed(name, statement) for name, statement in own.items())]


def _classed(name: str, statement: str) -> str:
    """Return a statement with its class: streams that rows enter and tables have none."""
    if " AS\n" not in statement:
        return statement
    sheds = f", shed_by = '{BY_CAR}'" if name in READS_CARS else ""
    return f"{statement}\nWITH (class = '{'warnings' if name in WHOLE else 'tolls'}'{sheds})"


def _text(name: str) -> str:
    return files(__package__).joinpath("queries", f"{name}.sql").read_text("utf-8")


def _cut(text: str) -> list[str]:
    return [statement for part in text.split(";") if (statement := part.strip())]


def _name(statement: str) -> str:
    found = _NAME.match(statement)
    assert found is not None
    return found[1]


def answers(rows: Mapping[str, Sequence[pa.RecordBatch]]) -> RoadAnswers:
    """Return the rows of each type of answers as arrays."""
    return RoadAnswers(**{kind: {name: _array(rows[kind], name) for name in names} for kind, names in COLUMNS.items()})


def _array(batches: Sequence[pa.RecordBatch], name: str) -> Any:
    if not batches:
        return np.empty(0, np.float64 if name == "lav" else np.int64)
    column = pa.chunked_array([batch.column(name) for batch in batches])
    return column.to_numpy() if name == "lav" else column.cast(pa.int64()).to_numpy()
