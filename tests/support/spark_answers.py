"""What the tests of Spark compare: a script on some session with the same script under `millstream run`."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.feeder.spark.run import SparkScript
from millstream.protocol.values.text import json_lines
from millstream.server.run.embedded import Replay, run_replay
from pyarrow import parquet

from tests.property.random_queries import random_query

RELATIVE = 1e-12  # K15: floats that are merged
CREATE = "CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts{delay};"
Answer = list[tuple[str, list[dict[str, Any]]]]


def read(results: Any) -> Answer:
    return [(r.name, [json.loads(line) for batch in r.batches for line in json_lines(batch).splitlines()]) for r in results]


def expected(text: str, inputs: Mapping[str, str]) -> Answer:
    outcome = run_replay(Replay(text, [(name, Path(path)) for name, path in inputs.items()]))
    assert outcome.failure is None, outcome.failure
    return read(outcome.results)


def on(session: Any, text: str, inputs: Mapping[str, Any], partitions: int) -> Answer:
    return read(SparkScript(session, text, inputs, partitions).tables())


def close(left: Any, right: Any) -> bool:
    """Equal, floats within K15's bound."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or math.isclose(left, right, rel_tol=RELATIVE, abs_tol=1e-15)
    if isinstance(left, dict):
        return list(left) == list(right) and all(close(left[k], right[k]) for k in left)
    return type(left) is type(right) and bool(left == right)


def check_same(got: Answer, want: Answer, about: object) -> None:
    """The same rows in the same order."""
    assert [name for name, _ in got] == [name for name, _ in want], about
    for (name, rows), (_, wanted) in zip(got, want, strict=True):
        assert len(rows) == len(wanted), (about, name, rows[:5], wanted[:5])
        for number, (row, other) in enumerate(zip(rows, wanted, strict=True)):
            assert close(row, other), (about, name, number, row, other)


def rows(rng: np.random.Generator, count: int) -> Any:
    """Rows nearly in order of time, some late, with NULLs everywhere but in the time, NaNs, and equal times."""
    times = np.sort(rng.integers(-5_000_000, 60_000_000, count)) // 100_000 * 100_000
    times = times + rng.integers(-3, 2, count) * rng.integers(0, 2_000_000, count) // 2
    floats = np.where(rng.random(count) < 0.03, np.nan, rng.integers(0, 64, count) / 64.0 * rng.choice([1.0, -1.0, 0.1], count))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(rng.integers(0, 5, count), mask=rng.random(count) < 0.08),
            "v": pa.array(rng.integers(-2, 10, count), mask=rng.random(count) < 0.08),
            "x": pa.array(floats, mask=rng.random(count) < 0.08),
        }
    )


def random_script(seed: int, folder: Path, queries: int = 1) -> tuple[str, dict[str, str]]:
    """Return a script with random queries over streams a and b and their files, in row groups of a random size, in either order."""
    choice, rng = random.Random(seed), np.random.default_rng(seed)
    found: list[str] = []
    while len(found) < queries:
        query = random_query(choice)
        if not any(part in query for part in (" c ", " t ", "JOIN t")):  # streams by arrival and tables run as a whole
            found.append(query)
    delay = choice.choice(("", " DELAY 1 SECOND", " DELAY 500 MILLISECONDS"))
    text = "".join(CREATE.format(name=name, delay=delay) for name in "ab") + ";".join(found)
    inputs = {}
    for name in "ab" if choice.random() < 0.8 else "ba":
        inputs[name] = str(folder / f"{seed}_{name}.parquet")
        parquet.write_table(rows(rng, choice.choice((0, 30, 120))), inputs[name], row_group_size=choice.choice((7, 25, 200)))
    return text, inputs
