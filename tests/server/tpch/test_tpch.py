"""FETCH answers the 22 queries of TPC-H at scale 0.01 as DuckDB does. The data are made by tpchgen-cli (Apache 2.0) as the tests run.

The texts are those of the specification (3.0.1) with its validation parameters. Only spelling differs: Q15 has its view in a WITH, and
the number of rows is a LIMIT.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from millstream.server.run.embedded import Replay, ReplayOutcome, run_replay

duckdb = pytest.importorskip("duckdb")

QUERIES = sorted(Path(__file__).parent.glob("q*.sql"))
KEYS = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey, ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey, l_linenumber",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as Parquet files."""
    folder = tmp_path_factory.mktemp("tpch")
    program = next(f.locate() for f in distribution("tpchgen-cli").files or () if f.name == "tpchgen-cli")
    arguments = ["parquet", "--scale-factor", "0.01", "--num-threads", "1", "--output-dir", str(folder), "--quiet"]
    subprocess.run([str(program), *arguments], check=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def database(data: Path) -> Iterator[Any]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for table in KEYS:
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{data / table}.parquet'")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def answers(data: Path, database: Any) -> ReplayOutcome:
    """All of them in one run, so that the tables are read once."""
    script = [_definition(table, key, data, database) for table, key in KEYS.items()]
    script += [f"FETCH {path.read_text().rstrip()}" for path in QUERIES]
    outcome = run_replay(Replay(";\n".join(script)))
    assert outcome.failure is None, outcome.failure
    return outcome


def _definition(table: str, key: str, data: Path, database: Any) -> str:
    columns = ", ".join(f"{row[0]} {row[1]}" for row in database.execute(f"DESCRIBE {table}").fetchall())
    return f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({key})) FROM '{data / table}.parquet'"


def test_there_are_all_of_them() -> None:
    assert [path.stem for path in QUERIES] == [f"q{n:02}" for n in range(1, 23)]


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_gives_the_rows_of_duckdb(number: int, answers: ReplayOutcome, database: Any) -> None:
    text = QUERIES[number - 1].read_text()
    right = [[_plain(v) for v in row] for row in database.execute(text).fetchall()]
    result = answers.results[number - 1]
    found = [[_plain(v) for v in row.values()] for batch in result.batches for row in batch.to_pylist()]
    assert right, f"Q{number} has no row at this scale, and so says nothing"
    if not re.search("order by", text.rsplit(")", 1)[-1]):
        right, found = sorted(right, key=repr), sorted(found, key=repr)
    assert len(found) == len(right)
    for one, other in zip(found, right, strict=True):
        assert len(one) == len(other)
        assert all(_same(a, b) for a, b in zip(one, other, strict=True)), (one, other)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal | int) else value


def _same(a: Any, b: Any) -> bool:
    """Quotients of DECIMAL have other digits in DuckDB, which divides them as DOUBLE."""
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-4) if isinstance(a, float) and isinstance(b, float) else bool(a == b)
