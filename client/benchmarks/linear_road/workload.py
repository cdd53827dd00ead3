"""Linear Road as it is run: the statements of the files beside this one, and its queries' rows as answers that can be judged."""

from __future__ import annotations

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
COLUMNS = {
    "toll": ("vid", "time", "lav", "toll"),
    "accident": ("vid", "time", "xway", "dir", "seg"),
    "balance": ("qid", "time", "result_time", "balance"),
    "expenditure": ("qid", "time", "toll"),
}


def script() -> str:
    """Return all statements, in order."""
    return "".join(files(__package__).joinpath("queries", f"{name}.sql").read_text("utf-8") for name in FILES)


def statements() -> list[str]:
    """Return the statements one by one; no comment of theirs has a semicolon."""
    return [statement for part in script().split(";") if (statement := part.strip())]


def answers(rows: Mapping[str, Sequence[pa.RecordBatch]]) -> RoadAnswers:
    """Return the rows of each type of answers as arrays."""
    return RoadAnswers(**{kind: {name: _array(rows[kind], name) for name in names} for kind, names in COLUMNS.items()})


def _array(batches: Sequence[pa.RecordBatch], name: str) -> Any:
    if not batches:
        return np.empty(0, np.float64 if name == "lav" else np.int64)
    column = pa.chunked_array([batch.column(name) for batch in batches])
    return column.to_numpy() if name == "lav" else column.cast(pa.int64()).to_numpy()
