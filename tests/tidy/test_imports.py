"""What import-linter cannot see: bare names of our folders, and what a fresh process really loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.tree import PACKAGES, files, imports, modules, parse


def test_our_folders_are_imported_as_millstream_never_by_their_bare_names() -> None:
    bare = [f"{path}:{line} {name}" for path in files(".py") for line, name in imports(path) if name.split(".")[0] in PACKAGES]
    assert bare == []


def test_product_code_imports_neither_tests_nor_relatives_nor_everything() -> None:
    wrong = [
        f"{path}:{line} {name}"
        for path in modules()
        for line, name in imports(path)
        if name.split(".")[0] == "tests" or name.startswith(".") or name.endswith(".*")
    ]
    assert wrong == []


def test_only_the_feeder_names_spark() -> None:
    named = {path.parts[0] for path in modules() for _, name in imports(path) if name.split(".")[0] in {"pyspark", "py4j"}}
    assert named <= {"feeder"}


def test_the_engine_uses_threading_for_locks_only() -> None:
    used = {
        f"{path}: threading.{node.attr}"
        for path in modules()
        if path.parts[0] == "engine"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "threading"
    }
    assert {use for use in used if not use.endswith((".Lock", ".RLock"))} == set()
    from_imports = [
        f"{path}" for path in modules() if path.parts[0] == "engine" for _, name in imports(path) if name.startswith("threading.")
    ]
    assert from_imports == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("millstream.scheduler", ["pyarrow", "pandas", "asyncio", "pyspark", "sqlglot"]),
        ("millstream.engine.graph", ["pyarrow", "numpy"]),
        ("millstream.engine.work", ["pyarrow", "numpy"]),
        ("millstream.server.live", ["pyarrow.compute", "pandas", "matplotlib", "rich", "millstream.scheduler.simulation"]),
        ("millstream.feeder.job", ["pyspark", "py4j"]),
        ("millstream.feeder.command", ["pyspark", "py4j"]),
    ],
)
def test_importing_one_part_does_not_load(module: str, forbidden: list[str]) -> None:
    assert sorted(set(forbidden) & loaded_by(f"import {module}")) == []


@pytest.mark.slow
def test_no_scheduler_module_loads_arrow_or_an_event_loop() -> None:
    names = [".".join(("millstream", *path.with_suffix("").parts)) for path in modules() if path.parts[0] == "scheduler"]
    code = "; ".join(f"import {name.removesuffix('.__init__')}" for name in names if not name.endswith("__main__"))
    assert sorted({"pyarrow", "pandas", "asyncio", "pyspark", "sqlglot"} & loaded_by(code)) == []


SERVE = """
import asyncio
from millstream.client import cli
from millstream.server.serve_command import command
from millstream.server.lean import keep_pandas_out
keep_pandas_out()
from millstream.server.config import Config
from millstream.server.live import LiveServer
async def serve():
    server = LiveServer(Config(port=0))
    await server.start()
    at_start = list(sys.modules)
    await server.settle()
    assert {"sqlglot", "millstream.engine.planner.plan", "millstream.server.statements.selects"} <= set(sys.modules)
    await server.stop()
    return at_start
modules = asyncio.run(serve())
"""
RUN = """
from millstream.client import cli
assert cli.run(["run", {script!r}, "--format", "csv"]) == 0
"""
SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT us;
SELECT k + 1 AS more FROM s;
INSERT INTO s VALUES (1, 2), (2, 3);
"""


@pytest.mark.slow
def test_a_server_that_begins_to_listen_has_loaded_neither_the_language_nor_what_only_some_servers_need() -> None:
    loaded = loaded_by(SERVE)
    not_needed = {"sqlglot", "prometheus_client", "importlib.metadata", "http.server", "rich", "pandas", "pyarrow.compute", "matplotlib"}
    assert not_needed & loaded == set()
    assert sum(ours(loaded).values()) <= 385, ours(loaded)


@pytest.mark.slow
def test_a_script_that_is_run_loads_no_server_and_only_the_operators_it_has(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(SCRIPT)
    loaded = loaded_by(RUN.format(script=str(script)))
    not_needed = {"asyncio", "http", "prometheus_client", "ssl", "structlog", "uvloop", "millstream.protocol.messages", "pandas", "rich"}
    assert not_needed & loaded == set()
    assert sum(ours(loaded).values()) <= 430, ours(loaded)


def ours(loaded: set[str]) -> dict[str, int]:
    """Return how many modules of each of our folders are loaded."""
    return dict(Counter(name.split(".")[1] for name in loaded if name.startswith("millstream.")))


def loaded_by(code: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter holds after running `code`, which may print."""
    script = f"import sys\nmodules = sys.modules\n{code}\nprint(*modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(answer.stdout.splitlines()[-1].split())
